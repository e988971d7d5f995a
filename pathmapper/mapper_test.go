package pathmapper_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// Paths are mapped in both directions by whole segments (PM-01), a root to the root without a
// trailing slash (PM-02); the rest stays unchanged (PM-06).
func TestOneMapping(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/sandbox", "/workspace")
	checkPaths(t, m, pathmapper.ToContainer, map[string]string{
		"/srv/sandbox":             "/workspace",
		"/srv/sandbox/":            "/workspace",
		"//srv/sandbox/.":          "/workspace",
		"/srv/sandbox/a/b.go":      "/workspace/a/b.go",
		"/srv//sandbox/./a//b.go/": "/workspace/a/b.go",
		"/srv/sandbox/ä ö/\n":      "/workspace/ä ö/\n",
		"/srv/sandbox/\xff":        "/workspace/\xff",
		"/srv/sandbox/..a":         "/workspace/..a",
		`/srv/sandbox/a\b`:         `/workspace/a\b`,
		"/srv/sandboxevil":         "",
		"/srv/sandboxevil/a":       "",
		"/srv/sandbox.bak":         "",
		"/SRV/sandbox/a":           "",
		"/srv":                     "",
		"/srv/":                    "",
		"/":                        "",
		"//":                       "",
		"/workspace/a":             "",
		"//other//./x/":            "",
		"a/b":                      "",
		"":                         "",
		" /srv/sandbox":            "",
	})
	checkPaths(t, m, pathmapper.ToHost, map[string]string{
		"/workspace":      "/srv/sandbox",
		"/workspace/":     "/srv/sandbox",
		"/workspace/a/b":  "/srv/sandbox/a/b",
		"/workspaces/a":   "",
		"/srv/sandbox/a":  "",
		"/usr/bin/python": "",
	})
}

// Paths under equal roots are mapped to themselves (PM-04).
func TestIdentity(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/srv/app")
	same := map[string]string{"/srv/app": "/srv/app", "/srv/app/x": "/srv/app/x", "/srv/apple": ""}
	checkPaths(t, m, pathmapper.ToContainer, same)
	checkPaths(t, m, pathmapper.ToHost, same)
}

// The longest prefix decides in each direction and in any order (PM-04).
func TestLongestPrefix(t *testing.T) {
	t.Parallel()
	pairs := mappings("/srv", "/mnt/srv", "/srv/app", "/workspace", "/srv/app/deep/er", "/deep",
		"/cache", "/workspace/cache")
	for _, order := range []func([]pathmapper.Mapping){
		func([]pathmapper.Mapping) {},
		slices.Reverse[[]pathmapper.Mapping],
	} {
		order(pairs)
		m, err := pathmapper.New(pairs)
		if err != nil {
			t.Fatal(err)
		}
		checkPaths(t, m, pathmapper.ToContainer, map[string]string{
			"/srv/x":             "/mnt/srv/x",
			"/srv/application":   "/mnt/srv/application",
			"/srv/app/x":         "/workspace/x",
			"/srv/app/deep/x":    "/workspace/deep/x",
			"/srv/app/deep/er":   "/deep",
			"/srv/app/deep/er/x": "/deep/x",
			"/cache/x":           "/workspace/cache/x",
			"/srv/app/cache/x":   "/mnt/srv/app/cache/x", // /workspace/cache shows another folder
		})
		checkPaths(t, m, pathmapper.ToHost, map[string]string{
			"/workspace/x":       "/srv/app/x",
			"/workspace/cache/x": "/cache/x",
			"/workspace/cached":  "/srv/app/cached",
			"/deep/x":            "/srv/app/deep/er/x",
			"/mnt/srv/app/x":     "/srv/app/x",
		})
	}
}

// Of equal roots the first mapping decides.
func TestEqualRoots(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/home/me", "/work", "/var/home/me", "/work", "/home/me", "/copy")
	checkPaths(t, m, pathmapper.ToContainer,
		map[string]string{"/home/me/x": "/work/x", "/var/home/me/x": "/work/x"})
	checkPaths(t, m, pathmapper.ToHost,
		map[string]string{"/work/x": "/home/me/x", "/copy/x": "/home/me/x"})
}

func TestHiddenByAMount(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv", "/mnt", "/srv/app", "/workspace", "/cache", "/workspace/cache", "/else",
		"/mnt/app/cache")
	got, err := m.ToContainer("/srv/app/cache/x")
	if err != nil || got.Mapped || !strings.Contains(got.Reason, `"/workspace/cache"`) {
		t.Errorf("ToContainer = %+v, %v; want it unmapped because of /workspace/cache, the nearest", got,
			err)
	}
}

// Invalid paths are errors under a root or not, also relative ones (PM-05, PM-15).
func TestInvalidPaths(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	for _, p := range []string{
		"/srv/app/..", "/srv/app/../x", "/etc/../srv/app", "../x", "..", "/workspace/..", "/srv/app/\x00", "\x00", `C:\x`, `\\host\share`,
	} {
		for _, translate := range []func(string) (pathmapper.PathResult, error){m.ToContainer, m.ToHost} {
			if got, err := translate(p); dray.CodeOf(err) != dray.CodePathInvalid {
				t.Errorf("%q: %+v, %v; want path_invalid", p, got, err)
			}
		}
	}
}

