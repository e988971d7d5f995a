package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dray-dev/dray"
)

const (
	// degradedWait is how long a call waits for a record before it goes on, if that is allowed.
	degradedWait = 2 * time.Second
	// maxLate bounds the calls whose begin records wait in memory. Further calls are refused.
	maxLate = 1000
)

// RecordsDelayed is the body of the kind degraded (AU-01).
type RecordsDelayed struct {
	Since time.Time `json:"since" doc:"when the first of the records should have been committed"`
	Until time.Time `json:"until" doc:"when the log could be written again"`
	Calls int       `json:"calls" doc:"calls that began, and results that were returned, without a committed record"`
	Cause string    `json:"cause" doc:"why the log could not be written"`
}

// Kind implements [Body].
func (*RecordsDelayed) Kind() string { return "degraded" }

// Summary implements [Body].
func (b *RecordsDelayed) Summary() string {
	return fmt.Sprintf("%d records were late by up to %s: %s", b.Calls,
		b.Until.Sub(b.Since).Round(time.Millisecond), b.Cause)
}

// submitLate is submit for a record that may be committed after its call went on. late is why it is
// not committed yet; it stays queued, in its order. err is set if it must not be late: the log is
// closed, or too many begin records wait.
func (w *writer) submitLate(e *pendingEvent) (late, err error) {
	if !w.enqueue([]*pendingEvent{e}) {
		return nil, errClosed
	}
	wait := degradedWait
	if w.writeError() != nil || w.files.check() != nil {
		wait = 0 // the log is known to fail
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-e.done:
		return nil, err
	case <-timer.C:
	case <-w.stopped:
	}
	return w.postpone(e)
}

// postpone leaves an event in the queue although its caller goes on.
func (w *writer) postpone(e *pendingEvent) (late, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isBegin := e.compensate != nil
	switch {
	case e.caller == answered:
		return nil, <-e.done
	case w.closed || isBegin && w.late >= maxLate:
		e.caller = gaveUp
		w.queue = dropAbandoned(w.queue)
		return nil, cmp.Or(w.lastErr, errTimedOut)
	}
	e.caller, e.compensate = continued, nil
	late = cmp.Or(w.lastErr, w.files.check(), errTimedOut)
	if w.delayed == nil {
		w.delayed = &RecordsDelayed{Since: time.Now().Round(0).UTC(), Cause: late.Error()}
	}
	w.delayed.Calls++
	if isBegin {
		w.late++
	}
	return late, nil
}

// reportDelay queues the event of an outage that is over. The caller holds mu.
func (w *writer) reportDelay() {
	if w.delayed == nil {
		return
	}
	w.delayed.Until = time.Now().Round(0).UTC()
	if e, err := newEvent(w.delayed); err == nil {
		e.caller = continued
		w.queue = append(w.queue, e)
	}
	w.delayed, w.late = nil, 0
}

// submitRecord commits the begin or end record of a call that may run without a committed record,
// or of any other.
func (r *recorder) submitRecord(ctx context.Context, e *pendingEvent, mayBeLate bool,
) (late, err error) {
	if mayBeLate && r.degrade {
		return r.writer.submitLate(e)
	}
	return nil, r.submit(ctx, e)
}

// warnLate adds to a result that its call began, or ended, without a committed record.
func warnLate(res dray.Result, record string, late error) dray.Result {
	if late == nil {
		return res
	}
	warning := fmt.Sprintf("the %s record of the call was not committed in time and is lost if the "+
		"daemon ends before it is: %v", record, late)
	res.Metadata.Warnings = append(slices.Clip(res.Metadata.Warnings), warning)
	return res
}
