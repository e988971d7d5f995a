package pathmapper_test

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"testing"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// FuzzRoundTrip checks that a path mapped to the container and back is the cleaned path, with any
// mappings whose container roots differ, and that an unmapped path is unchanged (PM-01, PM-02,
// PM-04, PM-06).
func FuzzRoundTrip(f *testing.F) {
	f.Add("/srv/app", "/workspace", "/srv", "/mnt/srv", "/srv/app/a//b/./c/")
	f.Add("/srv/app", "/workspace", "/cache", "/workspace/cache", "/srv/app/cache/x")
	f.Add("/a", "/x", "/a/b", "/x/c", "/a/c/d")
	f.Add("/a", "/a", "/b", "/a/b", "/a/b/c")
	f.Add("/srv/app", "/workspace", "/srv/app", "/copy", "/srv/apple")
	f.Fuzz(func(t *testing.T, host1, container1, host2, container2, p string) {
		m, err := pathmapper.New(mappings(host1, container1, host2, container2))
		if err != nil || path.Clean(container1) == path.Clean(container2) {
			t.Skip("these mappings are refused, or two of them lead to one folder")
		}
		checkRoundTrip(t, m.ToContainer, m.ToHost, p)
		h, err := m.ToHost(p)
		if err == nil && h.Mapped {
			checkRoundTrip(t, m.ToContainer, m.ToHost, h.Path)
		}
	})
}

func checkRoundTrip(t *testing.T, there, back func(string) (pathmapper.PathResult, error),
	p string,
) {
	t.Helper()
	c, err := there(p)
	if bad := hasBadSegment(p); err != nil != bad {
		t.Fatalf("%q: %v", p, err)
	}
	if err != nil {
		return
	}
	if !c.Mapped {
		if c.Path != p || c.Reason == "" {
			t.Fatalf("unmapped %q became %+v", p, c)
		}
		return
	}
	if c.Path != path.Clean(c.Path) {
		t.Fatalf("%q became %q, which is not clean", p, c.Path)
	}
	h, err := back(c.Path)
	if err != nil || !h.Mapped || h.Path != path.Clean(p) {
		t.Fatalf("%q became %q and then %+v, %v", p, c.Path, h, err)
	}
}

// hasBadSegment is another implementation of the rules of PM-05 and PM-15.
func hasBadSegment(p string) bool {
	for segment := range strings.SplitSeq(p, "/") {
		if segment == ".." || strings.Contains(segment, "\x00") {
			return true
		}
	}
	if len(p) > 1 && p[1] == ':' && unicode.IsLetter(rune(p[0])) && p[0] < 0x80 {
		return len(p) == 2 || p[2] == '/' || p[2] == '\\'
	}
	return strings.HasPrefix(p, `\\`)
}

// FuzzDocument checks that the result is JSON of the same shape: keys, numbers, white space and
// every string that is not listed as mapped are unchanged, and mapped strings are paths by the
// rules (PM-06, PM-07, PM-08, PM-09).
func FuzzDocument(f *testing.F) {
	for _, doc := range []string{
		`{"a":["/srv/app/x", 1.0, {"/srv/app":"\/srv/app//y/"}], "b": "/etc"}`,
		` [ "/srv/app/a b", "/srv/app/it is", "/srv/app/a\nb", "\\", "\\\\\"/srv/app", "\u002fsrv/app" ] `,
		`["/srv/app:/srv/app/b::c", "file:///srv/app/%61", "/srv/apple", "/srv/app/\udcff"]`,
		`{"a":{},"b":[],"a":[[[]]],"":{"":"/srv/app/."}}`, `"/srv/app"`, `0`, `[[[[`, `{"a":"/srv/app/.."}`,
		`[-0, 1e5, 0.5E-3, 01, 1., .5, -, 1e, true, nul]`, "[\"\\u00e9\\ud800\\x\", \"a\x01b\", \"\xff12345678\\\\\"]", `{"a" :1 , "b":[ ] } x`, `{"a":1,}`,
		"{\"\xe9\":\"/srv/app/\"}", strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat(`{"a":`, 66) + "1" + strings.Repeat("}", 66),
	} {
		for mode := range byte(3) {
			f.Add([]byte(doc), mode)
		}
	}
	m := newMapper(f, "/srv/app", "/workspace", "/data/ü", "/data/ü")
	options := []pathmapper.Options{
		{Mode: dray.MapHeuristic, HostExists: func(p string) bool { return len(p)%2 == 0 }},
		{Marks: compile(f, `{"$ref":"#/$defs/all","$defs":{"all":{"x-path":true,"format":"file-uri","items":{"$ref":"#"},"additionalProperties":{"$ref":"#"}}}}`)},
		{Marks: compile(f, `{"properties":{"a":{"items":{"format":"path-list"},"additionalProperties":{"$ref":"#"}}},"patternProperties":{"b|^$":{"$ref":"#"}}}`)},
	}
	f.Fuzz(func(t *testing.T, doc []byte, mode byte) {
		opts := options[int(mode)%len(options)]
		given := bytes.Clone(doc)
		out, rep, err := m.Input(doc, opts)
		if !bytes.Equal(doc, given) {
			t.Fatalf("Input changed what it was given: %q", doc)
		}
		checkGrammar(t, doc, err)
		if err != nil {
			checkRefused(t, out, err)
		} else {
			checkSameShape(t, doc, out, rep, opts.Mode == dray.MapHeuristic)
		}
		if err == nil && len(doc) > 0 && opts.Mode == dray.MapHeuristic {
			checkThereAndBack(t, m, doc, out, opts)
		}
		// An output is never refused; with the mapper turned round it is the same walk.
		if back, rep := m.Output(doc, opts); len(rep.Mapped) == 0 && !bytes.Equal(back, doc) {
			t.Fatalf("Output(%q) = %q, but lists no rewrite", doc, back)
		}
	})
}

