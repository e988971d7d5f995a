package eventlog

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/dray-dev/dray"
)

// coalesceDelay is how long a begun character, or one piece of a flood, may wait for its rest.
const coalesceDelay = 5 * time.Millisecond

// burstLimit is how many pieces in a row are handed out at once before a tool counts as flooding:
// then it is one for each settle.
const burstLimit = 64

// Reader follows a log. It is used by one goroutine, and closed by it.
type Reader struct {
	log      *Log
	next     int64
	captured [dray.Stderr + 1]io.ReadSeekCloser
	piece    []byte // the bytes of the event at hand; nil where memory has them no more
	buf      []byte // what piece lies in, used again and again
	body     []byte
	at       int64 // how much of what the log was given this has seen
}

// Reader follows the log from the event behind the given sequence number; 0 is the beginning.
func (l *Log) Reader(after int64) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
	l.ring.max = maxBuffered
	return &Reader{log: l, next: after + 1}
}

// Next waits for the next event. After the end event, or where it lies before the place to read
// from, it gives io.EOF; a context that is over gives its cause. The body of the event is valid
// until the next call.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	for {
		ev, pending, err := r.tryNext()
		if pending == nil {
			return ev, err
		}
		if err := pending.wait(ctx); err != nil {
			return Event{}, err
		}
	}
}

// Poll gives the next event if it is there, and otherwise does as Next.
func (r *Reader) Poll() (ev Event, ok bool, err error) {
	ev, pending, err := r.tryNext()
	return ev, pending == nil && err == nil, err
}

// Close ends the reading. It is called once.
func (r *Reader) Close() error {
	r.log.mu.Lock()
	r.log.readers--
	r.log.free()
	if r.log.blockingReader == r {
		r.log.clearBlockingReader()
	}
	r.log.mu.Unlock()
	for _, f := range r.captured {
		if f != nil {
			_ = f.Close() // it was only read
		}
	}
	return nil
}

// waitCondition is what a reader waits for: something that happens, or a moment.
type waitCondition struct {
	wake  <-chan struct{}
	after time.Duration // zero: no moment
}

func (p *waitCondition) wait(ctx context.Context) error {
	var moment <-chan time.Time
	if p.after > 0 {
		timer := time.NewTimer(p.after)
		defer timer.Stop()
		moment = timer.C
	}
	select {
	case <-p.wake:
		return nil
	case <-moment:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryNext gives the next event, or what to wait for. Events whose bytes are kept nowhere are passed
// over.
func (r *Reader) tryNext() (Event, *waitCondition, error) {
	for {
		e, p, err := r.take()
		if p != nil || err != nil {
			return Event{}, p, err
		}
		ev := Event{Seq: r.next, Name: e.name}
		r.next++
		switch {
		case e.name == End:
			ev.Body = r.log.end // it is set for good before its entry is
		case r.piece == nil && !r.readCaptured(e):
			continue
		case e.stream == 0:
			ev.Body = r.piece
		default:
			r.body = appendOutputBody(r.body[:0], e.offset, r.piece)
			ev.Body = r.body
		}
		return ev, nil, nil
	}
}

// take finds the next entry and, where memory has them, copies its bytes into r.piece, which is nil
// otherwise.
func (r *Reader) take() (entry, *waitCondition, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	begin, found := l.stateFrom(r.next)
	if found && (begin.seq < l.first || begin.seq == r.next) {
		r.next, r.piece = begin.seq, begin.body
		return entry{name: State}, nil, nil
	}
	r.next = max(r.next, l.first)
	i := r.next - l.first
	switch n := int64(len(l.entries)); {
	case i >= n && l.closed:
		return entry{}, nil, io.EOF
	case i >= n:
		return entry{}, &waitCondition{wake: l.changed()}, nil
	case i == n-1 && l.tailOpen:
		if after := l.publishTail(time.Now()); after > 0 {
			return entry{}, &waitCondition{wake: l.changed(), after: after}, nil
		}
	}
	e := l.entries[r.next-l.first] // sealing may have dropped the oldest
	r.piece = nil
	if l.ring.holds(e.at) {
		r.buf = l.ring.read(r.buf[:0], e.at, e.size)
		r.piece = r.buf
	}
	r.at = max(r.at, e.at+int64(e.size))
	if l.blockingReader == r {
		l.signalReaderMoved()
	}
	return e, nil, nil
}

// publishTail seals the growing entry so that readers may have it, or says how long that has to
// wait.
func (l *Log) publishTail(now time.Time) time.Duration {
	size, begun := l.last().size, l.incomplete()
	if begun == size {
		if left := coalesceDelay - now.Sub(l.tailSince); left > 0 {
			return left
		}
		begun = 0 // the rest of the character does not come: it goes as it is
	}
	if after := l.rate.take(now); after > 0 {
		return after
	}
	l.sealTail(size - begun)
	return 0
}

// readCaptured reads the bytes of an output event from the kept output.
func (r *Reader) readCaptured(e entry) bool {
	if e.stream == 0 {
		return false
	}
	f := r.captured[e.stream]
	if f == nil {
		var err error
		if f, err = r.log.open(e.stream); err != nil {
			return false
		}
		r.captured[e.stream] = f
	}
	if _, err := f.Seek(e.offset, io.SeekStart); err != nil {
		return false
	}
	r.buf = slices.Grow(r.buf[:0], e.size)[:e.size]
	if _, err := io.ReadFull(f, r.buf); err != nil {
		return false
	}
	r.piece = r.buf
	return true
}

// rateLimiter allows a burst, then one for each settle (the generic cell rate algorithm). The zero
// pace is ready.
type rateLimiter struct{ due time.Time }

// take uses one up, or says how long that has to wait.
func (p *rateLimiter) take(now time.Time) time.Duration {
	if p.due.Before(now) {
		p.due = now
	}
	if ahead := p.due.Sub(now) - burstLimit*coalesceDelay; ahead > 0 {
		return ahead
	}
	p.due = p.due.Add(coalesceDelay)
	return 0
}
