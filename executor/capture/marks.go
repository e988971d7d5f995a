package capture

import "slices"

// marks are the marks in a redacted stream, as far as they are needed to tell how many bytes the
// tool wrote up to the end of the head, and up to the beginning of the tail.
type marks struct {
	head, recent []mark
	// growth is how many bytes longer the redacted stream is than what the tool wrote, or shorter.
	growth int64
}

// mark is one mark by its place in the redacted stream and in what the tool wrote.
type mark struct{ start, end, wroteStart, wroteEnd int64 }

// add adds a mark of n bytes that replaces size bytes at a place of the redacted stream. The head
// ends at headSize; the tail will not begin before keep.
func (m *marks) add(at int64, n int, size, headSize, keep int64) {
	added := mark{
		start: at, end: at + int64(n), wroteStart: at - m.growth, wroteEnd: at - m.growth + size,
	}
	m.growth += int64(n) - size
	if at < headSize {
		m.head = append(m.head, added)
		return
	}
	m.recent = append(m.recent, added)
	for len(m.recent) > 1 && m.recent[1].start < keep {
		m.recent = m.recent[1:]
	}
}

// written returns how many bytes the tool wrote for the first n bytes of the redacted stream. Of a
// mark that n divides, all bytes count if divided is set, else none.
func (m *marks) written(n int64, divided bool) int64 {
	for _, list := range [][]mark{m.recent, m.head} {
		for _, m := range slices.Backward(list) {
			switch {
			case m.start >= n:
			case m.end > n && !divided:
				return m.wroteStart
			default:
				return m.wroteEnd + max(0, n-m.end)
			}
		}
	}
	return n
}
