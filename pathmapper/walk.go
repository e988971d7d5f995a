package pathmapper

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// walk goes once through a document that is known to be valid JSON. Since the grammar holds, it only looks for the brackets, the
// strings and the keys; what it does not rewrite it copies in spans as long as they come.
type walk struct {
	mapper *Mapper
	dir    Direction
	exists func(string) bool
	prefix string
	report report

	src jsontext.Value
	pos int
	// out holds src up to copied with its paths rewritten.
	out    []byte
	copied int
	// steps lead from the top to the current value.
	steps []step
	// guess is the heuristic; without it the marks of the current value say what is a path. Those of all values on the way to it
	// share one stack.
	guess bool
	marks []*schema
}

// step is one part of a JSON pointer: a key as it stands in the document, quoted, or in an array (key is nil) an index.
type step struct {
	key   []byte
	index int
}

func (w *walk) run(marks *Marks) (jsontext.Value, error) {
	w.guess = marks == nil
	if !w.guess {
		w.marks = append(w.marks, marks.top...)
	}
	w.next(0)
	if err := w.value(w.marks); err != nil {
		return nil, err
	}
	if w.copied == 0 {
		return w.src, nil
	}
	return append(w.out, w.src[w.copied:]...), nil
}

// next goes to the next token, past white space, commas and colons. It returns false, and goes past it, if that is the end bracket.
func (w *walk) next(end byte) bool {
	for {
		switch c := w.src[w.pos]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			w.pos++
		case end:
			w.pos++
			return false
		default:
			return true
		}
	}
}

func (w *walk) value(marks []*schema) error {
	switch w.src[w.pos] {
	case '{':
		return w.object(marks)
	case '[':
		return w.array(marks)
	case '"':
		w.str(marks)
	default:
		for w.pos < len(w.src) && !endsScalar(w.src[w.pos]) {
			w.pos++
		}
	}
	return nil
}

func endsScalar(c byte) bool {
	return c == ',' || c == ']' || c == '}' || c <= ' '
}

func (w *walk) object(marks []*schema) error {
	at, err := w.enter()
	if err != nil {
		return err
	}
	for base := len(w.marks); w.next('}'); w.marks = w.marks[:base] {
		key := w.quoted()
		w.steps[at].key = key
		if len(marks) > 0 {
			w.marks = member(w.marks, marks, key)
		}
		w.next(0)
		if err := w.value(w.marks[base:]); err != nil {
			return err
		}
	}
	w.steps = w.steps[:at]
	return nil
}

func (w *walk) array(marks []*schema) error {
	at, err := w.enter()
	if err != nil {
		return err
	}
	for base := len(w.marks); w.next(']'); w.marks = w.marks[:base] {
		if len(marks) > 0 {
			w.marks = element(w.marks, marks, w.steps[at].index)
		}
		if err := w.value(w.marks[base:]); err != nil {
			return err
		}
		w.steps[at].index++
	}
	w.steps = w.steps[:at]
	return nil
}

// enter goes past the start bracket and gives the place of the container's step.
func (w *walk) enter() (at int, err error) {
	at = len(w.steps)
	if at > maxDepth {
		return 0, tooDeep(w.prefix)
	}
	w.pos++
	w.steps = append(w.steps, step{})
	return at, nil
}

// quoted goes past a string and gives it as it stands in the document.
func (w *walk) quoted() []byte {
	start := w.pos
	for i := start + 1; ; {
		i += bytes.IndexByte(w.src[i:], '"')
		if !escaped(w.src[start+1 : i]) {
			w.pos = i + 1
			return w.src[start:w.pos]
		}
		i++
	}
}

// escaped says whether the quote after s is part of the string: an odd number of backslashes stands before it.
func escaped(s []byte) bool {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

func (w *walk) str(marks []*schema) {
	start := w.pos
	quoted := w.quoted()
	from, to := w.rewrite(quoted, marks)
	if from == to {
		return
	}
	if w.out == nil {
		w.out = slices.Grow(w.out, len(w.src)+len(w.src)/16)
	}
	w.out = append(w.out, w.src[w.copied:start]...)
	w.out, _ = jsontext.AppendQuote(w.out, to)
	w.copied = w.pos
}

// rewrite decodes a string only if it may be a path.
func (w *walk) rewrite(quoted []byte, marks []*schema) (from, to string) {
	if w.guess {
		if !startsWithSlash(quoted) {
			return "", ""
		}
		from, err := unquote(quoted)
		return from, w.guessed(from, err)
	}
	kinds := kindsOf(marks)
	if kinds == 0 {
		return "", ""
	}
	from, err := unquote(quoted)
	return from, w.marked(kinds, from, err)
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

// unquote decodes a string. The error says that it is not Unicode; the text has replacement characters then.
func unquote(quoted []byte) (string, error) {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), nil
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	return string(text), err
}

// pointer gives the RFC 6901 pointer of the current value.
func (w *walk) pointer() string {
	b := append(make([]byte, 0, 64), w.prefix...)
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
