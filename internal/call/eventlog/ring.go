package eventlog

// ring holds the newest bytes of a sequence that only grows. A byte keeps its position in the
// sequence for good; positions before start are overwritten. The buffer grows with what is written,
// up to max.
type ring struct {
	buf        []byte
	start, end int64
	max        int
}

const ringMin = 512

// write appends p, which is at most max long.
func (r *ring) write(p []byte) {
	r.reserve(int(r.end-r.start) + len(p))
	for len(p) > 0 {
		n := copy(r.buf[r.index(r.end):], p)
		r.end += int64(n)
		p = p[n:]
	}
	r.start = max(r.start, r.end-int64(len(r.buf)))
}

// holds says whether everything from a position on is still there.
func (r *ring) holds(at int64) bool { return at >= r.start }

// read appends the n bytes at a position that the ring holds.
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

// reserve makes the buffer large enough for n bytes, as far as max allows.
func (r *ring) reserve(n int) {
	size := max(len(r.buf), ringMin)
	for size < n && size < r.max {
		size *= 2
	}
	r.resize(min(size, r.max))
}

// shrink gives up all but the newest n bytes, and the memory with them.
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
