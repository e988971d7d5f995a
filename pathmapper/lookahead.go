package pathmapper

import (
	"bytes"
	"strings"
)

// lookahead is the text from a place on, as far as it is known; whole says that this is all of it.
type lookahead struct {
	b     []byte
	atEOF bool
}

func (a lookahead) from(i int) lookahead { return lookahead{a.b[i:], a.atEOF} }

// undecided is the answer where the known text ends.
func (a lookahead) undecided() decision {
	if a.atEOF {
		return no
	}
	return needMore
}

// slashAt says whether a path that is known up to an index has a slash there.
func (a lookahead) slashAt(i int) bool {
	c, _, v := a.char(i, plain)
	return v == yes && c == '/'
}

// char decodes the character of a path at an index: yes gives it and its length in the text.
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

// authority gives where the path of a file URI begins, from what follows its scheme: none or an
// empty host, or localhost.
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

// under says whether the text is a path under root, and how long the root's name is in it. As
// cleaning has it, slashes within that name may be repeated, and have "." segments between them.
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

// underNormalized is under for a root that is not written as it is stored.
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

// afterSlashes goes past slashes and "." segments.
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

// endsSegment says whether the segment of a path that is known up to an index ends there: with a
// slash, with the text, or with what does not belong to its name.
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

// endsSentence says whether dots are followed by what ends a sentence, or a text, too.
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

// endsInEscape knows "\/", and what texts within texts have at the end of a string or a line.
func (a lookahead) endsInEscape(i int) decision {
	if i+1 == len(a.b) {
		return a.undecided()
	}
	if hasClass(a.b[i+1], quoteByte) || isOneOf(a.b[i+1], "/nrt") {
		return yes
	}
	return no
}

// endsInQuotationMark knows quotation marks beyond ASCII, and the ellipsis.
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

// controlSequence reads a control sequence for the terminal (ESC [ ... letter) that begins the
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

// afterStyle goes past control sequences that change no position.
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

// hasDotDot says whether a path that goes on at an index has a ".." segment, so that nobody knows
// where it leads, or is no path at all. To find the end of it is difficult in a text; it is rather
// sought too far than too near. Before is the byte before the path.
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

// segment knows the dots of the segment of a path that is being read; notDots is one that has more
// than them.
type segment struct{ dots int }

const notDots = -1

// next takes a byte and says whether the segment before it is "..". A byte that is not usual in
// names ends the segment for this purpose: "/a/..)" climbs.
func (s *segment) next(c byte) (climbed bool) {
	switch {
	case c == '/':
		climbed = s.dots == 2
		s.dots = 0
	case c == '.' && 0 <= s.dots && s.dots < 2:
		s.dots++
	default:
		climbed = s.dots == 2 && !hasClass(c, nameByte)
		s.dots = notDots
	}
	return climbed
}

func (s *segment) isDotDot() decision {
	if s.dots == 2 {
		return yes
	}
	return no
}

// closingQuote finds the end of a quoted path: the next quote of its kind in the same line. Without
// one the path is not taken for quoted, and closing is -1.
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

// pathEndsAt says whether a path ends before an index. Within quotes only their end is one.
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

// nextIs asks for the character behind an index.
func (a lookahead) nextIs(i int, n slashStyle, by func(byte) bool) decision {
	c, _, v := a.char(i+1, n)
	if v == yes && !by(c) {
		v = no
	}
	return v
}