// Bytes are compared unchanged. A path that would match after normalization is unmapped, with a
// reason (PM-13).
func TestNormalization(t *testing.T) {
	t.Parallel()
	const composed, decomposed = "/srv/caf\u00e9", "/srv/cafe\u0301"
	for _, c := range []struct{ root, path string }{
		{composed, decomposed},
		{decomposed, composed},
		{"/srv/K", "/srv/\u212a"},
	} {
		m := newMapper(t, c.root, "/workspace")
		checkPaths(t, m, pathmapper.ToContainer,
			map[string]string{c.root + "/x": "/workspace/x", c.path + "/x": ""})
		got, _ := m.ToContainer(c.path + "/x")
		if !strings.Contains(got.Reason, "NFC") {
			t.Errorf("root %q: reason for %q is %q, want a word on NFC", c.root, c.path, got.Reason)
		}
	}
	m := newMapper(t, "/workspace", composed)
	if got, _ := m.ToHost(decomposed); got.Mapped || !strings.Contains(got.Reason, "NFC") {
		t.Errorf("ToHost(%q) = %+v, want it unmapped with a word on NFC", decomposed, got)
	}
	if got, _ := m.ToHost("/srv/cafe\u0300"); got.Mapped || strings.Contains(got.Reason, "NFC") {
		t.Errorf("an outside path got %+v", got)
	}
}

// Paths preserves the order. Unmapped paths are unchanged and repeated in unmapped (PM-06).
func TestPaths(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	out, unmapped, err := m.Paths(pathmapper.ToContainer,
		[]string{"/etc//x", "/srv/app/a", "rel", "/srv/app"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/etc//x", "/workspace/a", "rel", "/workspace"}; !slices.Equal(out, want) {
		t.Errorf("paths = %q, want %q", out, want)
	}
	if want := []string{"/etc//x", "rel"}; !slices.Equal(unmapped, want) {
		t.Errorf("unmapped = %q, want %q", unmapped, want)
	}
	out, unmapped, err = m.Paths(pathmapper.ToHost, nil, nil)
	if err != nil || out == nil || unmapped == nil {
		t.Errorf("no paths = %#v, %#v, %v; want empty lists", out, unmapped, err)
	}
}

func TestPathsRefuses(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	_, _, err := m.Paths(pathmapper.ToHost, []string{"/workspace/..", "/workspace", "\x00"}, nil)
	e := dray.AsError(err)
	if e == nil || e.Code != dray.CodeInvalidInput || e.Hint == "" || len(e.Details) != 2 {
		t.Fatalf("error = %+v, want invalid_input with two details", e)
	}
	if e.Details[0].Pointer != "/paths/0" || e.Details[1].Pointer != "/paths/2" {
		t.Errorf("details = %+v", e.Details)
	}
	if _, _, err := m.Paths("sideways", nil, nil); dray.CodeOf(err) != dray.CodeInvalidRequest {
		t.Errorf("unknown direction: %v, want invalid_request", err)
	}
}

func TestZeroMapper(t *testing.T) {
	t.Parallel()
	checkPaths(t, &pathmapper.Mapper{}, pathmapper.ToContainer, map[string]string{"/srv": "", "": ""})
	checkPaths(t, newMapper(t), pathmapper.ToHost, map[string]string{"/srv": ""})
}

func newMapper(t testing.TB, pairs ...string) *pathmapper.Mapper {
	t.Helper()
	m, err := pathmapper.New(mappings(pairs...))
	if err != nil {
		t.Fatalf("New(%q): %v", pairs, err)
	}
	return m
}

// mappings returns mappings of alternating host and container roots.
func mappings(pairs ...string) []pathmapper.Mapping {
	var all []pathmapper.Mapping
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, pathmapper.Mapping{Host: pairs[i], Container: pairs[i+1]})
	}
	return all
}

// Roots are cleaned (PM-02).
func TestNewCleansRoots(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"/srv/app", "/srv/app/", "//srv//app//", "/srv/./app/."} {
		m := newMapper(t, root, "/workspaces//app/")
		got, err := m.ToContainer("/srv/app")
		if err != nil || got.Path != "/workspaces/app" {
			t.Errorf("root %q: ToContainer(/srv/app) = %q, %v", root, got.Path, err)
		}
	}
}

