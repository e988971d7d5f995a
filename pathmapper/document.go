package pathmapper

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// maxDepth is how many containers may stand inside one another below the top of a document.
const maxDepth = 64

// Options say how the paths of one document are found. The zero Options guess and do not believe in
// white space.
type Options struct {
	// Mode is the call's or tool's choice; MapDefault is MapSchema if Marks mark anything, else
	// MapHeuristic.
	Mode dray.MappingMode
	// Marks are those of the tool's input or output schema; nil marks nothing.
	Marks *Marks
	// HostExists says whether the host has something at an absolute host path. It is asked only where
	// the heuristic meets a string with white space whose host path lies under a root; nil means that
	// nothing exists.
	HostExists func(hostPath string) bool
	// CheckHostPath says why Output must not hand on the name that a path has on the host, where name
	// is that name and root the host root of its mapping: the path stays raw then, and the error is
	// listed. Nil accepts all.
	CheckHostPath func(root, name string) error
	// Pointer stands before each JSON pointer of the report, for instance "/input".
	Pointer string
}

// Input maps the paths of a tool's input to the container. An error refuses the input as a whole,
// with a detail for each bad path: path_invalid, path_too_deep for more than 64 containers below
// the top, invalid_input for what is no JSON, invalid_request for an unknown mode.
//
// Raw is never changed; where nothing is rewritten, Mode is MapNone, or raw is empty, the result is
// raw itself. Duplicate keys and strings that are not Unicode are the decoder's matter and are
// copied as they are.
func (m *Mapper) Input(raw jsontext.Value, opts Options) (jsontext.Value, dray.MappingReport,
	error,
) {
	out, rep, err := m.mapDocument(ToContainer, raw, opts)
	if err == nil {
		err = rep.faults.asError(dray.CodePathInvalid)
	}
	if err != nil {
		return nil, rep.result(opts.Pointer), err
	}
	return out, rep.result(opts.Pointer), nil
}

// Output maps the paths of a tool's structured output to the host. A path that Input would refuse
// stays raw and is listed in Errors; for an error of the whole document, as Input has them, the
// result is raw itself and the error the only entry.
func (m *Mapper) Output(raw jsontext.Value, opts Options) (jsontext.Value, dray.MappingReport) {
	out, rep, err := m.mapDocument(ToHost, raw, opts)
	if err == nil {
		return out, rep.result(opts.Pointer)
	}
	rep = &report{}
	e := dray.AsError(err)
	if len(e.Details) == 0 {
		e.Details = []dray.Detail{{Pointer: opts.Pointer, Message: e.Message}}
	}
	rep.faults.details = e.Details
	return raw, rep.result(opts.Pointer)
}

func (m *Mapper) mapDocument(dir Direction, raw jsontext.Value, opts Options) (jsontext.Value,
	*report, error,
) {
	w := &documentWalker{mapper: m, dir: dir, opts: opts, src: raw}
	marks, err := opts.marks()
	switch {
	case err != nil:
		return nil, &w.report, err
	case opts.Mode == dray.MapNone, len(raw) == 0:
		return raw, &w.report, nil
	}
	out, ok := w.run(marks)
	if !ok {
		return nil, &report{}, syntaxError(raw, opts.Pointer)
	}
	return out, &w.report, nil
}

// marks gives the marks to go by; nil stands for the heuristic.
func (o Options) marks() (*Marks, error) {
	switch o.Mode {
	case dray.MapHeuristic, dray.MapNone:
		return nil, nil
	case dray.MapSchema:
		if o.Marks == nil {
			return &Marks{}, nil
		}
		return o.Marks, nil
	case dray.MapDefault:
		if o.Marks.Any() {
			return o.Marks, nil
		}
		return nil, nil
	}
	return nil, dray.Errorf(dray.CodeInvalidRequest, "mapping mode %s is unknown",
		quote(string(o.Mode))).
		WithHint("use %s, %s or %s", dray.MapSchema, dray.MapHeuristic, dray.MapNone)
}

