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

// maxDepth is the maximum nesting of objects and arrays below the top of a document.
const maxDepth = 64

// Options configure how the paths of a document are found. The zero Options select the heuristic,
// without strings that contain white space.
type Options struct {
	// Mode is the mode of the call or tool. MapDefault is MapSchema if Marks mark anything, else
	// MapHeuristic.
	Mode dray.MappingMode
	// Marks are those of the tool's input or output schema; nil marks nothing.
	Marks *Marks
	// HostExists reports whether an absolute host path exists. The heuristic calls it only for a
	// string with white space whose host path is under a root. Nil means that nothing exists.
	HostExists func(hostPath string) bool
	// CheckHostPath checks the host paths of Output. A refused path stays unchanged, and the error is
	// listed.
	CheckHostPath CheckHostPath
	// Texts are names of members at the top of an input whose strings are texts, such as the arguments
	// of a program. Paths in them that are not mapped as whole strings are rewritten by the rules for
	// text, whatever the mode is.
	Texts []string
	// Pointer is the prefix of each JSON pointer of the report, for instance "/input".
	Pointer string
}

// Input maps the paths of a tool's input to the container. It fails with a detail for each invalid
// path: path_invalid, path_too_deep for a nesting of more than 64 below the top, invalid_input for
// invalid JSON, invalid_request for an unknown mode.
//
// Raw is never changed. The result is raw itself if no path is mapped, Mode is MapNone, or raw is
// empty. Duplicate keys and strings that are not Unicode are copied unchanged.
func (m *Mapper) Input(raw jsontext.Value, opts Options) (
	jsontext.Value, dray.MappingReport, error,
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

// TextPaths returns the paths that Input would rewrite in Texts, with their container paths.
func (m *Mapper) TextPaths(raw jsontext.Value, opts Options) []dray.MappedPath {
	w := &documentWalker{mapper: m, dir: ToContainer, opts: opts, src: raw, textOnly: true}
	if _, err := w.mapSource(); err != nil {
		return nil
	}
	return w.report.mapped
}

// Output maps the paths of a tool's structured output to the host. A path that Input would refuse
// stays unchanged and is listed in Errors. For an error of the whole document the result is raw
// itself and the error is the only entry.
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

func (m *Mapper) mapDocument(dir Direction, raw jsontext.Value, opts Options) (
	jsontext.Value, *report, error,
) {
	w := &documentWalker{mapper: m, dir: dir, opts: opts, src: raw}
	out, err := w.mapSource()
	return out, &w.report, err
}

// mapSource returns src with its paths mapped.
func (w *documentWalker) mapSource() (jsontext.Value, error) {
	marks, err := w.opts.marks()
	switch {
	case err != nil:
		return nil, err
	case w.opts.Mode == dray.MapNone && len(w.opts.Texts) == 0, len(w.src) == 0:
		return w.src, nil
	case w.opts.Mode == dray.MapNone:
		marks = &Marks{}
	}
	out, ok := w.run(marks)
	if !ok {
		w.report = report{}
		return nil, syntaxError(w.src, w.opts.Pointer)
	}
	return out, nil
}

// marks returns the effective marks, or nil for the heuristic.
func (o Options) marks() (*Marks, error) {
	switch o.Mode {
	case dray.MapHeuristic, dray.MapNone:
		return nil, nil
	case dray.MapDefault, dray.MapSchema:
		switch {
		case o.Marks.Any():
			return o.Marks, nil
		case o.Mode == dray.MapSchema:
			return &Marks{}, nil
		default:
			return nil, nil
		}
	}
	return nil, dray.Errorf(dray.CodeInvalidRequest, "mapping mode %s is unknown",
		quote(string(o.Mode))).
		WithHint("use %s, %s or %s", dray.MapSchema, dray.MapHeuristic, dray.MapNone)
}

// syntaxError returns why the walk failed: a syntax error with its position, or too deep nesting.
func syntaxError(raw jsontext.Value, prefix string) error {
	// The walk accepts duplicate keys and strings that are not UTF-8.
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	_, err := d.ReadValue()
	if err == nil {
		_, err = d.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return tooDeep(prefix) // the JSON is valid
		case err == nil:
			err = errors.New("there is more data after it")
		}
	}
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && strings.Count(string(syntax.JSONPointer), "/") > maxDepth {
		return tooDeep(prefix)
	}
	return dray.Errorf(dray.CodeInvalidInput, "read the JSON value: %w", err).
		WithHint("send one JSON value")
}

