package pathmapper

import (
	"bytes"
	"io"
	"strings"
)

const (
	// maxPath is PATH_MAX of Linux. A longer path is written unchanged.
	maxPath = 4096
	// lookbehindBytes bounds the text before a path that is examined, for instance for a URL.
	lookbehindBytes = 1024
	// piece is the part of a long write that is processed at once. It bounds the memory of a Rewriter.
	piece = 64 << 10
)

// Rewriter is a filter that replaces the roots of paths in a text, by the rules of the package
// documentation. It writes all other bytes unchanged. The boundaries of writes make no difference.
//
// Write buffers the possible beginning of a path, at most 4 KiB, until it is decided. A program may
// stop there, for example with the prompt "/work": for a live reader, call Flush soon after a write
// that left Buffered bytes. The memory of a Rewriter is bounded. It must not be used concurrently.
type Rewriter struct {
	to    io.Writer
	roots *roots
	// buf[:flushed] was written and is retained for lookbehind. buf[flushed:] is pending.
	buf     []byte
	flushed int
	// out is the output of a write in which a path was rewritten.
	out   []byte
	count int64
	err   error
	// list is called with each path and its replacement. Nil lists none.
	list func(from, to string)
}

// Rewriter returns a filter that maps the paths of a text in the given direction and writes to w.
// After an error of w all further calls return it.
func (m *Mapper) Rewriter(dir Direction, w io.Writer) *Rewriter {
	return &Rewriter{to: w, roots: m.rootsOf(dir)}
}

// RewriteText returns a text with its paths rewritten, and their number. Without any it returns
// text itself.
func (m *Mapper) RewriteText(dir Direction, text []byte) (rewritten []byte, paths int64) {
	var out bytes.Buffer
	r := m.Rewriter(dir, &out)
	_, _ = r.Write(text) // a bytes.Buffer returns no error
	_ = r.Close()
	if r.count == 0 {
		return text, 0
	}
	return out.Bytes(), r.count
}

// Write processes the next bytes of the text.
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

// trim drops text before the lookbehind.
func (r *Rewriter) trim() {
	if drop := r.flushed - lookbehindBytes; drop > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[drop:])]
		r.flushed -= drop
	}
}

// Buffered returns the number of pending bytes.
func (r *Rewriter) Buffered() int { return len(r.buf) - r.flushed }

// Flush writes the pending bytes unchanged, because they may not be a path that must be rewritten.
// The text after them is read as their continuation.
func (r *Rewriter) Flush() error {
	if r.Buffered() > 0 {
		r.emit(r.flushed, len(r.buf))
	}
	return r.err
}

// Close ends the text and writes the rest of it. It does not close the underlying writer.
func (r *Rewriter) Close() error {
	if r.Buffered() > 0 && r.err == nil {
		r.advance(true)
	}
	return r.err
}

// Replaced returns the number of paths rewritten so far.
func (r *Rewriter) Replaced() int64 { return r.count }

// advance writes what is decided: everything at the end of the text.
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
			if r.list != nil {
				r.listPath(i, e)
			}
			from = i + e.to
			i = from
			continue
		}
		i++
	}
	r.emit(from, len(r.buf))
}

// listPath lists the path at buf[i:]. Where it ends is uncertain, and matters for the list only.
func (r *Rewriter) listPath(i int, e rewrite) {
	a := lookahead{r.buf[i:min(len(r.buf), i+maxPath)], true}
	end, _ := a.closingQuote(e.to, lookbehind{r.buf[max(0, i-1):i], i <= 1}.last())
	if end < 0 {
		end = e.to
		for end < len(a.b) && !hasClass(a.b[end], controlByte|quoteByte|angle) &&
			!isOneOf(a.b[end], ",;:|&)]}") {
			end++
		}
	}
	r.list(string(a.b[e.from:end]), e.text+string(a.b[e.to:end]))
}

// emit writes out, followed by buf[from:to].
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

// decision is an answer about a stream of which only the beginning is available.
type decision int

const (
	no decision = iota
	yes
	// needMore means that it depends on the following text.
	needMore
)

// slashStyle is how the slashes of a path are written in a text.
type slashStyle int

const (
	// plain paths may also have slashes written as "\/", as some JSON encoders do.
	plain slashStyle = iota
	// escapedSlash paths begin with "\/".
	escapedSlash
	// percentEncoded paths are those of file URIs.
	percentEncoded
	notations
)

// roots are the roots that a Rewriter searches.
type roots struct {
	// list has the longest root first, and of equal ones the one that decides.
	list []textRoot
	// second and third are the bytes after the first slash of any root.
	second, third [256]bool
}

// textRoot is a directory of the side that a text is from.
type textRoot struct {
	from string
	// to is its path on the other side in each slash style; empty if it has none there.
	to [notations]string
	// hiddenDirs are directories beneath it that the other side does not have.
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
	// without the first backslash, which the text has already
	names[escapedSlash] = strings.TrimPrefix(strings.ReplaceAll(to, "/", `\/`), `\`)
	r.list = append(r.list, textRoot{from, names, covers})
	r.second[from[1]] = true
	if len(from) > 2 {
		r.third[from[2]] = true
		return
	}
	for c := range r.third {
		r.third[c] = true // any byte may follow the root
	}
}

// covers returns the host directories beneath a mapping that another mount of the container hides.
func (m *Mapper) covers(mp Mapping) []string {
	var hidden []string
	for _, other := range m.byContainer {
		if rest, ok := relativeTo(other.Container, mp.Container); ok && rest != "" {
			hidden = append(hidden, join(mp.Host, rest))
		}
	}
	return hidden
}

// next returns the index of the next slash, from i on, that may begin a path, or the length of b.
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

// rewrite replaces the bytes between two indices, relative to the examined slash, with text.
type rewrite struct {
	from, to int
	text     string
}

// decide returns whether the slash at the beginning of a begins a path to be rewritten.
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

// find returns the root of the path at the beginning of a, and its length in the text.
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

// isHidden returns whether the path is under a directory that the other side does not have.
func (t *textRoot) isHidden(a lookahead, n slashStyle) decision {
	for _, dir := range t.hiddenDirs {
		if _, v := a.under(dir, n); v != no {
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
