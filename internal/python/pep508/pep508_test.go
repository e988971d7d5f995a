package pep508_test

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/python/pep508"
)

// A requirement has one normal form (PY-14, PY-15).
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"numpy":                               "numpy",
		" Foo._Bar ":                          "foo-bar",
		"zope.interface>=5":                   "zope-interface>=5",
		"numpy >= 2, <3.0a1":                  "numpy<3.0a1,>=2",
		"numpy(>=2)":                          "numpy>=2",
		"pandas[Excel, performance ,excel]":   "pandas[excel,performance]",
		"x==1.0.*":                            "x==1.0.*",
		"x==01.0-Alpha_1":                     "x==1.0a1",
		"x~=1.4.2":                            "x~=1.4.2",
		"x===Anything-1":                      "x===anything-1",
		"x==1!2.0.post1.dev3+Local.7":         "x==1!2.0.post1.dev3+local.7",
		"x@https://a/x-1-py3-none-any.whl":    "x @ https://a/x-1-py3-none-any.whl",
		"x[a] @ https://a/x.whl ; extra=='b'": "x[a] @ https://a/x.whl ; extra == 'b'",
		`x>1;python_version<"3.12"and(os_name=='nt' or "a"   not in sys_platform)`: `x>1 ; python_version < "3.12" ` +
			`and (os_name == 'nt' or "a" not in sys_platform)`,
	} {
		r, err := pep508.Parse(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: %q, %v", text, r, err)
			continue
		}
		again, err := pep508.Parse(r.String())
		if err != nil || again.String() != want {
			t.Errorf("%q has the normal form %q, which is parsed as %q, %v", text, want, again, err)
		}
	}
}

// What is no requirement is refused, options and paths above all (PY-26).
func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "  ", "-r x", "--index-url=https://a", "-e .", "./x", "../x", "/x", "~/x", "x/y", `x\y`,
		"numpy=1", "numpy==", "numpy>=", "numpy 1.2", "numpy>=2 <3", "numpy>=2,,<3", "numpy,pandas",
		"numpy pandas", "numpy\npandas", "numpy # comment", "numpy>=1 --pre", "numpy --pre", "_x", "x-",
		"x[", "x[]", "x[a,]", "x[-a]", "x[a]b", "x~=1", "x>=1.*", "x==1a1.*", "x>1+local", "x===",
		"x==1;", "x;y", `x; python_version`, `x; python_version < "3`, `x; (os_name == "a"`,
		`x; os_name == "a" os_name == "b"`, `x; os_name = "a"`, `x; a == "b"`, `x; os_name == "a\"b"`,
		"x @", "x @ ; os_name=='a'", "x @ https://a b", "x @ https://a b; os_name=='a'",
		"x==99999999999999999999", "é", "x\u200b", "x\x00", "x\xff", "git+https://a/b", "${HOME}",
		strings.Repeat("x", pep508.MaxLength+1),
		"x; " + strings.Repeat("(", 100) + "os_name=='a'" + strings.Repeat(")", 100),
	} {
		if r, err := pep508.Parse(text); err == nil {
			t.Errorf("%q is accepted as %q", text, r)
		}
	}
}

// An installed version satisfies a requirement only if that is certain (PY-15).
func TestSatisfiedBy(t *testing.T) {
	for text, versions := range map[string]struct{ yes, no string }{
		"numpy":                       {"0 1.0 2.1rc1", "x"},
		"numpy>=2":                    {"2 2.0.0 2.1.dev1 2+cpu", "1.26.4 2.0rc1"},
		"numpy>=1.9,!=1.11.*":         {"1.10 1.12", "1.8.9 1.11.3"},
		"numpy==2.1.*":                {"2.1 2.1.3.post1", "2 2.10"},
		"numpy~=2.1":                  {"2.1 2.99", "2.0.9 3.0"},
		"numpy===2.1":                 {"2.1", "2.1.0"},
		"pandas[excel]":               {"", "1.0"},
		"x @ https://a/x.whl":         {"", "1.0"},
		`x ; python_version >= "3.9"`: {"", "1.0"},
	} {
		r, err := pep508.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for version := range strings.FieldsSeq(versions.yes) {
			if !r.SatisfiedBy(version) {
				t.Errorf("%s does not satisfy %s", version, text)
			}
		}
		for version := range strings.FieldsSeq(versions.no) {
			if r.SatisfiedBy(version) {
				t.Errorf("%s satisfies %s", version, text)
			}
		}
	}
}

// The normal form of anything that is accepted is a fixed point and no option.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"numpy", "a[b,c]>=1,<2.0.dev3+x ; (os_name=='a' or extra==\"b\")and sys_platform not in 'c'",
		"a @ https://b/c.whl ; os_name=='d'", "-r x", "a===b", "a~=1.2", "A._-b==1!2rc3.post4.dev5+6",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := pep508.Parse(text)
		if err != nil {
			return
		}
		normal := r.String()
		again, err := pep508.Parse(normal)
		if len(normal) <= pep508.MaxLength && (err != nil || again.String() != normal) {
			t.Errorf("%q: %q, then %q, %v", text, normal, again, err)
		}
		if normal[0] == '-' || strings.ContainsAny(normal, "\n\r\x00") {
			t.Errorf("%q: %q", text, normal)
		}
	})
}
