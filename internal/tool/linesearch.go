package tool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"

	"github.com/dray-dev/dray/internal/lexical"
)

// Bounds of a line search: the length of a pattern in bytes, the number of its compiled
// instructions, and the number of bytes of a line that are searched.
const (
	maxPattern = 4000
	maxProgram = 5000
	maxLine    = 1 << 20
)

// Between two checks for cancellation the search reads at most checkInterval bytes of lines, or
// runesAtOnce characters of a longer line: a pattern may take microseconds for each.
const (
	checkInterval = 16 << 10
	runesAtOnce   = 256
)

// linePattern matches lines. The time is linear in the text for every pattern (RE2).
type linePattern struct {
	re *regexp.Regexp
	// literal occurs in every line that matches. It is empty if no such text is known.
	literal []byte
}

// newLinePattern compiles a pattern. The errors are phrases about the pattern, without a subject.
func newLinePattern(pattern string) (*linePattern, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("has more than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, syntaxErrorText(err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, syntaxErrorText(err)
	}
	if len(prog.Inst) > maxProgram {
		return nil, errors.New("too large: reduce its repetitions")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, syntaxErrorText(err)
	}
	return &linePattern{re, []byte(requiredLiteral(parsed))}, nil
}

// syntaxErrorText returns the error without the pattern, which the caller knows.
func syntaxErrorText(err error) error {
	if s, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("not a regular expression (RE2 syntax): %s: %q", s.Code,
			lexical.Truncate(s.Expr, 100))
	}
	return err
}

// requiredLiteral returns the longest literal that every match contains.
func requiredLiteral(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return requiredLiteral(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return requiredLiteral(re.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if s := requiredLiteral(sub); len(s) > len(longest) {
				longest = s
			}
		}
		return longest
	}
	return ""
}

// errStop is returned by lineSearch.found to end the search.
var errStop = errors.New("enough lines")

// line is a line that matches. The text is valid until the next line is found.
type line struct {
	number int64
	text   []byte
	from   int // offset of the first match in text
}

// lineSearch searches one stream after the other with one buffer.
type lineSearch struct {
	pattern *linePattern
	found   func(line) error
	// cancelled returns an error to end the search.
	cancelled func() error
	unchecked int // bytes since cancelled was called
	buf       *bufio.Reader
	// firstLongLine is the first line that was not searched completely, or zero.
	firstLongLine int64
}

// binaryCheck is how many bytes of a stream are checked for a NUL before any line is searched.
const binaryCheck = 64 << 10

// run searches a stream. A stream with a NUL is binary, and its search ends there.
func (s *lineSearch) run(r io.Reader) error {
	if s.buf == nil {
		s.buf = bufio.NewReaderSize(nil, maxLine)
	}
	s.buf.Reset(r)
	s.firstLongLine = 0
	if head, _ := s.buf.Peek(binaryCheck); bytes.IndexByte(head, 0) >= 0 {
		return nil // an error is returned again by the first read
	}
	for number := int64(1); ; number++ {
		text, err := s.buf.ReadSlice('\n')
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		if len(text) > 0 {
			if err := s.one(number, text); err != nil {
				return err
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) && s.firstLongLine == 0 {
			s.firstLongLine = number
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of the line
			text, err = s.buf.ReadSlice('\n')
			if bytes.IndexByte(text, 0) >= 0 {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var newline = []byte{'\n'}

// one searches one line. Its line ending, LF or CRLF, is not part of it.
func (s *lineSearch) one(number int64, text []byte) error {
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, newline), []byte{'\r'})
	at, err := s.match(text)
	if at == nil || err != nil {
		return err
	}
	return s.found(line{number, text, at[0]})
}

// match returns the first match in a line. It reads a long line by characters, so that the search
// can be cancelled within it.
func (s *lineSearch) match(text []byte) (at []int, err error) {
	if s.unchecked += len(text) + 1; s.unchecked > checkInterval {
		if err := s.cancelled(); err != nil {
			return nil, err
		}
		s.unchecked = 0
	}
	if !bytes.Contains(text, s.pattern.literal) {
		return nil, nil
	}
	if len(text) <= checkInterval {
		return s.pattern.re.FindIndex(text), nil
	}
	r := &cancellableReader{text: bytes.NewReader(text), cancelled: s.cancelled}
	at = s.pattern.re.FindReaderIndex(r)
	return at, r.err
}

// cancellableReader is a text that ends when the search is cancelled.
type cancellableReader struct {
	text      *bytes.Reader
	cancelled func() error
	left      int // characters until the next check
	err       error
}

func (w *cancellableReader) ReadRune() (r rune, size int, err error) {
	if w.left == 0 && w.err == nil {
		w.left, w.err = runesAtOnce, w.cancelled()
	}
	if w.err != nil {
		return 0, 0, io.EOF
	}
	w.left--
	return w.text.ReadRune()
}
