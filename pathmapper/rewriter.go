package pathmapper

import (
	"bytes"
	"io"
)

const (
	// maxPath is PATH_MAX of Linux: a name that goes on for longer is none, and is passed on as it is.
	maxPath = 4096
	// lookBehind is how far back the text before a path is looked at, in bytes: whether it stands in a URL, for instance.
	lookBehind = 1024
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
	buf []byte
	at  int
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
		r.forget()
		r.buf = append(r.buf, rest[:n]...)
		r.advance(false)
		rest = rest[n:]
	}
	if r.err != nil {
		return 0, r.err
	}
	return len(p), nil
}

// forget drops what is too far behind to be looked at.
func (r *Rewriter) forget() {
	if drop := r.at - lookBehind; drop > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[drop:])]
		r.at -= drop
	}
}

// Held is how many bytes wait for what follows them.
func (r *Rewriter) Held() int { return len(r.buf) - r.at }

// Flush passes on what is held, as it is: what is still open may go on in a way that makes it no path, or a path that must not be
// rewritten. What follows is read as the rest of it.
func (r *Rewriter) Flush() error {
	if r.Held() > 0 {
		r.pass(r.at, len(r.buf))
	}
	return r.err
}

// Close says that the text ends here, and passes on the rest of it. It does not close the writer behind.
func (r *Rewriter) Close() error {
	if r.Held() > 0 && r.err == nil {
		r.advance(true)
	}
	return r.err
}

// Count is how many paths were rewritten so far.
func (r *Rewriter) Count() int64 { return r.count }

// advance passes on what is decided; at the end of the text everything is.
func (r *Rewriter) advance(end bool) {
	from := r.at
	for i := r.at; ; {
		i = r.roots.next(r.buf, i)
		if i == len(r.buf) {
			break
		}
		e, v := r.roots.judge(behind{r.buf[max(0, i-lookBehind):i], i < lookBehind}, ahead{r.buf[i:], end})
		if v == more {
			r.pass(from, i)
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
	r.pass(from, len(r.buf))
}

// pass writes what was made of the paths before, and buf from an index up to another.
func (r *Rewriter) pass(from, to int) {
	r.at = to
	p := r.buf[from:to]
	if len(r.out) > 0 {
		p = append(r.out, p...)
		r.out = p[:0]
	}
	if len(p) > 0 && r.err == nil {
		_, r.err = r.to.Write(p)
	}
}
