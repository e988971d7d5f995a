package pathmapper

// hasDotDot says whether a path that goes on at an index has a ".." segment, so that nobody knows where it leads, or is no path at all.
// To find the end of it is difficult in a text; it is rather sought too far than too near. Before is the byte before the path.
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

// segment knows the dots of the segment of a path that is being read; notDots is one that has more than them.
type segment struct{ dots int }

const notDots = -1

// next takes a byte and says whether the segment before it is "..". A byte that is not usual in names ends the segment for this
// purpose: "/a/..)" climbs.
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

// closingQuote finds the end of a quoted path: the next quote of its kind in the same line. Without one the path is not taken for quoted,
// and closing is -1.
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
		return not(a.nextIs(i, n, func(next byte) bool { return next == '/' || c == '\'' && i != closing && isLetter(next) }))
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
