package pathmapper_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// guess selects the heuristic on a host with one file.
var guess = pathmapper.Options{
	Mode:       dray.MapHeuristic,
	HostExists: func(p string) bool { return p == "/srv/app/my file.txt" },
}

func input(t *testing.T, raw string, opts pathmapper.Options) (string, dray.MappingReport) {
	t.Helper()
	m := newMapper(t, "/srv/app", "/workspace")
	before := strings.Clone(raw)
	given := jsontext.Value(raw)
	out, rep, err := m.Input(given, opts)
	if err != nil {
		t.Fatalf("Input(%s): %v", raw, err)
	}
	if string(given) != before {
		t.Errorf("Input changed what it was given to %s", given)
	}
	return string(out), rep
}

// Paths in nested objects and arrays are mapped in both directions. Keys and everything else stay
// unchanged (PM-07).
func TestNestedDocuments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, host, container string }{
		{"top", `"/srv/app/x"`, `"/workspace/x"`},
		{"object", `{"a":"/srv/app"}`, `{"a":"/workspace"}`},
		{"array", `["/srv/app","/srv/app/b"]`, `["/workspace","/workspace/b"]`},
		{"mixed", `[{"a":[[{"b":["/srv/app/x"]}]]},[],{}]`, `[{"a":[[{"b":["/workspace/x"]}]]},[],{}]`},
		{"order", `{"z":"/srv/app/1","a":"/srv/app/2","z2":[]}`, `{"z":"/workspace/1","a":"/workspace/2","z2":[]}`},
		{
			"white space", " {\t\"a\" :\r\n[ \"/srv/app\" , 1 ] } \n",
			" {\t\"a\" :\r\n[ \"/workspace\" , 1 ] } \n",
		},
		{"numbers", `[1.0,-0,1e400,0.10,123456789012345678901234567890,"/srv/app"]`, `[1.0,-0,1e400,0.10,123456789012345678901234567890,"/workspace"]`},
		{"literals", `[true,false,null,"/srv/app",null]`, `[true,false,null,"/workspace",null]`},
		{"escapes elsewhere", `["\u0041\/\"\\","/srv/app","\\"]`, `["\u0041\/\"\\","/workspace","\\"]`},
		{"twin keys", `{"a":"/srv/app","a":"/srv/app/2"}`, `{"a":"/workspace","a":"/workspace/2"}`},
		{"not ASCII", `{"ü":"/srv/app/名前/é"}`, `{"ü":"/workspace/名前/é"}`},
		{"empty key", `{"":{"":"/srv/app"}}`, `{"":{"":"/workspace"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, rep := input(t, c.host, guess)
			if out != c.container {
				t.Errorf("Input(%s) = %s, want %s", c.host, out, c.container)
			}
			back, rep2 := newMapper(t, "/srv/app", "/workspace").Output(jsontext.Value(c.container), guess)
			if string(back) != c.host {
				t.Errorf("Output(%s) = %s, want %s", c.container, back, c.host)
			}
			if len(rep.Mapped) == 0 || len(rep.Mapped) != len(rep2.Mapped) ||
				len(rep.Unmapped)+len(rep2.Unmapped) > 0 {
				t.Errorf("reports %+v and %+v", rep, rep2)
			}
		})
	}
}

func TestKeysStay(t *testing.T) {
	t.Parallel()
	const doc = `{"/srv/app":1,"/srv/app/x":{"/srv/app/..":[]}}`
	if out, rep := input(t, doc, guess); out != doc || len(rep.Mapped)+len(rep.Unmapped) > 0 {
		t.Errorf("Input = %s, %+v; want it untouched", out, rep)
	}
}

// A document without paths is returned without a copy.
func TestDocumentWithoutPathsIsNotCopied(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	for _, raw := range []jsontext.Value{[]byte(`{"a": ["x"]}`), []byte(`""`), []byte(`1`), {}, nil} {
		out, rep, err := m.Input(raw, guess)
		if err != nil || len(out) != len(raw) || len(raw) > 0 && &out[0] != &raw[0] {
			t.Errorf("Input(%s) = %s, %v; want the very same", raw, out, err)
		}
		if text, _ := json.Marshal(rep); string(text) != `{"mapped":[],"unmapped":[],"errors":[]}` {
			t.Errorf("report = %s", text)
		}
	}
}

// An identity mapping lists the path and preserves its bytes and escapes.
func TestIdentityDocument(t *testing.T) {
	t.Parallel()
	const doc = `["\/srv\u002fapp/x"]`
	out, rep, err := newMapper(t, "/srv/app", "/srv/app").Input(jsontext.Value(doc), guess)
	if err != nil || string(out) != doc || len(rep.Mapped) != 1 {
		t.Errorf("Input = %s, %+v, %v", out, rep, err)
	}
}

// The report has RFC 6901 pointers with the given prefix (PM-09).
func TestPointers(t *testing.T) {
	t.Parallel()
	const doc = `{"a/b":{"m~n":[0,["/srv/app/1"]]},"\u0063\"":"/srv/app/2","":"/etc/x","é":["/srv/app/3"]}`
	opts := guess
	opts.Pointer = "/input"
	_, rep := input(t, doc, opts)
	var got []string
	for _, m := range rep.Mapped {
		got = append(got, m.Pointer+" "+m.From+" "+m.To)
	}
	want := []string{
		"/input/a~1b/m~0n/1/0 /srv/app/1 /workspace/1", `/input/c" /srv/app/2 /workspace/2`, "/input/é/0 /srv/app/3 /workspace/3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mapped = %q, want %q", got, want)
	}
	if len(rep.Unmapped) != 1 || rep.Unmapped[0].Pointer != "/input/" ||
		rep.Unmapped[0].Path != "/etc/x" {
		t.Errorf("unmapped = %+v", rep.Unmapped)
	}
}

