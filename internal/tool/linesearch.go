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

// Bounds of a search for lines: the length of a pattern in bytes and of what it is compiled to, and
// the bytes of a line that are looked at.
const (
	maxPattern = 4000
	maxProgram = 5000
	maxLine    = 1 << 20
)

// Between two looks at whether anybody still waits lie at most so many bytes of lines, or
// characters of one that is longer: a pattern may take microseconds for each.
const (
	checkInterval = 16 << 10
	runesAtOnce   = 256
)

// linePattern finds lines. Go's engine takes time in proportion to the text, whatever the pattern
// (RE2).
type linePattern struct {
	re *regexp.Regexp
	// literal stands in every line that matches; empty where nothing is known to.
	literal []byte
}

// newLinePattern compiles a pattern. Its errors are sentences about "it".
func newLinePattern(pattern string) (*linePattern, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("it has more than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, wrong(err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, wrong(err)
	}
	if len(prog.Inst) > maxProgram {
		return nil, errors.New("its repetitions make it too large")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, wrong(err)
	}
	return &linePattern{re, []byte(requiredLiteral(parsed))}, nil
}

// wrong says it without the pattern, which the caller knows.
func wrong(err error) error {
	if s, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("it is no regular expression (RE2 syntax): %s: %q", s.Code, lexical.Truncate(s.Expr, 100))
	}
	return err
}

// requiredLiteral finds the longest text that every match contains.
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

// errStop is what a visitor of lines answers to end the search.
var errStop = errors.New("enough lines")

// line is one that matches. Its text is good until the next.
type line struct {
	number int64
	text   []byte
	// from and to are where the first match stands in the text.
	from, to int
}

// lineSearch goes through one stream after the other with one buffer.
type lineSearch struct {
	pattern *linePattern
	found   func(line) error
	// cancelled ends the search with its error; nil never does.
	cancelled func() error
	looked    int // bytes since it was asked
	buf       []byte
	// number counts the lines that are passed; long is the number of the first that was not looked at
	// as a whole.
	number, firstLongLine int64
}

// run searches a stream. A stream that holds a NUL is binary, and ends there.
func (s *lineSearch) run(r io.Reader) error {
	if s.buf == nil {
		s.buf = make([]byte, 64<<10)
	}
	s.number, s.firstLongLine = 0, 0
	// bytes in the buffer; whether the rest of a line that is too long is passed over
	held, passing := 0, false
	for {
		n, err := r.Read(s.buf[held:])
		fresh := s.buf[held : held+n]
		if bytes.IndexByte(fresh, 0) >= 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		held += n
		block := s.buf[:held]
		if passing {
			i := bytes.IndexByte(block, '\n')
			if passing = i < 0; passing {
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
		held = copy(s.buf, rest)
		if held == len(s.buf) {
			held, passing, found = s.full()
			if found != nil {
				return found
			}
		}
	}
}

// full makes room in a buffer that one line fills, or looks at what there is of it and gives the
// rest up.
func (s *lineSearch) full() (held int, passing bool, err error) {
	if len(s.buf) < maxLine {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
		return len(s.buf) / 2, false, nil
	}
	if s.firstLongLine == 0 {
		s.firstLongLine = s.number + 1
	}
	return 0, true, s.one(s.buf)
}

// block searches the whole lines of a block, the last one too if nothing follows, and gives what is
// left.
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

// one looks at one line. The carriage return of a line end of two is no part of it.
func (s *lineSearch) one(text []byte) error {
	text = bytes.TrimSuffix(text, []byte{'\r'})
	at, err := s.match(text)
	if at == nil || err != nil {
		return err
	}
	return s.found(line{s.number + 1, text, at[0], at[1]})
}

// match finds the pattern in a line. A long line is read by characters, so that the search can end
// within it.
func (s *lineSearch) match(text []byte) (at []int, err error) {
	if s.cancelled == nil {
		return s.pattern.re.FindIndex(text), nil
	}
	if s.looked += len(text) + 1; s.looked > checkInterval {
		if err := s.cancelled(); err != nil {
			return nil, err
		}
		s.looked = 0
	}
	if len(text) <= checkInterval {
		return s.pattern.re.FindIndex(text), nil
	}
	if !bytes.Contains(text, s.pattern.literal) {
		return nil, nil
	}
	r := &cancellableReader{text: bytes.NewReader(text), gone: s.cancelled}
	at = s.pattern.re.FindReaderIndex(r)
	return at, r.err
}

// cancellableReader is a text that ends when nobody waits for it any more.
type cancellableReader struct {
	text *bytes.Reader
	gone func() error
	left int
	err  error
}

// ReadRune gives the next character.
func (w *cancellableReader) ReadRune() (r rune, size int, err error) {
	if w.left == 0 && w.err == nil {
		w.left, w.err = runesAtOnce, w.gone()
	}
	if w.err != nil {
		return 0, 0, io.EOF
	}
	w.left--
	return w.text.ReadRune()
}
