package pathmapper

import (
	"bytes"
	"strings"
)

// lookahead is the available text from a position on; atEOF reports whether the text ends there.
type lookahead struct {
	b     []byte
	atEOF bool
}

func (a lookahead) from(i int) lookahead { return lookahead{a.b[i:], a.atEOF} }

// undecided returns the decision at the end of the available text.
func (a lookahead) undecided() decision {
	if a.atEOF {
		return no
	}
	return needMore
}

// slashAt reports whether a path has a slash at an index.
func (a lookahead) slashAt(i int) bool {
	c, _, v := a.char(i, plain)
	return v == yes && c == '/'
}

// char decodes the character of a path at an index and returns its length in the text.
func (a lookahead) char(i int, n slashStyle) (c byte, length int, v decision) {
	if i >= len(a.b) {
		return 0, 0, a.undecided()
	}
	switch c = a.b[i]; {
	case c == '%' && n == percentEncoded:
		return a.percent(i)
	case c != '\\' || n == percentEncoded:
		return c, 1, yes
	case i+1 < len(a.b) && a.b[i+1] == '/':
		return '/', 2, yes
	case i+1 == len(a.b) && !a.atEOF:
		return 0, 0, needMore
	}
	return c, 1, yes
}

func (a lookahead) percent(i int) (c byte, length int, v decision) {
	if i+2 >= len(a.b) {
		return 0, 0, a.undecided()
	}
	high, ok1 := unhex(a.b[i+1])
	low, ok2 := unhex(a.b[i+2])
	if !ok1 || !ok2 {
		return 0, 0, no
	}
	return high<<4 | low, 3, yes
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// authority returns the start of the path of a file URI after its scheme. The host is missing,
// empty or localhost.
func (a lookahead) authority() (start int, v decision) {
	if len(a.b) < 2 {
		return 0, a.undecided()
	}
	if a.b[1] != '/' {
		return 0, yes
	}
	const local = "localhost"
	host := a.b[2:]
	end := bytes.IndexByte(host, '/')
	switch {
	case end == 0, end == len(local) && strings.EqualFold(string(host[:end]), local):
		return 2 + end, yes
	case end < 0 && len(host) <= len(local) && strings.EqualFold(string(host), local[:len(host)]):
		return 0, a.undecided()
	}
	return 0, no
}

// under reports whether the text is a path under root, and returns the length of the root in it.
// Slashes in it may be repeated, with "." segments between them.
func (a lookahead) under(root string, n slashStyle) (length int, v decision) {
	for length < min(len(root), len(a.b)) && a.b[length] == root[length] {
		length++
	}
	switch {
	case length == len(root):
		return length, a.endsSegment(length, n)
	case length < len(a.b) && !isOneOf(a.b[length], `/.\%`):
		return 0, no
	}
	return a.underNormalized(root, n)
}

// underNormalized is under for a root that is not written in its clean form.
func (a lookahead) underNormalized(root string, n slashStyle) (length int, v decision) {
	for i := range len(root) {
		c, size, v := a.char(length, n)
		if v == yes && c != root[i] {
			v = no
		}
		if v != yes {
			return 0, v
		}
		length += size
		if c != '/' || i == 0 {
			continue
		}
		if length, v = a.afterSlashes(length, n); v != yes {
			return 0, v
		}
	}
	return length, a.endsSegment(length, n)
}

// afterSlashes skips slashes and "." segments.
func (a lookahead) afterSlashes(i int, n slashStyle) (int, decision) {
	for {
		c, size, v := a.char(i, n)
		if v != yes {
			return i, v
		}
		if c == '.' {
			next, dot, v := a.char(i+size, n)
			if v == needMore {
				return i, needMore
			}
			if v == yes && next == '/' {
				i += size + dot
				continue
			}
		}
		if c != '/' {
			return i, yes
		}
		i += size
	}
}

// endsSegment reports whether a segment of a path ends at an index: with a slash, with the text, or
// before a character that is not part of a name.
func (a lookahead) endsSegment(i int, n slashStyle) decision {
	i, v := a.afterStyle(i)
	switch {
	case v == needMore:
		return needMore
	case i == len(a.b):
		return not(a.undecided())
	}
	switch c := a.b[i]; {
	case hasClass(c, controlByte|quoteByte|angle), isOneOf(c, ")]}|,;:&"):
		return yes
	case c == '.':
		return a.endsSentence(i)
	case c == '\\' && n != percentEncoded:
		return a.endsInEscape(i)
	case n == percentEncoded && (c == '?' || c == '#'):
		return yes
	case c >= 0x80:
		return a.endsInQuotationMark(i)
	}
	c, _, v := a.char(i, n)
	if v == yes && c != '/' {
		v = no
	}
	return v
}

// endsSentence reports whether the dots at i end a sentence or the text.
func (a lookahead) endsSentence(i int) decision {
	for i < len(a.b) && a.b[i] == '.' {
		i++
	}
	if i == len(a.b) {
		return not(a.undecided())
	}
	if c := a.b[i]; hasClass(c, controlByte|quoteByte) || isOneOf(c, ")]<") {
		return yes
	}
	return no
}

// endsInEscape reports whether the backslash at i begins "\/", an escaped quote or line end.
func (a lookahead) endsInEscape(i int) decision {
	if i+1 == len(a.b) {
		return a.undecided()
	}
	if hasClass(a.b[i+1], quoteByte) || isOneOf(a.b[i+1], "/nrt") {
		return yes
	}
	return no
}

// endsInQuotationMark reports whether a closing non-ASCII quotation mark or an ellipsis is at i.
func (a lookahead) endsInQuotationMark(i int) decision {
	for _, q := range []string{"’", "”", "»", "…"} {
		rest := a.b[i:]
		if bytes.HasPrefix(rest, []byte(q)) {
			return yes
		}
		if strings.HasPrefix(q, string(rest[:min(len(rest), len(q))])) {
			return a.undecided()
		}
	}
	return no
}

// controlSequence reads a terminal control sequence (ESC [ ... letter) at the beginning of the
// text.
func (a lookahead) controlSequence() (length int, final byte, v decision) {
	for i, c := range a.b[:min(len(a.b), maxSequence)] {
		switch {
		case i == 0 && c == '\x1b', i == 1 && c == '[', i > 1 && ' ' <= c && c < '@':
		case i > 1 && '@' <= c && c <= '~':
			return i + 1, c, yes
		default:
			return 0, 0, no
		}
	}
	if len(a.b) >= maxSequence {
		return 0, 0, no
	}
	return 0, 0, a.undecided()
}

// afterStyle skips control sequences that do not move the cursor.
func (a lookahead) afterStyle(i int) (int, decision) {
	for i < len(a.b) && a.b[i] == '\x1b' {
		n, final, v := a.from(i).controlSequence()
		if v == needMore {
			return i, needMore
		}
		if v == no || !isStyle(final) {
			break
		}
		i += n
	}
	return i, yes
}

// hasDotDot reports whether a path that continues at an index has a ".." segment or is invalid. The
// end of a path in a text is uncertain; the search rather goes too far. Before is the byte before
// the path.
func (a lookahead) hasDotDot(i int, before byte, n slashStyle) decision {
	closing, v := a.closingQuote(i, before)
	if v == needMore {
		return needMore
	}
	s := segment{dots: notDots}
	for i < len(a.b) {
		if hasClass(a.b[i], alphanumeric) {
			s.dots = notDots
			i++
			continue
		}
		at, v := a.afterStyle(i)
		if v == needMore || at == len(a.b) {
			break
		}
		if v = a.pathEndsAt(at, closing, n); v == yes {
			return s.isDotDot()
		} else if v == needMore {
			return needMore
		}
		c, size, v := a.char(at, n)
		switch {
		case v == needMore:
			return needMore
		case v == no, s.next(c):
			return yes
		}
		i = at + size
	}
	if !a.atEOF {
		return needMore
	}
	return s.isDotDot()
}

// segment counts the dots of the current segment of a path; notDots means that it has other bytes.
type segment struct{ dots int }

const notDots = -1

// next adds a byte and reports whether the segment before it is "..". A byte that is unusual in
// names ends the segment too: "/a/..)" has a ".." segment.
func (s *segment) next(c byte) (dotDot bool) {
	switch {
	case c == '/':
		dotDot = s.dots == 2
		s.dots = 0
	case c == '.' && 0 <= s.dots && s.dots < 2:
		s.dots++
	default:
		dotDot = s.dots == 2 && !hasClass(c, nameByte)
		s.dots = notDots
	}
	return dotDot
}

func (s *segment) isDotDot() decision {
	if s.dots == 2 {
		return yes
	}
	return no
}

// closingQuote returns the index of the next quote of the same kind in the same line. It returns -1
// if there is none, and the path then counts as unquoted.
func (a lookahead) closingQuote(i int, quote byte) (closing int, v decision) {
	if !hasClass(quote, quoteByte) {
		return -1, yes
	}
	for ; i < len(a.b); i++ {
		switch c := a.b[i]; {
		case c == quote:
			return i, yes
		case c < ' ' && c != '\t' && c != '\x1b':
			return -1, yes
		}
	}
	if !a.atEOF && len(a.b) < maxPath {
		return 0, needMore
	}
	return -1, yes
}

// pathEndsAt reports whether a path ends before an index. A quoted path ends only with its quote.
func (a lookahead) pathEndsAt(i, closing int, n slashStyle) decision {
	switch c := a.b[i]; {
	case i < closing:
		return no
	case c == ' ' && a.b[i-1] == '\\' && n != percentEncoded:
		return no
	case hasClass(c, controlByte|angle), c == '|', n == percentEncoded && (c == '?' || c == '#'):
		return yes
	case i == closing, hasClass(c, quoteByte) && hasClass(a.b[i-1], closer):
		return not(a.nextIs(i, n,
			func(next byte) bool { return next == '/' || c == '\'' && i != closing && isLetter(next) }))
	case hasClass(c, quoteByte):
		return yes
	case hasClass(c, opener|separator):
		return a.nextIs(i, n, func(next byte) bool { return next == '/' })
	}
	return no
}

// nextIs reports whether the character after an index satisfies by.
func (a lookahead) nextIs(i int, n slashStyle, by func(byte) bool) decision {
	c, _, v := a.char(i+1, n)
	if v == yes && !by(c) {
		v = no
	}
	return v
}