// nested returns a document with n levels below the top.
func nested(n int, open, shut, inner string) string {
	return strings.Repeat(open, n+1) + inner + strings.Repeat(shut, n+1)
}

// 64 levels below the top are mapped. 65 are refused in an input, and unchanged with an error in an
// output (PM-08).
func TestDepth(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	marks := compile(t, `{"$ref":"#/$defs/n","$defs":{"n":{"format":"path","items":{"$ref":"#"},"additionalProperties":{"$ref":"#"}}}}`)
	for _, last := range []string{
		nested(64, "[", "]", `"/srv/app"`),
		nested(64, `{"a":`, "}", `"/srv/app"`),
		"[" + nested(31, `[{"b":`, "}]", `"/srv/app"`) + "]",
	} {
		for _, opts := range []pathmapper.Options{{}, {Marks: marks, Pointer: "/input"}} {
			out, rep, err := m.Input(jsontext.Value(last), opts)
			if err != nil || len(rep.Mapped) != 1 || !strings.Contains(string(out), "/workspace") {
				t.Errorf("64 below the top: %v, %+v", err, rep)
			}
			checkTooDeep(t, m, "["+last+"]", opts)
			checkTooDeep(t, m, `{"a":`+last+"}", opts)
		}
	}
}

func checkTooDeep(t *testing.T, m *pathmapper.Mapper, doc string, opts pathmapper.Options) {
	t.Helper()
	out, _, err := m.Input(jsontext.Value(doc), opts)
	if out != nil || dray.CodeOf(err) != dray.CodePathTooDeep || dray.AsError(err).Hint == "" {
		t.Errorf("too deep an input: %v, want path_too_deep", err)
	}
	out, rep := m.Output(jsontext.Value(doc), opts)
	if string(out) != doc || len(rep.Mapped) > 0 || len(rep.Errors) != 1 ||
		rep.Errors[0].Pointer != opts.Pointer {
		t.Errorf("too deep an output: %+v, want it raw with one error", rep)
	}
}

// Too deep nesting is reported also beside a path, with thousands of levels, and before a syntax
// error (PM-08).
func TestVeryDeep(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	for _, doc := range []string{
		`["/workspace/x",` + nested(64, "[", "]", "") + `]`,
		nested(20_000, "[", "]", ""),
		nested(20_000, `{"a":`, "}", "1"),
		strings.Repeat("[", 1<<20),
	} {
		checkTooDeep(t, m, doc, pathmapper.Options{})
	}
}

func TestNotJSON(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	for _, doc := range []string{" ", "{", `["/workspace"`, `["/workspace"] 1`, `{"a" "b"}`, `[1,]`, `01`, "\"a\nb\"", `tru`} {
		opts := pathmapper.Options{Pointer: "/output"}
		if _, _, err := m.Input(jsontext.Value(doc), opts); dray.CodeOf(err) != dray.CodeInvalidInput {
			t.Errorf("Input(%q): %v, want invalid_input", doc, err)
		}
		out, rep := m.Output(jsontext.Value(doc), opts)
		if string(out) != doc || len(rep.Errors) != 1 || rep.Errors[0].Pointer != "/output" ||
			strings.Contains(rep.Errors[0].Message, "%!") {
			t.Errorf("Output(%q) = %s, %+v; want it raw with one error", doc, out, rep)
		}
	}
}

// Invalid paths refuse a whole input, each with its pointer. In an output only they stay unchanged
// (PM-05).
func TestInvalidPathsInDocuments(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	marks := compile(t, `{"items":{"x-path":true}}`)
	for _, opts := range []pathmapper.Options{{Pointer: "/p"}, {Pointer: "/p", Marks: marks}} {
		const in = `["/srv/app/ok","/srv/app/../etc","/srv/app/a\u0000b"]`
		out, rep, err := m.Input(jsontext.Value(in), opts)
		e := dray.AsError(err)
		if out != nil || e == nil || e.Code != dray.CodePathInvalid || e.Hint == "" {
			t.Fatalf("Input = %s, %v; want path_invalid with a hint", out, err)
		}
		checkPointers(t, e.Details, "/p/1", "/p/2")
		checkPointers(t, rep.Errors, "/p/1", "/p/2")

		out, rep = m.Output(jsontext.Value(strings.ReplaceAll(in, "/srv/app", "/workspace")), opts)
		if want := `["/srv/app/ok","/workspace/../etc","/workspace/a\u0000b"]`; string(out) != want {
			t.Errorf("Output = %s, want %s", out, want)
		}
		checkPointers(t, rep.Errors, "/p/1", "/p/2")
		if len(rep.Mapped) != 1 {
			t.Errorf("mapped = %+v", rep.Mapped)
		}
	}
}

