package tool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/dray-dev/dray/internal/soakreport"
)

// matching returns the lines of a text that match, with their numbers.
func matching(t *testing.T, pattern string, r io.Reader) []string {
	t.Helper()
	p, err := newLinePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	s := lineSearch{pattern: p, cancelled: never, found: func(l line) error {
		got = append(got, fmt.Sprintf("%d:%s", l.number, l.text))
		return nil
	}}
	if err := s.run(r); err != nil {
		t.Fatal(err)
	}
	return got
}

// never is the cancelled of a search that is not cancelled.
func never() error { return nil }

func TestLineSearch(t *testing.T) {
	for _, tt := range []struct{ pattern, text, want string }{
		{"b", "a\nb\nab\n", "2:b 3:ab"},
		{"b", "a\nb", "2:b"},
		{"^$", "a\n\n\nb", "2: 3:"},
		{"^$", "", ""},
		{"a$", "a\r\nba\r\r\na\r", "1:a 3:a"},
		{"(?i)ABC", "xabcx\nABC", "1:xabcx 2:ABC"},
		{`\bfoo\b`, "food\nfoo\na foo b\n", "2:foo 3:a foo b"},
		{"a\nb", "a\nb\n", ""},
		{"a[^x]b", "a\nb\na b\n", "3:a b"},
		{".", "\xff\n", "1:\xff"},
		{"func (.*) Walk", "func (x) Walk\nfunc Walk\n", "1:func (x) Walk"},
		{"(ab)+c|d", "abc\nd\n", "1:abc 2:d"},
		{"(ab){2}", "ab\nabab\n", "2:abab"},
		{"x{0,2}", "a\n", "1:a"},
		{"a", "a\x00\na\n", ""},
	} {
		for how, r := range map[string]io.Reader{
			"at once": strings.NewReader(tt.text), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.text)),
			"with the end": iotest.DataErrReader(strings.NewReader(tt.text)),
		} {
			if strings.Contains(tt.text, "\x00") && how == "byte by byte" {
				continue // what comes before the NUL is text until then
			}
			if got := strings.Join(matching(t, tt.pattern, r), " "); got != tt.want {
				t.Errorf("%q in %q %s: got %q, want %q", tt.pattern, tt.text, how, got, tt.want)
			}
		}
	}
}

// Searching for the required literal first finds the same lines as the expression alone.
func TestRequiredLiteral(t *testing.T) {
	for pattern, want := range map[string]string{
		"abc": "abc", `\babc\b`: "abc", "a(bcd)e": "bcd", "(?i)abc": "", "a|b": "", "(abc)?d": "d", "(abc)*": "", "(abc)+": "abc", "(abc){2,}": "abc", "(abc){0,2}": "", "^ä": "ä",
		"": "", ".": "", "[ab]cd": "cd", "(?i)x(?-i)yz": "yz",
	} {
		if p, err := newLinePattern(pattern); err != nil || string(p.literal) != want {
			t.Errorf("%s needs %q, %v, want %q", pattern, p.literal, err, want)
		}
	}
}

// FuzzLineSearch compares the search with matching each line separately.
func FuzzLineSearch(f *testing.F) {
	f.Add("a+b", "ab\naab\r\n\nb", uint64(1))
	f.Add("^x|y$", "x\ny\r\nxy", uint64(2))
	f.Add("(?s)a.b", "a\nb", uint64(3))
	f.Fuzz(func(t *testing.T, pattern, text string, seed uint64) {
		if _, err := newLinePattern(pattern); err != nil || strings.Contains(text, "\x00") ||
			len(text) > 1<<10 {
			return
		}
		var want []string
		re := regexp.MustCompile(pattern)
		number := 0
		for l := range strings.Lines(text) {
			number++
			l = strings.TrimSuffix(strings.TrimSuffix(l, "\n"), "\r")
			if re.MatchString(l) {
				want = append(want, fmt.Sprintf("%d:%s", number, l))
			}
		}
		pieces := &pieces{rest: []byte(text), rand: rand.New(rand.NewPCG(seed, 0))}
		if got := matching(t, pattern, pieces); strings.Join(got, "\x00") != strings.Join(want, "\x00") {
			t.Errorf("%q in %q: got %q, want %q", pattern, text, got, want)
		}
	})
}

