package tool

import (
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
	// from and to are the bounds of the first match in text.
	from, to int
}

// lineSearch searches one stream after the other with one buffer.
type lineSearch struct {
	pattern *linePattern
	found   func(line) error
	// cancelled returns an error to end the search. It may be nil.
	cancelled func() error
	unchecked int // bytes since cancelled was called
	buf       []byte
	// number is the number of lines read. firstLongLine is the first line that was not searched
	// completely, or zero.
	number, firstLongLine int64
}

// run searches a stream. A stream with a NUL is binary, and its search ends there.
func (s *lineSearch) run(r io.Reader) error {
	if s.buf == nil {
		s.buf = make([]byte, 64<<10)
	}
	s.number, s.firstLongLine = 0, 0
	// pending is the number of bytes in the buffer; skipping means that the rest of a long line is
	// skipped
	pending, skipping := 0, false
	for {
		n, err := r.Read(s.buf[pending:])
		fresh := s.buf[pending : pending+n]
		if bytes.IndexByte(fresh, 0) >= 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		pending += n
		block := s.buf[:pending]
		if skipping {
			i := bytes.IndexByte(block, '\n')
			if skipping = i < 0; skipping {
				block = nil
			} else {
				block = block[i+1:]
				s.number++
			}
		}
		rest, found := s.block(block, err != nil)
		if found != nil || err != nil {
			return found
		}
		pending = copy(s.buf, rest)
		if pending == len(s.buf) {
			pending, skipping, found = s.full()
			if found != nil {
				return found
			}
		}
	}
}

// full enlarges a buffer that one line fills. At maxLine it searches the beginning of the line and
// skips the rest.
func (s *lineSearch) full() (pending int, skipping bool, err error) {
	if len(s.buf) < maxLine {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
		return len(s.buf) / 2, false, nil
	}
	if s.firstLongLine == 0 {
		s.firstLongLine = s.number + 1
	}
	return 0, true, s.one(s.buf)
}

// block searches the complete lines of a block, and the last line too if nothing follows. It
// returns the rest.
func (s *lineSearch) block(block []byte, last bool) (rest []byte, err error) {
	whole := bytes.LastIndexByte(block, '\n') + 1
	if err := s.lines(block[:whole]); err != nil {
		return nil, err
	}
	rest = block[whole:]
	if last && len(rest) > 0 {
		return nil, s.one(rest)
	}
	return rest, nil
}

func (s *lineSearch) lines(block []byte) error {
	for len(block) > 0 {
		if len(s.pattern.literal) > 0 {
			i := bytes.Index(block, s.pattern.literal)
			if i < 0 {
				s.number += int64(bytes.Count(block, newline))
				return nil
			}
			begin := bytes.LastIndexByte(block[:i], '\n') + 1
			s.number += int64(bytes.Count(block[:begin], newline))
			block = block[begin:]
		}
		end := bytes.IndexByte(block, '\n')
		if err := s.one(block[:end]); err != nil {
			return err
		}
		s.number++
		block = block[end+1:]
	}
	return nil
}

var newline = []byte{'\n'}

// one searches one line. The carriage return of a CRLF line ending is not part of the line.
func (s *lineSearch) one(text []byte) error {
	text = bytes.TrimSuffix(text, []byte{'\r'})
	at, err := s.match(text)
	if at == nil || err != nil {
		return err
	}
	return s.found(line{s.number + 1, text, at[0], at[1]})
}

// match returns the first match in a line. It reads a long line by characters, so that the search
// can be cancelled within it.
func (s *lineSearch) match(text []byte) (at []int, err error) {
	if s.cancelled == nil {
		return s.pattern.re.FindIndex(text), nil
	}
	if s.unchecked += len(text) + 1; s.unchecked > checkInterval {
		if err := s.cancelled(); err != nil {
			return nil, err
		}
		s.unchecked = 0
	}
	if len(text) <= checkInterval {
		return s.pattern.re.FindIndex(text), nil
	}
	if !bytes.Contains(text, s.pattern.literal) {
		return nil, nil
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

// ReadRune returns the next character.
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
