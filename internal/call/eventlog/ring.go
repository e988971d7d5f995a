package eventlog

// ring has the newest bytes of a sequence that only grows. Positions count from the beginning of the
// sequence; the bytes before start are overwritten. The buffer grows up to max bytes.
type ring struct {
	buf        []byte
	start, end int64
	max        int
}

const ringMin = 512

// write appends p, which has at most max bytes.
func (r *ring) write(p []byte) {
	r.reserve(int(r.end-r.start) + len(p))
	for len(p) > 0 {
		n := copy(r.buf[r.index(r.end):], p)
		r.end += int64(n)
		p = p[n:]
	}
	r.start = max(r.start, r.end-int64(len(r.buf)))
}

// holds reports whether the ring has all bytes from a position on.
func (r *ring) holds(at int64) bool { return at >= r.start }

// read appends n bytes from a position, which the ring must hold, to dst.
func (r *ring) read(dst []byte, at int64, n int) []byte {
	for n > 0 {
		i := r.index(at)
		part := r.buf[i:min(i+n, len(r.buf))]
		dst = append(dst, part...)
		at += int64(len(part))
		n -= len(part)
	}
	return dst
}

// reserve grows the buffer to n bytes, at most to max.
func (r *ring) reserve(n int) {
	size := max(len(r.buf), ringMin)
	for size < n && size < r.max {
		size *= 2
	}
	r.resize(min(size, r.max))
}

// shrink discards all but the newest n bytes and releases their memory.
func (r *ring) shrink(n int) {
	r.max = n
	r.resize(min(n, int(r.end-r.start)))
}

func (r *ring) resize(size int) {
	if size == len(r.buf) {
		return
	}
	start := max(r.start, r.end-int64(size))
	kept := r.read(make([]byte, 0, size), start, int(r.end-start))
	r.buf, r.start = make([]byte, size), start
	for at := start; len(kept) > 0; {
		n := copy(r.buf[r.index(at):], kept)
		at += int64(n)
		kept = kept[n:]
	}
}

func (r *ring) index(at int64) int { return int(at % int64(len(r.buf))) }
