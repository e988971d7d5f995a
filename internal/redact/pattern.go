package redact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

const (
	// MaxMatch is the maximum number of bytes that a pattern sees from the beginning of a match. It
	// bounds how much of a stream is held back.
	MaxMatch = 8 << 10
	// maxPattern bounds the text of a pattern in bytes, and maxProgram its compiled size, to which the
	// time for a match is proportional.
	maxPattern = 4 << 10
	maxProgram = 8 << 10
	// secretGroup is the name of the group that is replaced, instead of the whole match.
	secretGroup = "secret"
	// maxReads bounds how often a byte is read for one pattern: an attempt that reads n bytes and
	// finds no match is followed by none at the next n/maxReads bytes. So the time is proportional to
	// the length of a text, whatever it contains.
	maxReads = 64
)

// pattern finds the matches of a regular expression.
type pattern struct {
	re *regexp.Regexp
	// group is the number of the group that is replaced; 0 is the whole match.
	group int
	// prefix begins every match. If it is empty, first has the bytes that can begin one.
	prefix []byte
	first  [256]bool
}

// compilePattern compiles a regular expression of RE2. ^ and $ match at lines.
func compilePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("has %d bytes, the maximum is %d", len(text), maxPattern)
	}
	tree, err := syntax.Parse(text, syntax.Perl&^syntax.OneLine)
	if err != nil {
		return nil, fmt.Errorf("is not a regular expression: %w", err)
	}
	if hasTextAnchor(tree) {
		return nil, errors.New(`uses \A or \z, but a stream has no such place; ^ and $ match at lines`)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, fmt.Errorf("is not a regular expression: %w", err)
	}
	if len(prog.Inst) > maxProgram {
		return nil, fmt.Errorf("is too complex: its repetitions expand to %d instructions, the maximum "+
			"is %d", len(prog.Inst), maxProgram)
	}
	p := &pattern{}
	if p.beginsAt(prog, uint32(prog.Start), map[uint32]bool{}) { //nolint:gosec // at most maxProgram
		return nil, errors.New("matches the empty text, which is everywhere")
	}
	p.prefix = literalPrefix(prog)
	// the character before a match is read too, for ^ and \b
	p.re, err = regexp.Compile(`\A(?s:.)(?m:` + text + `)`)
	if err != nil {
		return nil, fmt.Errorf("is not a regular expression: %w", err)
	}
	p.group = max(p.re.SubexpIndex(secretGroup), 0)
	return p, nil
}

func hasTextAnchor(t *syntax.Regexp) bool {
	if t.Op == syntax.OpBeginText || t.Op == syntax.OpEndText {
		return true
	}
	return slices.ContainsFunc(t.Sub, hasTextAnchor)
}

// beginsAt adds the bytes with which a match can begin at an instruction to p.first, and reports
// whether there can be an empty match.
func (p *pattern) beginsAt(prog *syntax.Prog, pc uint32, seen map[uint32]bool) (empty bool) {
	if seen[pc] {
		return false
	}
	seen[pc] = true
	inst := &prog.Inst[pc]
	switch inst.Op {
	case syntax.InstMatch:
		return true
	case syntax.InstAlt, syntax.InstAltMatch:
		out := p.beginsAt(prog, inst.Out, seen)
		return p.beginsAt(prog, inst.Arg, seen) || out
	case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
		return p.beginsAt(prog, inst.Out, seen)
	case syntax.InstFail:
		return false
	}
	for b := range p.first {
		if b >= utf8.RuneSelf || inst.MatchRune(rune(b)) {
			p.first[b] = true // of a rune with several bytes every byte is taken as possible
		}
	}
	return false
}

// literalPrefix returns the bytes with which every match begins.
func literalPrefix(prog *syntax.Prog) []byte {
	var prefix []byte
	for pc := prog.Start; ; {
		inst := &prog.Inst[pc]
		switch {
		case inst.Op == syntax.InstCapture, inst.Op == syntax.InstNop,
			inst.Op == syntax.InstEmptyWidth:
		case inst.Op == syntax.InstRune1 && inst.Rune[0] != utf8.RuneError: // which is any invalid byte
			prefix = utf8.AppendRune(prefix, inst.Rune[0])
		default:
			return prefix
		}
		pc = int(inst.Out)
	}
}

// find implements finder. A match ends the search of those that it overlaps.
func (p *pattern) find(t text, at int, found func(span)) int {
	for {
		i := p.candidate(t, at)
		if i == len(t.bytes) {
			return i
		}
		if len(t.bytes)-i < len(p.prefix) { // of which there is only the beginning
			return i
		}
		w := newWindow(t, i)
		loc := p.re.FindReaderSubmatchIndex(w)
		switch {
		case w.short:
			return i
		case loc == nil:
			at = min(i+max(1, (w.at-i)/maxReads), len(t.bytes))
		default:
			match, secret := w.spans(loc, p.group)
			found(secret)
			at = match.end
		}
	}
}

// candidate returns the first position, not before at, where a match may begin.
func (p *pattern) candidate(t text, at int) int {
	rest := t.bytes[at:]
	if len(p.prefix) == 0 {
		for i, b := range rest {
			if p.first[b] {
				return at + i
			}
		}
		return len(t.bytes)
	}
	if i := bytes.Index(rest, p.prefix); i >= 0 {
		return at + i
	}
	if !t.final {
		return at + partialSuffix(rest, p.prefix)
	}
	return len(t.bytes)
}

// partialSuffix returns where the longest proper prefix of literal begins that ends b, or len(b).
func partialSuffix(b, literal []byte) int {
	for i := max(0, len(b)-len(literal)+1); i < len(b); i++ {
		next := bytes.IndexByte(b[i:], literal[0])
		if next < 0 {
			break
		}
		i += next
		if bytes.HasPrefix(literal, b[i:]) {
			return i
		}
	}
	return len(b)
}

// window reads the byte before a position as a character, and at most MaxMatch bytes from there on.
type window struct {
	text

	start, at, end int
	begun          bool
	// short is set if more bytes were asked for than there are yet.
	short bool
}

func newWindow(t text, start int) *window {
	w := &window{text: t, start: start, at: start, end: min(len(t.bytes), start+MaxMatch)}
	if start > 0 {
		w.before = t.bytes[start-1]
	}
	return w
}

// spans returns a match that was found in the window, and the part of it that is a secret: the
// group with a number, or all of it if that is 0 or has no part in the match.
func (w *window) spans(loc []int, group int) (match, secret span) {
	shift := w.start - 1 // the first byte is the one before the window
	match = span{w.start, loc[1] + shift}
	if group == 0 || loc[2*group] == loc[2*group+1] {
		return match, match
	}
	return match, span{loc[2*group] + shift, loc[2*group+1] + shift}
}

// ReadRune implements io.RuneReader.
func (w *window) ReadRune() (rune, int, error) {
	if !w.begun {
		w.begun = true
		if w.before < utf8.RuneSelf {
			return rune(w.before), 1, nil
		}
		return utf8.RuneError, 1, nil
	}
	rest := w.bytes[w.at:w.end]
	if !w.final && w.end == len(w.bytes) && !utf8.FullRune(rest) {
		w.short = true
		return 0, 0, io.EOF
	}
	if len(rest) == 0 {
		return 0, 0, io.EOF
	}
	r, n := utf8.DecodeRune(rest)
	w.at += n
	return r, n, nil
}
