package pathmapper_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// The heuristic maps whole strings that are absolute, under a root, without control characters,
// "//", "?", "#" or "://", and with white space only if the path exists (PM-09).
func TestHeuristic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ give, want string }{
		{"/srv/app", "/workspace"},
		{"/srv/app/a.go", "/workspace/a.go"},
		{"/srv//app/./a.go", "/workspace/a.go"},
		{"/srv/app/a.go:12:3", "/workspace/a.go:12:3"},
		{"/srv/app/*.go", "/workspace/*.go"},
		{"/srv/app/näme/名", "/workspace/näme/名"},
		{"/srv/app/my file.txt", "/workspace/my file.txt"},
		{"/srv/app/..a/b..", "/workspace/..a/b.."},
		{`/srv/app/a\b"c`, `/workspace/a\b"c`},
		{"/srv/app/a&b;c", "/workspace/a&b;c"},
	} {
		raw, _ := json.Marshal([]string{c.give})
		out, rep := input(t, string(raw), guess)
		var got []string
		if err := json.Unmarshal([]byte(out), &got); err != nil || got[0] != c.want {
			t.Errorf("%q became %s, want %q", c.give, out, c.want)
		}
		if len(rep.Mapped) != 1 || rep.Mapped[0].From != c.give || rep.Mapped[0].To != c.want ||
			len(rep.Unmapped) > 0 {
			t.Errorf("%q: report %+v", c.give, rep)
		}
	}
}

// A string that only resembles a path stays unchanged and is listed with a reason (PM-06, PM-09).
func TestHeuristicDeclines(t *testing.T) {
	t.Parallel()
	for _, give := range []string{
		`"/"`, `"/srv"`, `"/etc/passwd"`, `"/srv/apple"`, `"/srv/app2/x"`, `"/workspace/x"`, `"/etc/../x"`, `"/SRV/app"`,
		`"//srv/app/x"`, `"//"`, `"/srv/app/a?b"`, `"/srv/app/a#L1"`, `"/srv/app/a://x"`,
		`"/srv/app/README.md is the file to edit"`, `"/srv/app/a b"`, `"/srv/app "`, `"/srv/app\u00a0x"`, `"/srv/app/a\u2028b"`, `"/srv/app/a\u3000b"`,
		`"/srv/app/a\nb"`, `"/srv/app/a\tb"`, `"/srv/app/my file.txt\n"`, `"/srv/app/\u001b[31m"`, `"/srv/app/\u007f"`, `"/srv/app/\u0085"`,
		`"/srv/app/.. is the parent"`, `"/srv/app/../my file.txt"`, `"\/etc"`, `"\u002fetc"`, `"/etc\u0000"`,
	} {
		doc := "[" + give + "]"
		out, rep := input(t, doc, guess)
		if out != doc {
			t.Errorf("%s became %s", doc, out)
		}
		if len(rep.Mapped) > 0 || len(rep.Unmapped) != 1 || rep.Unmapped[0].Reason == "" ||
			rep.Unmapped[0].Pointer != "/0" {
			t.Errorf("%s: report %+v, want one decline with its reason", doc, rep)
		}
	}
}

// A string without a slash at its beginning is neither mapped nor listed.
func TestHeuristicIgnores(t *testing.T) {
	t.Parallel()
	for _, give := range []string{
		`""`, `"a"`, `" /srv/app"`, `"-I/srv/app"`, `"file:///srv/app"`, `"see /srv/app/x"`, `"./srv/app"`, `"../x"`, `"\\/srv/app"`, `"\u0041"`,
		`"C:\\srv\\app"`, `1`, `null`,
	} {
		doc := "[" + give + "]"
		if out, rep := input(t, doc, guess); out != doc ||
			len(rep.Mapped)+len(rep.Unmapped)+len(rep.Errors) > 0 {
			t.Errorf("%s became %s, %+v", doc, out, rep)
		}
	}
}

// A slash may be escaped as \/ or \u002f.
func TestHeuristicEscapes(t *testing.T) {
	t.Parallel()
	for _, give := range []string{`"\/srv/app/x"`, `"\/srv\/app\/x"`, `"\u002fsrv\u002Fapp/x"`, `"\u002Fsrv/app/\u0078"`} {
		if out, _ := input(t, give, guess); out != `"/workspace/x"` {
			t.Errorf("%s became %s", give, out)
		}
	}
}

