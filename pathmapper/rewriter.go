package pathmapper

import (
	"bytes"
	"io"
	"strings"
)

const (
	// maxPath is PATH_MAX of Linux: a name that goes on for longer is none, and is passed on as it is.
	maxPath = 4096
	// lookbehindBytes is how far back the text before a path is looked at, in bytes: whether it stands
	// in a URL, for instance.
	lookbehindBytes = 1024
	// piece is how much of a long write is worked on at once. It bounds the memory of a Rewriter.
	piece = 64 << 10
)

// Rewriter is a filter that finds paths in a text and passes the text on with their roots replaced;
// the package documentation has the rules. All other bytes are passed on as they are. How the text
// is cut into writes makes no difference.
//
// Each write passes on at once whatever cannot be the beginning of a path, and holds the rest, at
// most 4 KiB, until it is known what it is. A program may stop in the midst of one, as a prompt
// "/work" does: where somebody watches, Flush is to be called soon after a write that left
// something Held. The memory of a Rewriter is bounded, whatever passes it. It serves one goroutine
// at a time.
type Rewriter struct {
	to    io.Writer
	roots *roots
	// buf[:at] was passed on; its end is kept to be looked back at. buf[at:] is held.
	buf     []byte
	flushed int
	// out is what a write passes on if a path was rewritten in it.
	out   []byte
	count int64
	err   error
}

// Rewriter makes a filter for text of one side whose paths are to be those of the other, and which
// passes the text on to w. An error of w ends the filter: all further calls fail with it.
func (m *Mapper) Rewriter(dir Direction, w io.Writer) *Rewriter {
	return &Rewriter{to: w, roots: m.rootsOf(dir)}
}

// RewriteText gives a whole text with its paths rewritten, and how many those are. Without any it
// is text itself.
func (m *Mapper) RewriteText(dir Direction, text []byte) (rewritten []byte, paths int64) {
	var out bytes.Buffer
	r := m.Rewriter(dir, &out)
	_, _ = r.Write(text) // a bytes.Buffer takes everything
	_ = r.Close()
	if r.count == 0 {
		return text, 0
	}
	return out.Bytes(), r.count
}

// Write takes the next bytes of the text.
func (r *Rewriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && r.err == nil; {
		n := min(len(rest), piece)
		r.trim()
		r.buf = append(r.buf, rest[:n]...)
		r.advance(false)
		rest = rest[n:]
	}
	if r.err != nil {
		return 0, r.err
	}
	return len(p), nil
}

// trim drops what is too far behind to be looked at.
func (r *Rewriter) trim() {
	if drop := r.flushed - lookbehindBytes; drop > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[drop:])]
		r.flushed -= drop
	}
}

// Buffered is how many bytes wait for what follows them.
func (r *Rewriter) Buffered() int { return len(r.buf) - r.flushed }

// Flush passes on what is held, as it is: what is still open may go on in a way that makes it no
// path, or a path that must not be rewritten. What follows is read as the rest of it.
func (r *Rewriter) Flush() error {
	if r.Buffered() > 0 {
		r.emit(r.flushed, len(r.buf))
	}
	return r.err
}

// Close says that the text ends here, and passes on the rest of it. It does not close the writer
// behind.
func (r *Rewriter) Close() error {
	if r.Buffered() > 0 && r.err == nil {
		r.advance(true)
	}
	return r.err
}

// Replaced is how many paths were rewritten so far.
func (r *Rewriter) Replaced() int64 { return r.count }

// advance passes on what is decided; at the end of the text everything is.
func (r *Rewriter) advance(end bool) {
	from := r.flushed
	for i := r.flushed; ; {
		i = r.roots.next(r.buf, i)
		if i == len(r.buf) {
			break
		}
		e, v := r.roots.decide(lookbehind{r.buf[max(0, i-lookbehindBytes):i], i < lookbehindBytes},
			lookahead{r.buf[i:], end})
		if v == needMore {
			r.emit(from, i)
			return
		}
		if v == yes {
			r.out = append(append(r.out, r.buf[from:i+e.from]...), e.text...)
			r.count++
			from = i + e.to
			i = from
			continue
		}
		i++
	}
	r.emit(from, len(r.buf))
}

// emit writes what was made of the paths before, and buf from an index up to another.
func (r *Rewriter) emit(from, to int) {
	r.flushed = to
	p := r.buf[from:to]
	if len(r.out) > 0 {
		p = append(r.out, p...)
		r.out = p[:0]
	}
	if len(p) > 0 && r.err == nil {
		_, r.err = r.to.Write(p)
	}
}

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
	// to is the folder's name on the other side, in each notation; empty for a folder that has none
	// there.
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
	// the first backslash stands there already
	names[escapedSlash] = strings.TrimPrefix(strings.ReplaceAll(to, "/", `\/`), `\`)
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

// covers gives the host folders beneath a mapping's that the container does not show, since it has
// something else mounted there.
func (m *Mapper) covers(mp Mapping) []string {
	var hidden []string
	for _, other := range m.byContainer {
		if rest, ok := relativeTo(other.Container, mp.Container); ok && rest != "" {
			hidden = append(hidden, join(mp.Host, rest))
		}
	}
	return hidden
}

// next gives the index of the next slash, from i on, that may begin a path; the length of b if
// there is none.
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
		if i+1 == len(b) || r.second[b[i+1]] && (i+2 == len(b) || r.third[b[i+2]]) || i > 0 &&
			b[i-1] == ':' {
			return i
		}
	}
}

// rewrite is a rewrite: text takes the place of the bytes from one index up to another, both
// counted from the slash that was judged.
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
