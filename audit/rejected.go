package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

const (
	// rejectionWindow is the time over which rejected requests are counted for one event.
	rejectionWindow = time.Minute
	// maxRejections bounds the events of a window, and so what a flood of requests adds to the disk.
	// Beyond it, requests are counted in one more event.
	maxRejections = 64
	// otherRejections is the code of that event.
	otherRejections = "other"
)

// RequestsRejected is the body of the kind rejected (AU-09).
type RequestsRejected struct {
	Principal string    `json:"principal" doc:"who sent the requests; empty if unknown"`
	Code      dray.Code `json:"code" doc:"the code of their responses; other beyond 64 principals and codes in a minute"`
	Count     int64     `json:"count" doc:"number of requests"`
	FirstAt   time.Time `json:"first_at" doc:"time of the first one"`
	LastAt    time.Time `json:"last_at" doc:"time of the last one"`
}

// Kind implements [Body].
func (*RequestsRejected) Kind() string { return "rejected" }

// Summary implements [Body].
func (b *RequestsRejected) Summary() string {
	return fmt.Sprintf("%d requests: %s", b.Count, b.Code)
}

// rejections counts rejected requests in memory. A goroutine records the counts a minute after the
// first one, in one transaction. While the log cannot be written, the counts go on growing.
type rejections struct {
	writer *writer
	window time.Duration

	mu        sync.Mutex
	counts    map[rejectionKey]*RequestsRejected
	timer     *time.Timer // nil unless it will call record, or record runs
	closed    bool
	recording sync.WaitGroup
}

type rejectionKey struct {
	principal string
	code      dray.Code
}

func newRejections(w *writer) *rejections {
	return &rejections{
		writer: w, window: rejectionWindow, counts: map[rejectionKey]*RequestsRejected{},
	}
}

// CountRejection counts a request that was refused before it became a call. It does not block. The
// event with the count is committed within a minute, and at the latest by Close. A crash loses the
// counts since the last event.
func (s *Store) CountRejection(principal string, code dray.Code) {
	s.rejections.count(rejectionKey{principal, code})
}

func (r *rejections) count(key rejectionKey) {
	now := time.Now().Round(0).UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	b := r.counts[key]
	if b == nil && len(r.counts) >= maxRejections {
		key = rejectionKey{code: otherRejections}
		b = r.counts[key]
	}
	if b == nil {
		b = &RequestsRejected{Principal: key.principal, Code: key.code, FirstAt: now}
		r.counts[key] = b
	}
	b.Count++
	b.LastAt = now
	r.start()
}

// start starts the timer unless it runs. The caller holds mu.
func (r *rejections) start() {
	if r.timer == nil {
		r.recording.Add(1)
		r.timer = time.AfterFunc(r.window, r.record)
	}
}

// record commits the counts. It waits for the commit, so that at most one window is queued.
func (r *rejections) record() {
	defer r.recording.Done()
	r.mu.Lock()
	events := r.take()
	r.mu.Unlock()
	// if the log is closed meanwhile, Close commits the events
	_ = r.writer.submit(context.Background(), math.MaxInt64, events...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if len(r.counts) > 0 && !r.closed {
		r.start()
	}
}

// take returns the events of the counts, the oldest first, and begins a new window.
func (r *rejections) take() (events []*pendingEvent) {
	counts := make([]*RequestsRejected, 0, len(r.counts))
	for _, b := range r.counts {
		counts = append(counts, b)
	}
	clear(r.counts)
	slices.SortFunc(counts, func(a, b *RequestsRejected) int {
		return cmp.Or(a.FirstAt.Compare(b.FirstAt), cmp.Compare(a.Code, b.Code))
	})
	for _, b := range counts {
		e, err := newEvent(b)
		if err != nil {
			panic(err) // it has strings, numbers and times
		}
		events = append(events, e)
	}
	return events
}

// close queues the last counts. The writer must be open.
func (r *rejections) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil && r.timer.Stop() {
		r.recording.Done()
	}
	events := r.take()
	for _, e := range events {
		e.caller = continued
	}
	r.writer.enqueue(events)
}