// syntaxError says why the walk could not go through a document: it is no JSON, with the place, or
// it is too deep.
func syntaxError(raw jsontext.Value, prefix string) error {
	// What the walk copies as it stands, the decoder may accept or not: repeated keys, and strings
	// that are not UTF-8.
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	_, err := d.ReadValue()
	if err == nil {
		_, err = d.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return tooDeep(prefix) // for it is JSON
		case err == nil:
			err = errors.New("something follows it")
		}
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && strings.Count(string(syntax.JSONPointer), "/") > maxDepth {
		return tooDeep(prefix)
	}
	return dray.Errorf(dray.CodeInvalidInput, "read the JSON value: %w", err).
		WithHint("send one JSON value")
}

// tooDeep points at the document, since the place itself has a pointer of 65 steps.
func tooDeep(prefix string) error {
	err := dray.Errorf(dray.CodePathTooDeep,
		"more than %d arrays and objects stand inside one another", maxDepth).
		WithHint("nest the value less deeply, or set the mapping to none if it holds no paths")
	err.Details = []dray.Detail{{Pointer: prefix, Message: err.Message}}
	return err
}

// documentWalker goes once through a document: it checks that it is JSON, looks at its strings, and
// copies what it does not rewrite in spans as long as they come.
type documentWalker struct {
	mapper *Mapper
	dir    Direction
	opts   Options
	report report

	src jsontext.Value
	pos int
	// out holds src up to copied with its paths rewritten.
	out    []byte
	copied int
	// steps lead from the top to the current value.
	steps []step
	// heuristic is the heuristic; without it the marks of the current value say what is a path. Those
	// of all values on the way to it share one stack.
	heuristic bool
	marks     []*schema
}

// step is one part of a JSON pointer: a key as it stands in the document, quoted, or in an array
// (key is nil) an index.
type step struct {
	key   []byte
	index int
}

// run gives the document with its paths mapped, or false for one that is no JSON or nested too
// deep.
func (w *documentWalker) run(marks *Marks) (jsontext.Value, bool) {
	w.heuristic = marks == nil
	if !w.heuristic {
		w.marks = append(w.marks, marks.top...)
	}
	if w.skipSpace(); !w.value(w.marks) {
		return nil, false
	}
	if w.skipSpace(); w.pos < len(w.src) {
		return nil, false
	}
	if w.copied == 0 {
		return w.src, true
	}
	return append(w.out, w.src[w.copied:]...), true
}

