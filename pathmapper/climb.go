package pathmapper

// climbs says whether a path that goes on at an index has a ".." segment, so that nobody knows where it leads, or is no path at all.
// To find the end of it is difficult in a text; it is rather sought too far than too near. Before is the byte before the path.
func (a ahead) climbs(i int, before byte, n notation) verdict {
	closing, v := a.closing(i, before)
	if v == more {
		return more
	}
	s := segment{dots: notDots}
	for i < len(a.b) {
		if is(a.b[i], alphanumeric) {
			s.dots = notDots
			i++
			continue
		}
		at, v := a.afterStyle(i)
		if v == more || at == len(a.b) {
			break
		}
		if v = a.endsPath(at, closing, n); v == yes {
			return s.climbed()
		} else if v == more {
			return more
		}
		c, size, v := a.char(at, n)
		switch {
		case v == more:
			return more
		case v == no, s.next(c):
			return yes
		}
		i = at + size
	}
	if !a.whole {
		return more
	}
	return s.climbed()
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
		climbed = s.dots == 2 && !is(c, nameByte)
		s.dots = notDots
	}
	return climbed
}

func (s *segment) climbed() verdict {
	if s.dots == 2 {
		return yes
	}
	return no
}

// closing finds the end of a quoted path: the next quote of its kind in the same line. Without one the path is not taken for quoted,
// and closing is -1.
func (a ahead) closing(i int, quote byte) (closing int, v verdict) {
	if !is(quote, quoteByte) {
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
	if !a.whole && len(a.b) < maxPath {
		return 0, more
	}
	return -1, yes
}

// endsPath says whether a path ends before an index. Within quotes only their end is one.
func (a ahead) endsPath(i, closing int, n notation) verdict {
	switch c := a.b[i]; {
	case i < closing:
		return no
	case c == ' ' && a.b[i-1] == '\\' && n != encoded:
		return no
	case is(c, controlByte|angle), c == '|', n == encoded && (c == '?' || c == '#'):
		return yes
	case i == closing, is(c, quoteByte) && is(a.b[i-1], closer):
		return not(a.followed(i, n, func(next byte) bool { return next == '/' || c == '\'' && i != closing && isLetter(next) }))
	case is(c, quoteByte):
		return yes
	case is(c, opener|separator):
		return a.followed(i, n, func(next byte) bool { return next == '/' })
	}
	return no
}

// followed asks for the character behind an index.
func (a ahead) followed(i int, n notation, by func(byte) bool) verdict {
	c, _, v := a.char(i+1, n)
	if v == yes && !by(c) {
		v = no
	}
	return v
}
