package eventlog

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/dray-dev/dray"
)

// coalesceDelay is how long an incomplete character, or a piece of a flood of output, is delayed.
const coalesceDelay = 5 * time.Millisecond

// burstLimit is the number of pieces in a row that are published without delay. After that, one is
// published for each coalesceDelay.
const burstLimit = 64

// Reader reads the events of a log in order. It must not be used concurrently, and must be closed.
type Reader struct {
	log      *Log
	next     int64
	captured [dray.Stderr + 1]io.ReadSeekCloser
	piece    []byte // bytes of the current event; nil if they are no longer in memory
	buf      []byte // reused memory of piece
	body     []byte
	at       int64 // position in the ring
}

// Reader returns a reader of the events after a sequence number; 0 is the beginning.
func (l *Log) Reader(after int64) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
	l.ring.max = maxBuffered
	return &Reader{log: l, next: after + 1}
}

// Next blocks until there is an event and returns it. It returns io.EOF after the end event, and
// the cause of ctx when ctx ends. The body of the event is valid until the next call.
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

// Poll is Next without blocking: ok reports whether there was an event.
func (r *Reader) Poll() (ev Event, ok bool, err error) {
	ev, pending, err := r.tryNext()
	return ev, pending == nil && err == nil, err
}

// Close closes the reader. It must be called once.
func (r *Reader) Close() {
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
}

// waitCondition is what a reader waits for: a change of the log, or a time.
type waitCondition struct {
	wake  <-chan struct{}
	after time.Duration // zero: no time
}

func (p *waitCondition) wait(ctx context.Context) error {
	var timeout <-chan time.Time
	if p.after > 0 {
		timer := time.NewTimer(p.after)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-p.wake:
		return nil
	case <-timeout:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryNext returns the next event, or what to wait for. It skips events whose bytes are neither in
// memory nor captured.
func (r *Reader) tryNext() (Event, *waitCondition, error) {
	for {
		e, p, err := r.take()
		if p != nil || err != nil {
			return Event{}, p, err
		}
		ev := Event{Seq: r.next, Name: e.name, At: time.Unix(0, e.time)}
		r.next++
		switch {
		case e.name == End:
			ev.Body = r.log.end // it does not change after its entry was added
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

// take returns the next entry and sets r.piece to a copy of its bytes, or to nil if they are no
// longer in memory.
func (r *Reader) take() (entry, *waitCondition, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	begin, found := l.stateFrom(r.next)
	if found && (begin.seq < l.first || begin.seq == r.next) {
		r.next, r.piece = begin.seq, begin.body
		return entry{name: State, time: begin.time}, nil, nil
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
	e := l.entries[r.next-l.first] // publishTail may have removed the oldest
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

// publishTail seals the open entry for the readers, or returns how long they have to wait for it.
func (l *Log) publishTail(now time.Time) time.Duration {
	size, partial := l.last().size, l.incomplete()
	if partial == size {
		if left := coalesceDelay - now.Sub(l.tailSince); left > 0 {
			return left
		}
		partial = 0 // the rest of the character is late: publish the bytes as they are
	}
	if after := l.rate.take(now); after > 0 {
		return after
	}
	l.sealTail(size - partial)
	return 0
}

// readCaptured reads the bytes of an output event from the captured output into r.piece.
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

// rateLimiter allows burstLimit events at once, then one for each coalesceDelay (the generic cell
// rate algorithm). The zero value is ready to use.
type rateLimiter struct{ due time.Time }

// take takes one event, or returns how long to wait for it.
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
