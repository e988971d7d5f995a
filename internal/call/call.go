package call

import (
	"context"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/strictjson"
)

// Call is one call, running or ended. Its methods may be called from several goroutines.
type Call struct {
	id        string
	principal string
	started   time.Time
	events    *eventlog.Log
	reader    *eventlog.Reader
	stdin     *StdinPipe
	control   chan dray.Control
	terminal  bool
	cancel    context.CancelCauseFunc
	accept    sync.Once
	onAccept  func()
	accepted  chan struct{}
	done      chan struct{}

	mu        sync.Mutex
	record    dray.Record // as it was accepted, while it runs
	ended     []byte      // the record's JSON form, once it is over
	rejectErr error       // why it never was a call

	// The registry's, under its lock: how long an ended call is kept, and about how many bytes it
	// holds.
	expiresAt     time.Time
	retainedBytes int
}

// ID is the invocation's.
func (c *Call) ID() string { return c.id }

// Events are what happens in the call. They begin when it is accepted.
func (c *Call) Events() *eventlog.Log { return c.events }

// BlockingReader is the reader that the tool waits for; nil unless the call asked for one. Its user
// closes it.
func (c *Call) BlockingReader() *eventlog.Reader { return c.reader }

// Stdin is where the call's stdin is written to; nil unless the call opened it.
func (c *Call) Stdin() *StdinPipe { return c.stdin }

// Accepted is closed once the call has a row in the trail. A refused call never has.
func (c *Call) Accepted() <-chan struct{} { return c.accepted }

// Done is closed when everything that the call started is over, and its end recorded.
func (c *Call) Done() <-chan struct{} { return c.done }

// Cancel ends the call with a cause. It does not wait, and does nothing to a call that is over.
func (c *Call) Cancel(cause error) {
	c.events.ReleaseReader() // what is being ended waits for no reader
	c.cancel(cause)
}

// Refused says why the request did not become a call, once it is done.
func (c *Call) Refused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rejectErr
}

// Record gives the record in its JSON form, and whether it is that of the end.
func (c *Call) Record() (record []byte, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended, true
	}
	return encode(c.record), false
}

// Queued says whether the call waits for its turn.
func (c *Call) Queued() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended == nil && c.record.Status == dray.StatusQueued
}

// queue says whether the call waits for its turn from now on.
func (c *Call) queue(waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.Status = dray.StatusRunning
	if waiting {
		c.record.Status = dray.StatusQueued
	}
}

// wasAccepted says whether the call has a row in the trail.
func (c *Call) wasAccepted() bool {
	select {
	case <-c.accepted:
		return true
	default:
		return false
	}
}

// markAccepted makes the call known as accepted. The first of several tells.
func (c *Call) markAccepted() {
	c.accept.Do(func() {
		c.events.Accepted(c.id)
		c.onAccept()
		close(c.accepted)
	})
}

// finish makes the final record known.
func (c *Call) finish(rec dray.Record) {
	body := eventlog.EndBody(encode(rec))
	c.mu.Lock()
	// one copy is enough: an input may be large
	c.ended, c.record = eventlog.Invocation(body), dray.Record{}
	c.mu.Unlock()
	c.events.Finish(body)
}

// reject makes known that there is no call.
func (c *Call) reject(err error) {
	c.mu.Lock()
	c.rejectErr = err
	c.mu.Unlock()
}

// encode writes a record. One that cannot be written fails, and says so in its place (AU-05).
func encode(rec dray.Record) []byte {
	b, err := strictjson.Encode(rec)
	if err == nil {
		return b
	}
	rec.Status, rec.Output, rec.Input = dray.StatusFailed, nil, nil
	rec.Error = dray.Errorf(dray.CodeInternal, "writing the call's record: %w", err).
		WithHint("its input or output is not JSON; what the tool printed can be read by id")
	b, _ = strictjson.Encode(rec) // nothing is left in it that is not typed
	return b
}

// sink hears the call. That the tool runs, or that something is being prepared, also shows that it
// was accepted.
type sink struct{ call *Call }

func (s sink) Started() {
	s.call.markAccepted()
	s.call.events.Started()
}

// Queued belongs to the calls that wait for their turn (admission.Queuer).
func (s sink) Queued(waiting bool) {
	s.call.markAccepted()
	s.call.queue(waiting)
	s.call.events.Queued(waiting)
}

func (s sink) Progress(phase, message string) {
	s.call.markAccepted()
	s.call.events.Progress(phase, message)
}

func (s sink) Output(stream dray.Stream, p []byte) { s.call.events.Output(stream, p) }

// Control has something done to the call's process, and waits for that. A call that has no process
// yet is waited for. It fails with conflict where the call ends without another moment in which it
// has one, with the context's cause, or as do does.
func (c *Call) Control(ctx context.Context, do func(dray.Process) error) error {
	result := make(chan error, 1)
	select {
	case c.control <- func(p dray.Process) { result <- do(p) }:
		return <-result
	case <-c.done:
		return ErrCallEnded()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// HasTerminal says whether the call asked for a terminal.
func (c *Call) HasTerminal() bool { return c.terminal }

// ErrCallEnded is the error of changing a call that has ended.
func ErrCallEnded() error {
	return dray.Errorf(dray.CodeConflict, "the call is over").
		WithHint("GET the invocation tells how it ended")
}

type acceptedKey struct{}

// MarkAccepted is the Executor that belongs directly inside the trail's: reaching it means that the
// begin of the call is committed. Without it a call counts as accepted when it first says
// something, and a client that waits with wait_ms waits until then.
func MarkAccepted(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		if tell, ok := ctx.Value(acceptedKey{}).(func()); ok {
			tell()
		}
		return next.Execute(ctx, call, sink)
	})
}