// tooDeep has the pointer of the document, because that of the value has 65 steps.
func tooDeep(prefix string) error {
	err := dray.Errorf(dray.CodePathTooDeep,
		"arrays and objects are nested more than %d levels deep", maxDepth).
		WithHint("nest the value less deeply, or set the mapping to none if it contains no paths")
	err.Details = []dray.Detail{{Pointer: prefix, Message: err.Message}}
	return err
}

// documentWalker validates a JSON document and maps its strings in one pass. It copies everything
// else in spans that are as long as possible.
type documentWalker struct {
	mapper *Mapper
	dir    Direction
	opts   Options
	report report

	src jsontext.Value
	pos int
	// out is src up to copied with its paths mapped.
	out    []byte
	copied int
	// steps are the JSON pointer of the current value.
	steps []step
	// heuristic selects the heuristic instead of marks. The marks of the current value and of its
	// ancestors share one stack.
	heuristic bool
	marks     []*schema
	// textOnly leaves everything but the paths in texts out of the report.
	textOnly bool
	// textRoots are set with the first text.
	textRoots *roots
}

// step is one part of a JSON pointer: a quoted key of the document, or an index if key is nil.
type step struct {
	key   []byte
	index int
}

// run returns the document with its paths mapped, or false if it is invalid or nested too deep.
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

func (w *documentWalker) skipSpace() {
	for w.pos < len(w.src) && w.src[w.pos] <= ' ' && isBlank(w.src[w.pos]) {
		w.pos++
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skip skips white space and c, and reports whether c was there.
func (w *documentWalker) skip(c byte) bool {
	w.skipSpace()
	if w.pos == len(w.src) || w.src[w.pos] != c {
		return false
	}
	w.pos++
	return true
}

// value reads a value. It returns false if there is none, or if it is nested too deep.
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

// key reads a key and its colon. plain reports whether the key needs no decoding.
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

// push reads the opening bracket and returns the index of the new step; ok is false if the nesting
// is too deep.
func (w *documentWalker) push() (at int, ok bool) {
	at = len(w.steps)
	if at > maxDepth {
		return at, false
	}
	w.pos++
	w.steps = append(w.steps, step{})
	return at, true
}

// pop removes the step of the object or array.
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
	from, to := w.rewriteString(w.src[start:w.pos], plain, marks)
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

// appendQuoted appends a JSON string. Most need no escape.
func appendQuoted(out []byte, text string) []byte {
	start := len(out)
	out = append(append(append(out, '"'), text...), '"')
	if end, plain := stringEnd(out, start+1); !plain || end != len(out)-1 {
		out, _ = jsontext.AppendQuote(out[:start], text)
	}
	return out
}

// rewrite returns a string and its replacement. It decodes the string only if it may be a path.
func (w *documentWalker) rewrite(quoted []byte, plain bool, marks []*schema) (from, to string) {
	if w.heuristic {
		if !startsWithSlash(quoted) {
			return "", ""
		}
		from, err := unquote(quoted, plain)
		return from, w.guessPath(from, err)
	}
	var k kinds
	for _, s := range marks {
		k |= s.kinds
	}
	if k == 0 {
		return "", ""
	}
	from, err := unquote(quoted, plain)
	return from, w.mapMarked(k, from, err)
}

// translate maps one path, which CheckHostPath of an output may refuse.
func (w *documentWalker) translate(p string) (PathResult, error) {
	t, err := w.mapper.translate(w.dir, p)
	if err == nil && w.dir == ToHost {
		err = w.opts.CheckHostPath.check(t)
	}
	return t, err
}

// startsWithSlash reports whether a quoted string begins with a slash, escaped or not.
func startsWithSlash(quoted []byte) bool {
	switch s := quoted[1:]; s[0] {
	case '/':
		return true
	case '\\':
		return s[1] == '/' || s[1] == 'u' && bytes.EqualFold(s[2:6], []byte("002f"))
	}
	return false
}

// unquote decodes a string. It returns an error, and replacement characters, if it is not Unicode.
func unquote(quoted []byte, plain bool) (string, error) {
	if plain {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	return string(text), err
}

// pointer returns the RFC 6901 pointer of the current value.
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