// Invalid configured roots are refused with an error that names both roots and a hint (PM-02,
// PM-03, PM-04, PM-05, PM-15).
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, host, container, says string }{
		{"empty host", "", "/workspace", "empty"},
		{"empty container", "/srv", "", "empty"},
		{"relative host", "srv", "/workspace", "not an absolute path"},
		{"relative container", "/srv", "workspace", "not an absolute path"},
		{"blank", " ", "/workspace", "not an absolute path"},
		{"slash", "/", "/workspace", "every path"},
		{"two slashes", "//", "/workspace", "every path"},
		{"slash by dots", "/./", "/workspace", "every path"},
		{"slash in the container", "/srv", "/", "every path"},
		{"dotdot", "/srv/../etc", "/workspace", `".." segment`},
		{"dotdot in the container", "/srv", "/workspace/..", `".." segment`},
		{"NUL", "/srv\x00", "/workspace", "NUL"},
		{"not UTF-8", "/srv/\xff", "/workspace", "UTF-8"},
		{"host above container", "/srv", "/srv/app", `"/srv" is an ancestor of "/srv/app"`},
		{"container above host", "/workspace/app", "/workspace", `"/workspace" is an ancestor of "/workspace/app"`},
		{"ancestor after cleaning", "/srv//", "/srv/./app", "ancestor"},
		{"drive", `C:\Users\me`, "/workspace", "Windows"},
		{"drive with slashes", "c:/Users/me", "/workspace", "Windows"},
		{"UNC", `\\wsl$\Debian\srv`, "/workspace", "Windows"},
		{"Windows in the container", "/srv", `C:\app`, "Windows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := pathmapper.New(mappings("/data", "/data", c.host, c.container))
			if m != nil || dray.CodeOf(err) != dray.CodePathInvalid {
				t.Fatalf("New = %v, %v; want path_invalid", m, err)
			}
			e := dray.AsError(err)
			for _, part := range []string{c.says, quoted(c.host), quoted(c.container)} {
				if !strings.Contains(e.Message, part) {
					t.Errorf("message %q lacks %q", e.Message, part)
				}
			}
			if e.Hint == "" {
				t.Error("there is no hint")
			}
		})
	}
}

func quoted(p string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, "\x00", `\x00`, "\xff", `\xff`).Replace(p) + `"`
}

// Neighbouring and equal roots are valid (PM-04).
func TestNewAccepts(t *testing.T) {
	t.Parallel()
	for _, pair := range [][]string{
		{"/srv/app", "/srv/app"},
		{"/srv/app", "/srv/application"},
		{"/a/b", "/a/c"},
		{"/home/me/C:", "/c"},
	} {
		newMapper(t, pair...)
	}
}

// Configured mappings take precedence over a container's mounts (PM-14). An invalid mount is
// skipped with a warning (PM-03, PM-04).
func TestFromMounts(t *testing.T) {
	t.Parallel()
	m, warnings, err := pathmapper.FromMounts([]dray.Mount{
		{Host: "/home/me/app", Container: "/workspaces/app"},
		{Host: "/", Container: "/hostfs"},
		{Host: "/srv", Container: "/srv/all"},
		{Host: "", Container: "/workspaces/app/node_modules"},
		{Host: `C:\Users`, Container: "/users"},
		{Host: "/mnt/real", Container: "/data"},
	}, mappings("/data", "/data"))
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 3 {
		t.Fatalf("warnings = %q, want three", warnings)
	}
	for i, part := range []string{`"/hostfs"`, `"/srv/all"`, `"/users"`} {
		if !strings.Contains(warnings[i], part) {
			t.Errorf("warning %d is %q and lacks %s", i, warnings[i], part)
		}
	}
	checkPaths(t, m, pathmapper.ToContainer, map[string]string{
		"/home/me/app/go.mod":            "/workspaces/app/go.mod",
		"/data/x":                        "/data/x",
		"/mnt/real/x":                    "/data/x", // another name of the same folder
		"/srv/x":                         "",
		"/home/me/app/node_modules/left": "", // a volume hides it
	})
	checkPaths(t, m, pathmapper.ToHost, map[string]string{
		"/workspaces/app/go.mod":         "/home/me/app/go.mod",
		"/data/x":                        "/data/x", // the configured name
		"/hostfs/etc/passwd":             "",
		"/srv/all/x":                     "",
		"/users/me":                      "",
		"/workspaces/app/node_modules":   "",
		"/workspaces/app/node_modules/a": "",
	})
}

func TestFromMountsRefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	m, _, err := pathmapper.FromMounts([]dray.Mount{{Host: "/a", Container: "/b"}},
		mappings("/srv", "/srv/app"))
	if m != nil || dray.CodeOf(err) != dray.CodePathInvalid {
		t.Fatalf("FromMounts = %v, %v; want path_invalid", m, err)
	}
}

// checkPaths maps each key; an empty value means that it must stay unchanged, with a reason.
func checkPaths(t *testing.T, m *pathmapper.Mapper, dir pathmapper.Direction,
	cases map[string]string,
) {
	t.Helper()
	for give, want := range cases {
		translate := m.ToContainer
		if dir == pathmapper.ToHost {
			translate = m.ToHost
		}
		got, err := translate(give)
		switch {
		case err != nil:
			t.Errorf("%s %q: %v", dir, give, err)
		case want == "" && (got.Mapped || got.Path != give || got.Reason == ""):
			t.Errorf("%s %q = %+v, want it unmapped and unchanged, with a reason", dir, give, got)
		case want != "" && (!got.Mapped || got.Path != want || got.Reason != ""):
			t.Errorf("%s %q = %+v, want %q", dir, give, got, want)
		}
	}
}
