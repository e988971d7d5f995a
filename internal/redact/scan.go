package redact

import (
	"cmp"
	"slices"
)

// text is a part of a text.
type text struct {
	bytes []byte
	// before is the byte before it, a line break at the beginning of the whole text.
	before byte
	// final is set if nothing follows.
	final bool
}

// span is a range of bytes.
type span struct{ start, end int }

// finder finds secrets.
type finder interface {
	// find calls found for each secret that begins at or after a position, in the order of their
	// places. It returns the first position at which it depends on later bytes whether one begins, or
	// the length of the text. It must be called again from there.
	find(t text, at int, found func(span)) int
}

// maxSpan bounds the length in bytes of one replaced text. What is longer, because secrets overlap,
// gets more marks.
const maxSpan = 2 * MaxMatch

// scanner finds the secrets of a text that arrives in parts. Positions count from the beginning of
// the part that is still held.
type scanner struct {
	finders []finder
	collect func(span) // adds to found
	// next has where each finder goes on. A finder that depends on later bytes is called again when
	// the text has wait bytes, so that bytes which arrive one by one do not cost their square.
	next, wait []int
	// found are the secrets that begin where other finders still search, merged are the others.
	found, merged []span
}

func newScanner(finders []finder) *scanner {
	s := &scanner{
		finders: finders, next: make([]int, len(finders)), wait: make([]int, len(finders)),
	}
	s.collect = func(found span) { s.found = append(s.found, found) }
	return s
}

// scan searches the text, which begins with what was held of the text before. It returns how many
// bytes are decided: s.merged has the secrets in them.
func (s *scanner) scan(t text) (decided int) {
	decided = len(t.bytes)
	for i, f := range s.finders {
		if len(t.bytes) >= s.wait[i] || t.final {
			s.next[i] = f.find(t, s.next[i], s.collect)
			s.wait[i] = len(t.bytes) + (len(t.bytes)-s.next[i])/8
		}
		decided = min(decided, s.next[i])
	}
	s.merge(decided)
	for _, secret := range s.merged {
		if secret.end > decided {
			return secret.start // it may grow
		}
	}
	return decided
}

// merge moves the secrets that begin before end to s.merged.
func (s *scanner) merge(end int) {
	if len(s.found) == 0 {
		return
	}
	slices.SortFunc(s.found, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	n := 0
	for ; n < len(s.found) && s.found[n].start < end; n++ {
		s.add(s.found[n])
	}
	s.found = slices.Delete(s.found, 0, n)
}

// add adds a secret that begins at or after the last one.
func (s *scanner) add(next span) {
	if n := len(s.merged); n > 0 && next.start < s.merged[n-1].end {
		last := &s.merged[n-1]
		if next.end <= last.end {
			return
		}
		if next.end-last.start <= maxSpan {
			last.end = next.end
			return
		}
		next.start = last.end
	}
	s.merged = append(s.merged, next)
}

// take returns the decided secrets and forgets them with the first n bytes of the text.
func (s *scanner) take(n int) (taken []span) {
	i := 0
	for i < len(s.merged) && s.merged[i].end <= n {
		i++
	}
	taken = slices.Clone(s.merged[:i])
	s.merged = slices.Delete(s.merged, 0, i)
	for _, spans := range [][]span{s.merged, s.found} {
		for i := range spans {
			spans[i].start -= n
			spans[i].end -= n
		}
	}
	for i := range s.next {
		s.next[i] -= n
		s.wait[i] -= n
	}
	return taken
}