func checkRefused(t *testing.T, out []byte, err error) {
	t.Helper()
	switch dray.CodeOf(err) {
	case dray.CodeInvalidInput, dray.CodePathInvalid, dray.CodePathTooDeep:
	default:
		t.Fatalf("code of %v", err)
	}
	if out != nil {
		t.Fatalf("refused, and yet %q", out)
	}
}

// checkGrammar compares what is accepted with another reader.
func checkGrammar(t *testing.T, doc []byte, err error) {
	t.Helper()
	valid := len(doc) == 0 || jsontext.Value(doc).
		IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	code := dray.CodeOf(err)
	switch {
	case !valid && code != dray.CodeInvalidInput && code != dray.CodePathTooDeep:
		t.Fatalf("%q is no JSON, and yet: %v", doc, err)
	case valid && code == dray.CodeInvalidInput:
		t.Fatalf("%q is JSON, and yet: %v", doc, err)
	case valid && len(doc) > 0 && (code == dray.CodePathTooDeep) != (depth(t, doc) > 64):
		t.Fatalf("%q is nested %d deep below its top: %v", doc, depth(t, doc), err)
	}
}

// depth returns the nesting of objects and arrays below the top.
func depth(t *testing.T, doc []byte) int {
	t.Helper()
	deepest := 0
	d := jsontext.NewDecoder(bytes.NewReader(doc), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := d.ReadToken(); err != nil {
			return deepest - 1
		}
		deepest = max(deepest, d.StackDepth())
	}
}

func checkSameShape(t *testing.T, doc, out []byte, rep dray.MappingReport, heuristic bool) {
	t.Helper()
	if len(doc) == 0 {
		return
	}
	before, after := tokens(t, doc), tokens(t, out)
	if len(before) != len(after) {
		t.Fatalf("%q became %q", doc, out)
	}
	changed := 0
	for i, b := range before {
		a := after[i]
		if b == a {
			continue
		}
		changed++
		if b.key || b.gap != a.gap || b.raw[0] != '"' || a.raw[0] != '"' {
			t.Fatalf("%q became %q: %+v and %+v", doc, out, b, a)
		}
		if heuristic {
			checkRewrite(t, b.raw, a.raw)
		}
	}
	if len(rep.Errors) == 0 && changed > len(rep.Mapped) {
		t.Fatalf("%q became %q: %d changes, report %+v", doc, out, changed, rep)
	}
}

// checkThereAndBack maps the result to the host again: clean paths and all other strings are as
// before. It ignores documents that already had container paths.
func checkThereAndBack(t *testing.T, m *pathmapper.Mapper, doc, out []byte,
	opts pathmapper.Options,
) {
	t.Helper()
	before := tokens(t, doc)
	for _, b := range before {
		if text, _ := jsontext.AppendUnquote(nil, b.raw); bytes.Contains(text, []byte("/workspace")) {
			return
		}
	}
	back, _ := m.Output(out, opts)
	for i, a := range tokens(t, back) {
		b := before[i]
		if a == b {
			continue
		}
		given, _ := jsontext.AppendUnquote(nil, b.raw)
		came, _ := jsontext.AppendUnquote(nil, a.raw)
		from, to := string(given), string(came)
		if path.Clean(to) != path.Clean(from) || path.Clean(from) == from && to != from {
			t.Fatalf("%q became %q and then %q", doc, out, back)
		}
	}
}

// checkRewrite is another implementation of the heuristic (PM-09).
func checkRewrite(t *testing.T, before, after string) {
	t.Helper()
	b, errB := jsontext.AppendUnquote(nil, before)
	a, errA := jsontext.AppendUnquote(nil, after)
	from, to := string(b), string(a)
	rest, ok := strings.CutPrefix(path.Clean(from), "/srv/app")
	if errA != nil || errB != nil || !ok || rest != "" && rest[0] != '/' ||
		path.Clean(to) != "/workspace"+rest {
		t.Fatalf("%s became %s", before, after)
	}
	if strings.HasPrefix(from, "//") || strings.ContainsAny(from, "?#\x00\n\x1b\u0085") ||
		strings.Contains(from, "://") || strings.Contains(from+"/", "/../") {
		t.Fatalf("%s is not a path by the heuristic, but became %s", before, after)
	}
	if strings.ContainsAny(from, " \u00a0\u3000") && len(path.Clean(from))%2 != 0 {
		t.Fatalf("%s does not exist, but became %s", before, after)
	}
}

// token is one token of a document, with the text before it.
type token struct {
	gap, raw string
	key      bool
}

// tokens reads a document with another reader.
func tokens(t *testing.T, doc []byte) []token {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(doc), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	var all []token
	for end := 0; ; {
		container, n := d.StackIndex(d.StackDepth())
		raw, err := next(d)
		if errors.Is(err, io.EOF) {
			return append(all, token{gap: string(doc[end:])})
		}
		if err != nil {
			t.Fatalf("read %q: %v", doc, err)
		}
		start := int(d.InputOffset()) - len(raw)
		all = append(all, token{gap: string(doc[end:start]), raw: raw, key: container == '{' && n%2 == 0})
		end = int(d.InputOffset())
	}
}

func next(d *jsontext.Decoder) (string, error) {
	switch d.PeekKind() {
	case '{', '}', '[', ']':
		tok, err := d.ReadToken()
		return tok.String(), err
	}
	v, err := d.ReadValue()
	return string(v), err
}
