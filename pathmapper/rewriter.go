package pathmapper

import (
	"bytes"
	"io"
)

const (
	// maxPath is PATH_MAX of Linux: a name that goes on for longer is none, and is passed on as it is.
	maxPath = 4096
	// lookbehindBytes is how far back the text before a path is looked at, in bytes: whether it stands in a URL, for instance.
	lookbehindBytes = 1024
	// piece is how much of a long write is worked on at once. It bounds the memory of a Rewriter.
	piece = 64 << 10
)

// Rewriter is a filter that finds paths in a text and passes the text on with their roots replaced; the package documentation has
// the rules. All other bytes are passed on as they are. How the text is cut into writes makes no difference.
//
// Each write passes on at once whatever cannot be the beginning of a path, and holds the rest, at most 4 KiB, until it is known what
// it is. A program may stop in the midst of one, as a prompt "/work" does: where somebody watches, Flush is to be called soon after
// a write that left something Held. The memory of a Rewriter is bounded, whatever passes it. It serves one goroutine at a time.
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

// Rewriter makes a filter for text of one side whose paths are to be those of the other, and which passes the text on to w. An error
// of w ends the filter: all further calls fail with it.
func (m *Mapper) Rewriter(dir Direction, w io.Writer) *Rewriter {
	return &Rewriter{to: w, roots: m.rootsOf(dir)}
}

// RewriteText gives a whole text with its paths rewritten, and how many those are. Without any it is text itself.
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

// Flush passes on what is held, as it is: what is still open may go on in a way that makes it no path, or a path that must not be
// rewritten. What follows is read as the rest of it.
func (r *Rewriter) Flush() error {
	if r.Buffered() > 0 {
		r.emit(r.flushed, len(r.buf))
	}
	return r.err
}

// Close says that the text ends here, and passes on the rest of it. It does not close the writer behind.
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
		e, v := r.roots.decide(lookbehind{r.buf[max(0, i-lookbehindBytes):i], i < lookbehindBytes}, lookahead{r.buf[i:], end})
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
