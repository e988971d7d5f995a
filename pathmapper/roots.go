package pathmapper

import (
	"bytes"
	"strings"
)

// decision answers a question about a stream of which only the beginning is known.
type decision int

const (
	no decision = iota
	yes
	// needMore says that what follows decides.
	needMore
)

// slashStyle is how a path is written in a text.
type slashStyle int

const (
	// plain paths may write a slash as "\/", too, as some encoders of JSON do.
	plain slashStyle = iota
	// escapedSlash paths begin with "\/".
	escapedSlash
	// percentEncoded paths are those of file URIs.
	percentEncoded
	notations
)

// roots are what a Rewriter looks for.
type roots struct {
	// list has the longest first, and of equal ones those that decide first.
	list []textRoot
	// second and third have the bytes that follow the first slash of a root.
	second, third [256]bool
}

// textRoot is one folder of the side that a text is from.
type textRoot struct {
	from string
	// to is the folder's name on the other side, in each notation; empty for a folder that has none there.
	to [notations]string
	// hiddenDirs are the folders beneath it whose place on the other side shows something else.
	hiddenDirs []string
}

func (m *Mapper) rootsOf(dir Direction) *roots {
	r := &roots{}
	if dir == ToHost {
		for _, mp := range m.byContainer {
			r.add(mp.Container, mp.Host, nil)
		}
		return r
	}
	for _, mp := range m.byHost {
		r.add(mp.Host, mp.Container, m.covers(mp))
	}
	return r
}

func (r *roots) add(from, to string, covers []string) {
	names := [notations]string{plain: to, percentEncoded: encodePath(to)}
	names[escapedSlash] = strings.TrimPrefix(strings.ReplaceAll(to, "/", `\/`), `\`) // the first backslash stands there already
	r.list = append(r.list, textRoot{from, names, covers})
	r.second[from[1]] = true
	if len(from) > 2 {
		r.third[from[2]] = true
		return
	}
	for c := range r.third {
		r.third[c] = true // whatever follows the root
	}
}

// covers gives the host folders beneath a mapping's that the container does not show, since it has something else mounted there.
func (m *Mapper) covers(mp Mapping) []string {
	var hidden []string
	for _, other := range m.byContainer {
		if rest, ok := relativeTo(other.Container, mp.Container); ok && rest != "" {
			hidden = append(hidden, join(mp.Host, rest))
		}
	}
	return hidden
}

// next gives the index of the next slash, from i on, that may begin a path; the length of b if there is none.
func (r *roots) next(b []byte, i int) int {
	if len(r.list) == 0 {
		return len(b)
	}
	for ; ; i++ {
		n := bytes.IndexByte(b[i:], '/')
		if n < 0 {
			return len(b)
		}
		i += n
		if i+1 == len(b) || r.second[b[i+1]] && (i+2 == len(b) || r.third[b[i+2]]) || i > 0 && b[i-1] == ':' {
			return i
		}
	}
}

// rewrite is a rewrite: text takes the place of the bytes from one index up to another, both counted from the slash that was judged.
type rewrite struct {
	from, to int
	text     string
}

// decide says whether a path to rewrite begins at a slash, which is the first byte ahead.
func (r *roots) decide(b lookbehind, a lookahead) (rewrite, decision) {
	full := len(a.b) >= maxPath
	if full {
		a = lookahead{b: a.b[:maxPath]}
	}
	e, v := r.try(b, a)
	if v == needMore && full {
		v = no
	}
	return e, v
}

func (r *roots) try(b lookbehind, a lookahead) (rewrite, decision) {
	b, n := b.notation()
	start := 0
	if n == percentEncoded {
		var v decision
		if start, v = a.authority(); v == no {
			return rewrite{}, no
		} else if v == needMore {
			return rewrite{}, b.mayNeedMore()
		}
	}
	root, length, v := r.find(a.from(start), n)
	switch {
	case v == no, !b.canStartPath():
		return rewrite{}, no
	case v == needMore:
		return rewrite{}, needMore
	case root.to[n] == "", root.to[plain] == root.from:
		return rewrite{}, no
	}
	end := start + length
	if b.last() == '<' && !a.slashAt(end) {
		return rewrite{}, no // </app> ends an element
	}
	if v := a.hasDotDot(end, b.last(), n); v != no {
		if v == yes {
			v = no
		}
		return rewrite{}, v
	}
	return rewrite{start, end, root.to[n]}, yes
}

// find gives the root that the text ahead lies under, and the length of its name there.
func (r *roots) find(a lookahead, n slashStyle) (root *textRoot, length int, v decision) {
	for i := range r.list {
		root = &r.list[i]
		length, v = a.under(root.from, n)
		if v == yes {
			v = not(root.isHidden(a, n))
		}
		if v != no {
			return root, length, v
		}
	}
	return nil, 0, no
}

// isHidden says whether the text ahead lies under a folder that the other side does not show.
func (t *textRoot) isHidden(a lookahead, n slashStyle) decision {
	for _, folder := range t.hiddenDirs {
		if _, v := a.under(folder, n); v != no {
			return v
		}
	}
	return no
}

func not(v decision) decision {
	switch v {
	case yes:
		return no
	case no:
		return yes
	default:
		return needMore
	}
}