func checkPointers(t *testing.T, details []dray.Detail, want ...string) {
	t.Helper()
	var got []string
	for _, d := range details {
		got = append(got, d.Pointer)
	}
	if !slices.Equal(got, want) {
		t.Errorf("errors at %q, want %q", got, want)
	}
}

// The end of a path is preserved; only a root gets no trailing slash (PM-02).
func TestTrailingSlashes(t *testing.T) {
	t.Parallel()
	const doc = `["/srv/app//a/","/srv/app/a/.","/srv/app/./a//./","/srv/app/","/srv/app/.","/srv/app/a."]`
	const want = `["/workspace/a/","/workspace/a/.","/workspace/a/","/workspace","/workspace/.","/workspace/a."]`
	if out, _ := input(t, doc, guess); out != want {
		t.Errorf("Input = %s, want %s", out, want)
	}
}

// Marks decide unless nothing is marked or the call has another mode (PM-09).
func TestModes(t *testing.T) {
	t.Parallel()
	const doc = `{"path":"/srv/app/a","text":"/srv/app/b"}`
	marks, none := compile(t, `{"properties":{"path":{"x-path":true}}}`), compile(t, `{"properties":{"path":{"type":"string"}}}`)
	for _, c := range []struct {
		mode  dray.MappingMode
		marks *pathmapper.Marks
		want  string
	}{
		{dray.MapDefault, nil, `{"path":"/workspace/a","text":"/workspace/b"}`},
		{dray.MapDefault, none, `{"path":"/workspace/a","text":"/workspace/b"}`},
		{dray.MapDefault, marks, `{"path":"/workspace/a","text":"/srv/app/b"}`},
		{dray.MapSchema, marks, `{"path":"/workspace/a","text":"/srv/app/b"}`},
		{dray.MapSchema, none, doc},
		{dray.MapSchema, nil, doc},
		{dray.MapHeuristic, marks, `{"path":"/workspace/a","text":"/workspace/b"}`},
		{dray.MapNone, marks, doc},
	} {
		if out, _ := input(t, doc, pathmapper.Options{Mode: c.mode, Marks: c.marks}); out != c.want {
			t.Errorf("mode %q, marks %v: %s, want %s", c.mode, c.marks.Any(), out, c.want)
		}
	}
	m := newMapper(t, "/srv/app", "/workspace")
	if _, _, err := m.Input(jsontext.Value(doc),
		pathmapper.Options{Mode: "magic"}); dray.CodeOf(err) != dray.CodeInvalidRequest {
		t.Errorf("unknown mode: %v, want invalid_request", err)
	}
}

// The report is bounded: further paths are mapped and counted.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	paths := `["/workspace/x"` + strings.Repeat(`,"/workspace/x"`, 19_999) + `]`
	for _, doc := range []string{paths, `{"` + strings.Repeat("k", 1<<19) + `":` + paths + `}`} {
		out, rep := m.Output(jsontext.Value(doc), pathmapper.Options{Pointer: "/output"})
		if n := strings.Count(string(out), "/srv/app/x"); n != 20_000 {
			t.Errorf("%d paths are rewritten, want all", n)
		}
		text, _ := json.Marshal(rep)
		if len(rep.Mapped) > 10_000 || len(text) > 4<<20 {
			t.Errorf("the report has %d entries, %d bytes", len(rep.Mapped), len(text))
		}
		if len(rep.Errors) != 1 || rep.Errors[0].Pointer != "/output" ||
			!strings.Contains(rep.Errors[0].Message, "more paths") {
			t.Errorf("errors = %+v, want a count of the rest", rep.Errors)
		}
	}
}

// An invalid path after many others, or under long keys, is reported.
func TestInvalidPathAfterManyOthers(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/app", "/workspace")
	for doc, pointer := range map[string]string{
		`["/srv/app/../` + strings.Repeat("x", 2<<20) + `"]`:           "/0",
		`[` + strings.Repeat(`"/srv/app",`, 20_000) + `"/srv/app/.."]`: "/20000",
		`{"` + strings.Repeat("k", 2<<20) + `":"/srv/app/.."}`:         "",
		`[` + strings.Repeat(`"/srv/app/..",`, 20_000) + `"/srv/app"]`: "/0",
	} {
		_, _, err := m.Input(jsontext.Value(doc), guess)
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodePathInvalid || e.Details[0].Pointer != pointer ||
			len(e.Details) > 10_000 {
			t.Errorf("%.40s...: %.200v, want path_invalid at %q", doc, err, pointer)
		}
	}
}