// A path into or out of a root with ".." is refused, not ignored and not resolved (PM-05).
func TestHeuristicRefuses(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	for _, give := range []string{
		`"/srv/app/.."`, `"/srv/app/../x"`, `"/srv/app/a/../b"`, `"/srv/x/../app/b"`, `"/../srv/app/b"`, `"/srv//app/.././x"`, `"/srv/app/\u0000"`,
		`"/srv/app/a b\u0000"`,
	} {
		if out, _, err := m.Input(jsontext.Value(give), guess); dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("%s became %s, %v; want path_invalid", give, out, err)
		}
	}
}

// HostExists is called in both directions, and only for a path with white space under a root
// (PM-09).
func TestHeuristicCallsHostExists(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	var asked []string
	opts := pathmapper.Options{HostExists: func(p string) bool { asked = append(asked, p); return true }}
	out, _ := m.Output(jsontext.Value(`["/workspace/a  b","/workspace/plain","/elsewhere/a b","a b"]`), opts)
	if string(out) != `["/srv/app/a  b","/srv/app/plain","/elsewhere/a b","a b"]` {
		t.Errorf("Output = %s", out)
	}
	if _, _, err := m.Input(jsontext.Value(`["/srv/app//c d/"]`), opts); err != nil {
		t.Error(err)
	}
	if len(asked) != 2 || asked[0] != "/srv/app/a  b" || asked[1] != "/srv/app/c d" {
		t.Errorf("asked for %q", asked)
	}
}

// A string that is not Unicode stays unchanged.
func TestNotUnicode(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{`["/srv/app/\udcff"]`, "[\"/srv/app/\xff\"]", `["/srv/app/\ud800\u0041"]`} {
		if out, rep := input(t, doc, guess); out != doc || len(rep.Unmapped) != 1 {
			t.Errorf("%q became %q, %+v", doc, out, rep)
		}
		marked := pathmapper.Options{Marks: compile(t, `{"items":{"format":"path"}}`)}
		if _, _, err := newMapper(t, "/srv/app", "/workspace").
			Input(jsontext.Value(doc), marked); dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("%q marked: %v, want path_invalid", doc, err)
		}
	}
}

// The reason names a root that would match after normalization (PM-13).
func TestHeuristicNormalization(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/caf\u00e9", "/workspace")
	_, rep, err := m.Input(jsontext.Value("[\"/srv/cafe\u0301/x\"]"), guess)
	if err != nil || len(rep.Unmapped) != 1 ||
		!containsAll(rep.Unmapped[0].Reason, "NFC", "caf\u00e9") {
		t.Errorf("report = %+v, %v", rep, err)
	}
}

func compile(t testing.TB, schema string) *pathmapper.Marks {
	t.Helper()
	marks, err := pathmapper.CompileMarks(json.RawMessage(schema))
	if err != nil {
		t.Fatalf("CompileMarks(%s): %v", schema, err)
	}
	return marks
}