// skipSpace goes past white space.
func (w *documentWalker) skipSpace() {
	for w.pos < len(w.src) && w.src[w.pos] <= ' ' && isBlank(w.src[w.pos]) {
		w.pos++
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skip goes past white space and a character, if that is what follows.
func (w *documentWalker) skip(c byte) bool {
	w.skipSpace()
	if w.pos == len(w.src) || w.src[w.pos] != c {
		return false
	}
	w.pos++
	return true
}

// value goes past a value; false means that there is none, or that it is nested too deep.
func (w *documentWalker) value(marks []*schema) bool {
	if w.pos == len(w.src) {
		return false
	}
	switch w.src[w.pos] {
	case '{':
		return w.object(marks)
	case '[':
		return w.array(marks)
	case '"':
		return w.str(marks)
	}
	end := scalarEnd(w.src, w.pos)
	w.pos = end
	return end > 0
}

func (w *documentWalker) object(marks []*schema) bool {
	at, ok := w.push()
	if !ok || w.skip('}') {
		return w.pop(at, ok)
	}
	base := len(w.marks)
	for {
		w.skipSpace()
		plain, ok := w.key(at)
		if !ok {
			return false
		}
		if len(marks) > 0 {
			w.marks = member(w.marks, marks, w.steps[at].key, plain)
		}
		if w.skipSpace(); !w.value(w.marks[base:]) {
			return false
		}
		w.marks = w.marks[:base]
		if !w.skip(',') {
			return w.pop(at, w.skip('}'))
		}
	}
}

// key goes past a key and its colon; plain says that it needs no decoding.
func (w *documentWalker) key(at int) (plain, ok bool) {
	if w.pos == len(w.src) || w.src[w.pos] != '"' {
		return false, false
	}
	end, plain := stringEnd(w.src, w.pos+1)
	if end < 0 {
		return false, false
	}
	w.steps[at].key = w.src[w.pos : end+1]
	w.pos = end + 1
	return plain, w.skip(':')
}

func (w *documentWalker) array(marks []*schema) bool {
	at, ok := w.push()
	if !ok || w.skip(']') {
		return w.pop(at, ok)
	}
	for base := len(w.marks); ; w.steps[at].index++ {
		if len(marks) > 0 {
			w.marks = element(w.marks, marks, w.steps[at].index)
		}
		if w.skipSpace(); !w.value(w.marks[base:]) {
			return false
		}
		w.marks = w.marks[:base]
		if !w.skip(',') {
			return w.pop(at, w.skip(']'))
		}
	}
}

// push goes past the start bracket and gives the place of the container's step. Not ok is a
// container that stands too deep.
func (w *documentWalker) push() (at int, ok bool) {
	at = len(w.steps)
	if at > maxDepth {
		return at, false
	}
	w.pos++
	w.steps = append(w.steps, step{})
	return at, true
}

// pop takes the container's step away again.
func (w *documentWalker) pop(at int, ok bool) bool {
	w.steps = w.steps[:at]
	return ok
}

func (w *documentWalker) str(marks []*schema) bool {
	start := w.pos
	end, plain := stringEnd(w.src, start+1)
	if end < 0 {
		return false
	}
	w.pos = end + 1
	from, to := w.rewrite(w.src[start:w.pos], plain, marks)
	if from == to {
		return true
	}
	if w.out == nil {
		w.out = slices.Grow(w.out, len(w.src)+len(w.src)/16)
	}
	w.out = append(w.out, w.src[w.copied:start]...)
	w.out = appendQuoted(w.out, to)
	w.copied = w.pos
	return true
}

// appendQuoted writes a string. Most need no escape, and no other look.
func appendQuoted(out []byte, text string) []byte {
	start := len(out)
	out = append(append(append(out, '"'), text...), '"')
	if end, plain := stringEnd(out, start+1); !plain || end != len(out)-1 {
		out, _ = jsontext.AppendQuote(out[:start], text)
	}
	return out
}

// rewrite decodes a string only if it may be a path.
func (w *documentWalker) rewrite(quoted []byte, plain bool, marks []*schema) (from, to string) {
	if w.heuristic {
		if !startsWithSlash(quoted) {
			return "", ""
		}
		from, err := unquote(quoted, plain)
		return from, w.guessPath(from, err)
	}
	kinds := kindsOf(marks)
	if kinds == 0 {
		return "", ""
	}
	from, err := unquote(quoted, plain)
	return from, w.mapMarked(kinds, from, err)
}

// translate maps one path, which an output's Check may refuse.
func (w *documentWalker) translate(p string) (PathResult, error) {
	t, err := w.mapper.translate(w.dir, p)
	if err == nil && t.Mapped && w.dir == ToHost && w.opts.CheckHostPath != nil {
		err = w.opts.CheckHostPath(t.root, t.Path)
	}
	return t, err
}

// startsWithSlash looks through the two ways to escape a slash.
func startsWithSlash(quoted []byte) bool {
	switch s := quoted[1:]; s[0] {
	case '/':
		return true
	case '\\':
		return s[1] == '/' || s[1] == 'u' && bytes.EqualFold(s[2:6], []byte("002f"))
	}
	return false
}

// unquote decodes a string. The error says that it is not Unicode; the text has replacement
// characters then.
func unquote(quoted []byte, plain bool) (string, error) {
	if plain {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	return string(text), err
}

// pointer gives the RFC 6901 pointer of the current value.
func (w *documentWalker) pointer() string {
	b := append(make([]byte, 0, 64), w.opts.Pointer...)
	for _, s := range w.steps {
		b = append(b, '/')
		if s.key == nil {
			b = strconv.AppendInt(b, int64(s.index), 10)
			continue
		}
		key, _ := jsontext.AppendUnquote(nil, s.key)
		for _, c := range key {
			switch c {
			case '~':
				b = append(b, "~0"...)
			case '/':
				b = append(b, "~1"...)
			default:
				b = append(b, c)
			}
		}
	}
	return string(b)
}