// pieces reads in pieces of random size.
type pieces struct {
	rest []byte
	rand *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.rand.IntN(7))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func TestNewLinePatternRefuses(t *testing.T) {
	for pattern, want := range map[string]string{
		"(": "missing closing", "a{1001}": "repeat count", `(a)\1`: "escape", "(?=a)": "", strings.Repeat("x", 4001): "4000 bytes", strings.Repeat("a{900}", 7): "large",
	} {
		if _, err := newLinePattern(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q gave %v, want %q", pattern, err, want)
		}
	}
}

// A line of any length (a gigabyte in the soak) needs the memory of maxLine. Its beginning is
// searched, and the lines around it keep their numbers.
func TestLineSearch_LineWithoutEnd(t *testing.T) {
	size := soakreport.Size(1<<30, 1<<26)
	endless := io.MultiReader(strings.NewReader("first needle\n"),
		io.LimitReader(repeated("needle and more "), size), strings.NewReader("\nlast needle"))
	p, err := newLinePattern("needle")
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var numbers []int64
	s := lineSearch{
		pattern: p, cancelled: never,
		found: func(l line) error { numbers = append(numbers, l.number); return nil },
	}
	if err := s.run(endless); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if fmt.Sprint(numbers) != "[1 2 3]" || s.firstLongLine != 2 {
		t.Errorf("found lines %v, the long one is %d", numbers, s.firstLongLine)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("it took %d bytes of memory", used)
	}
}

// repeated is an endless text.
type repeated string

func (r repeated) Read(b []byte) (int, error) {
	n := 0
	for n+len(r) <= len(b) {
		n += copy(b[n:], r)
	}
	return n, nil
}

func TestLineSearchStops(t *testing.T) {
	p, _ := newLinePattern("a")
	calls := 0
	s := lineSearch{
		pattern: p, cancelled: never, found: func(line) error { calls++; return errStop },
	}
	if err := s.run(strings.NewReader("a\na\n")); !errors.Is(err, errStop) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := s.run(iotest.ErrReader(io.ErrUnexpectedEOF)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// A search ends with its context, also within a long line.
func TestLineSearch_Cancelled(t *testing.T) {
	p, err := newLinePattern("((x{0,30}){0,30}z?)*[qr]")
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the client went away")
	for name, text := range map[string]string{
		"one line":   strings.Repeat("x", maxLine-1) + "q",
		"many lines": strings.Repeat("x\n", maxLine),
	} {
		asked := 0
		s := lineSearch{pattern: p, found: func(line) error { return errStop }, cancelled: func() error {
			if asked++; asked < 3 {
				return nil
			}
			return gone
		}}
		if err := s.run(strings.NewReader(text)); !errors.Is(err, gone) || asked != 3 {
			t.Errorf("%s: got %v, asked %d times", name, err, asked)
		}
	}
}

// A long line has the same matches as a short one.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("x\xff\u00fc ", checkInterval)
	for _, pattern := range []string{"q", "^x", "x$", "(?i)Q+", `\bq\b`, "[^x ]q", "nowhere", "", "q.*u"} {
		for _, text := range []string{long, long + "q", long + " qq " + long + "u", "x" + long + "x"} {
			p, err := newLinePattern(pattern)
			if err != nil {
				t.Fatal(err)
			}
			got, want := -1, -1
			if at := p.re.FindStringIndex(text); at != nil {
				want = at[0]
			}
			s := lineSearch{
				pattern: p, cancelled: never, found: func(l line) error { got = l.from; return nil },
			}
			if err := s.run(strings.NewReader(text + "\n")); err != nil || got != want {
				t.Errorf("%q: got %v, %v, want %v", pattern, got, err, want)
			}
		}
	}
}

func BenchmarkLineSearch(b *testing.B) {
	text := bytes.Repeat([]byte("func (s *server) walk(name string) (response, []byte, error) "+
		"{\n\treturn nil\n}\n\n"), 1<<14)
	for _, pattern := range []string{"nowhere", `\bWalk\b`, "(?i)nowhere", `func \(\w+ \*client\)`} {
		b.Run(pattern, func(b *testing.B) {
			p, err := newLinePattern(pattern)
			if err != nil {
				b.Fatal(err)
			}
			s := lineSearch{pattern: p, cancelled: never, found: func(line) error { return nil }}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_ = s.run(bytes.NewReader(text))
			}
		})
	}
}