func containsAll(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// Marks are found under every supported keyword (PM-09).
func TestMarks(t *testing.T) {
	t.Parallel()
	const p, q = `"/srv/app/p"`, `"/workspace/p"`
	for _, c := range []struct{ name, schema, give, want string }{
		{"top", `{"format":"path"}`, p, q},
		{"x-path", `{"x-path":true}`, p, q},
		{"x-path false", `{"x-path":false}`, p, p},
		{"another format", `{"format":"uri"}`, p, p},
		{"boolean schema", `true`, p, p},
		{"properties", `{"properties":{"a":{"format":"path"},"b":true}}`, `{"a":` + p + `,"b":` + p + `}`, `{"a":` + q + `,"b":` + p + `}`},
		{"escaped key", `{"properties":{"a\"b":{"x-path":true}}}`, `{"\u0061\"b":` + p + `}`, `{"\u0061\"b":` + q + `}`},
		{"patternProperties", `{"patternProperties":{"_path$":{"x-path":true}}}`, `{"a_path":` + p + `,"a_text":` + p + `}`, `{"a_path":` + q + `,"a_text":` + p + `}`},
		{
			"additionalProperties", `{"properties":{"a":{}},"patternProperties":{"^x":false},"additionalProperties":{"x-path":true}}`,
			`{"a":` + p + `,"b":` + p + `,"xy":` + p + `}`, `{"a":` + p + `,"b":` + q + `,"xy":` + p + `}`,
		},
		{"items", `{"items":{"x-path":true}}`, `[` + p + `,1,` + p + `]`, `[` + q + `,1,` + q + `]`},
		{"prefixItems", `{"prefixItems":[{},{"x-path":true}],"items":{"items":{"x-path":true}}}`, `[` + p + `,` + p + `,[` + p + `]]`, `[` + p + `,` + q + `,[` + q + `]]`},
		{"allOf", `{"allOf":[{},{"properties":{"a":{"x-path":true}}}]}`, `{"a":` + p + `}`, `{"a":` + q + `}`},
		{"anyOf", `{"anyOf":[{"x-path":true},{"type":"null"}]}`, p, q},
		{"oneOf", `{"items":{"oneOf":[{"type":"integer"},{"format":"path"}]}}`, `[1,` + p + `]`, `[1,` + q + `]`},
		{"if", `{"if":{"properties":{"a":{"x-path":true}}}}`, `{"a":` + p + `}`, `{"a":` + q + `}`},
		{"then else", `{"if":{},"then":{"properties":{"a":{"x-path":true}}},"else":{"properties":{"b":{"x-path":true}}}}`, `{"a":` + p + `,"b":` + p + `}`, `{"a":` + q + `,"b":` + q + `}`},
		{"not", `{"not":{"x-path":true},"propertyNames":{"x-path":true},"contains":{"x-path":true}}`, `[` + p + `]`, `[` + p + `]`},
		{"ref", `{"items":{"$ref":"#/$defs/a~1b%20c"},"$defs":{"a/b c":{"x-path":true}}}`, `[` + p + `]`, `[` + q + `]`},
		{"ref into an array", `{"allOf":[{"properties":{"a":{"x-path":true}}}],"items":{"$ref":"#/allOf/0/properties/a"}}`, `[` + p + `]`, `[` + q + `]`},
		{"ref beside others", `{"$ref":"#/$defs/o","properties":{"b":{"x-path":true}},"$defs":{"o":{"properties":{"a":{"x-path":true}}}}}`, `{"a":` + p + `,"b":` + p + `}`, `{"a":` + q + `,"b":` + q + `}`},
		{
			"tree", `{"properties":{"path":{"x-path":true},"children":{"items":{"$ref":"#"}}}}`,
			`{"children":[{"path":` + p + `,"children":[{"path":` + p + `,"name":` + p + `}]}]}`,
			`{"children":[{"path":` + q + `,"children":[{"path":` + q + `,"name":` + p + `}]}]}`,
		},
		{"circle", `{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#/$defs/a"},{"x-path":true}]}}}`, p, q},
		{"circle without a mark", `{"$ref":"#"}`, p, p},
		{"mark on what is no string", `{"x-path":true}`, `[` + p + `,{"a":` + p + `}]`, `[` + p + `,{"a":` + p + `}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, rep := input(t, c.give, pathmapper.Options{
				Mode:  dray.MapSchema,
				Marks: compile(t, c.schema),
			})
			if out != c.want {
				t.Errorf("became %s, want %s", out, c.want)
			}
			if got, want := len(rep.Mapped), strings.Count(c.want, q); got != want {
				t.Errorf("%d mapped paths are listed, want %d", got, want)
			}
		})
	}
}

// A marked string that is not mapped is listed, whatever its form (PM-06).
func TestMarkedUnmapped(t *testing.T) {
	t.Parallel()
	opts := pathmapper.Options{Marks: compile(t, `{"items":{"x-path":true}}`)}
	const doc = `["/etc/hosts","sub/a","","/srv/apple//x/","file:///srv/app"]`
	if out, rep := input(t, doc, opts); out != doc || len(rep.Unmapped) != 5 || len(rep.Mapped) > 0 {
		t.Errorf("became %s, %+v", out, rep)
	}
	for _, doc := range []string{`["/srv/app/a b"]`, `["/srv/app/a?b#c"]`, `["/srv/app/a\nb"]`, `["//srv/app/x"]`} {
		if out, rep := input(t, doc, opts); !strings.Contains(out, "/workspace/") ||
			len(rep.Mapped) != 1 {
			t.Errorf("%s became %s, %+v; want it mapped, for the schema says so", doc, out, rep)
		}
	}
}

// An invalid marked string is refused even outside every root (PM-05, PM-15).
func TestMarkedRefused(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	for format, values := range map[string][]string{
		"path":      {"..", "../x", "/etc/../x", "/etc/\x00", `C:\x`, `\\host\share`},
		"path-list": {"/a:/b/..", "a:../b", `C:\x;D:\y`, "/srv/app:\x00"},
		"file-uri": {
			"file:///srv/app/%2e%2e/x", "file:///a/..%2f", "file:///a%00", "file:///C:/Users",
			"file:///c%3a%5cx", "file:///%zz",
		},
	} {
		opts := pathmapper.Options{Marks: compile(t, `{"format":"`+format+`"}`)}
		for _, v := range values {
			raw, _ := json.Marshal(v)
			if out, _, err := m.Input(raw, opts); dray.CodeOf(err) != dray.CodePathInvalid ||
				dray.AsError(err).Hint == "" {
				t.Errorf("%s %q became %s, %v; want path_invalid with a hint", format, v, out, err)
			}
			if out, rep := m.Output(raw, opts); string(out) != string(raw) || len(rep.Errors) != 1 ||
				len(rep.Mapped) > 0 {
				t.Errorf("%s %q as output became %s, %+v; want it raw with an error", format, v, out, rep)
			}
		}
	}
}

// Each element of a colon-joined path list is mapped and listed (PM-09).
func TestPathList(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]string{
		"/srv/app":                        "/workspace",
		"/srv/app/bin:/usr/bin:/srv/app/": "/workspace/bin:/usr/bin:/workspace",
		":/srv/app/a/::rel:":              ":/workspace/a/::rel:",
		"/usr/bin:/bin":                   "/usr/bin:/bin",
		"":                                "",
		":":                               ":",
		"a:/srv/app/b":                    "a:/workspace/b",
	} {
		opts := pathmapper.Options{Marks: compile(t, `{"format":"path-list"}`)}
		out, rep := input(t, `"`+give+`"`, opts)
		if out != `"`+want+`"` {
			t.Errorf("%q became %s, want %q", give, out, want)
		}
		elements := len(strings.FieldsFunc(give, func(r rune) bool { return r == ':' }))
		if len(rep.Mapped)+len(rep.Unmapped) != elements ||
			len(rep.Mapped) != strings.Count(want, "/workspace") {
			t.Errorf("%q: report %+v", give, rep)
		}
	}
}

// A path list cannot contain a mapped path with a colon.
func TestPathListColon(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/a:b", "/workspace")
	out, rep := m.Output(jsontext.Value(`"/usr/bin:/workspace/x"`), pathmapper.Options{Marks: compile(t, `{"format":"path-list"}`)})
	if string(out) != `"/usr/bin:/workspace/x"` || len(rep.Errors) != 1 || len(rep.Unmapped) > 0 {
		t.Errorf("Output = %s, %+v; want it raw with an error alone", out, rep)
	}
}

// The path of a file URI is decoded, mapped and encoded; the rest stays unchanged (PM-09).
func TestFileURI(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/work space/ä")
	opts := pathmapper.Options{Marks: compile(t, `{"format":"file-uri"}`)}
	for give, want := range map[string]string{
		"file:///srv/app":                     "file:///work%20space/%C3%A4",
		"file:///srv/app/":                    "file:///work%20space/%C3%A4",
		"file:///srv/app/x/":                  "file:///work%20space/%C3%A4/x/",
		"file:///srv/app/x/.":                 "file:///work%20space/%C3%A4/x/.",
		"file:/srv/app/x":                     "file:/work%20space/%C3%A4/x",
		"FILE://LocalHost/srv/app/x":          "FILE://LocalHost/work%20space/%C3%A4/x",
		"file:///%73rv%2Fapp/%61%20%25%3f%ff": "file:///work%20space/%C3%A4/a%20%25%3F%FF",
		"file:///srv/app/a+b@c:d;e#L1?x=/srv": "file:///work%20space/%C3%A4/a+b@c:d;e#L1?x=/srv",
		"file:///srv/apple":                   "",
		"file:///etc/a%20b":                   "",
		"file://server/srv/app":               "",
		"file://":                             "",
		"file:":                               "",
		"file:rel/x":                          "",
		"http://localhost/srv/app":            "",
		"/srv/app/x":                          "",
		"":                                    "",
	} {
		out, rep, err := m.Input(jsontext.Value(`"`+give+`"`), opts)
		mapped := want != ""
		if !mapped {
			want = give
		}
		if err != nil || string(out) != `"`+want+`"` {
			t.Errorf("%q became %s, %v; want %q", give, out, err, want)
		}
		if mapped != (len(rep.Mapped) == 1) || mapped == (len(rep.Unmapped) == 1) {
			t.Errorf("%q: report %+v", give, rep)
		}
	}
}

// Alternatives of a schema may mark one string with several kinds.
func TestSeveralKinds(t *testing.T) {
	t.Parallel()
	opts := pathmapper.Options{Marks: compile(t, `{"items":{"anyOf":[{"format":"path"},{"format":"file-uri"}]}}`)}
	if out, _ := input(t, `["/srv/app/x","file:///srv/app/x","/srv/app/x:/srv/app/y"]`, opts); out != `["/workspace/x","file:///workspace/x","/workspace/x:/srv/app/y"]` {
		t.Errorf("path or URI: %s", out)
	}
	opts.Marks = compile(t, `{"items":{"format":"path-list","x-path":true}}`)
	if out, _ := input(t, `["/srv/app/x","/srv/app/x:/srv/app/y"]`, opts); out != `["/workspace/x","/workspace/x:/workspace/y"]` {
		t.Errorf("path or list: %s", out)
	}
}

func TestAny(t *testing.T) {
	t.Parallel()
	var none *pathmapper.Marks
	if none.Any() {
		t.Error("nil marks something")
	}
	for schema, want := range map[string]bool{
		"": false, "true": false, "{}": false, `{"format":"date"}`: false, `{"not":{"format":"path"}}`: false, `{"$defs":{"p":{"format":"path"}}}`: false,
		`{"format":"path"}`: true, `{"properties":{"a":{"items":{"x-path":true}}}}`: true,
	} {
		if got := compile(t, schema).Any(); got != want {
			t.Errorf("Any of %s = %v, want %v", schema, got, want)
		}
	}
}

func TestCompileMarksRefuses(t *testing.T) {
	t.Parallel()
	for schema, pointer := range map[string]string{
		`{"properties":{"a/b":{"x-path":"yes"}}}`: "/properties/a~1b/x-path",
		`{"x-path":null}`:                         "/x-path",
		`[]`:                                      "",
		`{"items":[{"x-path":true}]}`:             "/items",
		`{"properties":[]}`:                       "/properties",
		`{"allOf":{}}`:                            "/allOf",
		`{"$ref":"#/$defs/none"}`:                 "/$ref",
		`{"$ref":"#name"}`:                        "/$ref",
		`{"$ref":"other.json#/a"}`:                "/$ref",
		`{"$ref":"https://example.org/s"}`:        "/$ref",
		`{"$ref":1}`:                              "/$ref",
		`{"$dynamicRef":"#node"}`:                 "/$dynamicRef",
		`{"anyOf":[{},{"$ref":"#/anyOf/9"}]}`:     "/anyOf/1/$ref",

		`{"patternProperties":{"(?=a)":{"format":"path"}}}`:   "/patternProperties/(?=a)",
		`{"additionalProperties":1,"properties":{"a":"str"}}`: "/properties/a",
	} {
		_, err := pathmapper.CompileMarks(json.RawMessage(schema))
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeInvalidInput || e.Hint == "" || len(e.Details) != 1 ||
			e.Details[0].Pointer != pointer {
			t.Errorf("CompileMarks(%s) = %+v; want invalid_input at %q", schema, e, pointer)
		}
	}
	if _, err := pathmapper.CompileMarks(json.RawMessage(`{`)); dray.CodeOf(err) != dray.CodeInvalidInput {
		t.Errorf("broken JSON: %v", err)
	}
}
