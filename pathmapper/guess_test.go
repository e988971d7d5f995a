package pathmapper_test

import (
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// PM-09: the heuristic takes whole strings that are absolute, under a root, without control characters, not "//", without "?", "#" or
// "://", and with white space only if that very path exists.
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
		if len(rep.Mapped) != 1 || rep.Mapped[0].From != c.give || rep.Mapped[0].To != c.want || len(rep.Unmapped) > 0 {
			t.Errorf("%q: report %+v", c.give, rep)
		}
	}
}

// PM-06, PM-09: what only looks like a path is declined, byte for byte, and listed with a reason.
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
		if len(rep.Mapped) > 0 || len(rep.Unmapped) != 1 || rep.Unmapped[0].Reason == "" || rep.Unmapped[0].Pointer != "/0" {
			t.Errorf("%s: report %+v, want one decline with its reason", doc, rep)
		}
	}
}

// What does not begin with a slash is no path, and not worth a word.
func TestHeuristicIgnores(t *testing.T) {
	t.Parallel()
	for _, give := range []string{
		`""`, `"a"`, `" /srv/app"`, `"-I/srv/app"`, `"file:///srv/app"`, `"see /srv/app/x"`, `"./srv/app"`, `"../x"`, `"\\/srv/app"`, `"\u0041"`,
		`"C:\\srv\\app"`, `1`, `null`,
	} {
		doc := "[" + give + "]"
		if out, rep := input(t, doc, guess); out != doc || len(rep.Mapped)+len(rep.Unmapped)+len(rep.Errors) > 0 {
			t.Errorf("%s became %s, %+v", doc, out, rep)
		}
	}
}

// A slash may be escaped in two ways.
func TestHeuristicEscapes(t *testing.T) {
	t.Parallel()
	for _, give := range []string{`"\/srv/app/x"`, `"\/srv\/app\/x"`, `"\u002fsrv\u002Fapp/x"`, `"\u002Fsrv/app/\u0078"`} {
		if out, _ := input(t, give, guess); out != `"/workspace/x"` {
			t.Errorf("%s became %s", give, out)
		}
	}
}

// PM-05: a path into a root with "..", or out of one, is refused and not guessed away; the mapper does not resolve it.
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

// PM-09: whether a path with white space exists is asked of the host, in both directions, and only where it matters.
func TestHeuristicAsksTheHost(t *testing.T) {
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

// A file name that is not Unicode cannot be written as JSON text, so it stays.
func TestNotUnicode(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{`["/srv/app/\udcff"]`, "[\"/srv/app/\xff\"]", `["/srv/app/\ud800\u0041"]`} {
		if out, rep := input(t, doc, guess); out != doc || len(rep.Unmapped) != 1 {
			t.Errorf("%q became %q, %+v", doc, out, rep)
		}
		marked := pathmapper.Options{Marks: compile(t, `{"items":{"format":"path"}}`)}
		if _, _, err := newMapper(t, "/srv/app", "/workspace").Input(jsontext.Value(doc), marked); dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("%q marked: %v, want path_invalid", doc, err)
		}
	}
}

// PM-13: a decline says where normalisation would have made the difference.
func TestHeuristicNormalisation(t *testing.T) {
	t.Parallel()
	m := newMapper(t, "/srv/caf\u00e9", "/workspace")
	_, rep, err := m.Input(jsontext.Value("[\"/srv/cafe\u0301/x\"]"), guess)
	if err != nil || len(rep.Unmapped) != 1 || !containsAll(rep.Unmapped[0].Reason, "NFC", "caf\u00e9") {
		t.Errorf("report = %+v, %v", rep, err)
	}
}
