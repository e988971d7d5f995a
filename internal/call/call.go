// Package call is the life of a call, for every kind of server in front of it.
//
// [Intake] turns a request into a [Prepared] call: it validates the request, finds its tool and
// routes it, each once. A [Registry] starts prepared calls and finds them again while they run and
// for some minutes afterwards. A [Call] has live events, a stdin that is written while it runs, and
// its record.
//
// A call runs independently of the request that started it, and [Registry.Drain] waits for its end.
// It is accepted when the audit log has committed its begin record, which [Recorded] reports. A
// failure before that rejects the request, and there is no such call. Every failure after that is
// the result of the call.
//
// The [dray.Record] of a call is made of its invocation when it starts, and of the result that
// [Recorded] passes to the audit log when it ends. It is encoded once, for the response and the end
// event.
//
// What is recorded has no secrets (AU-07): everything outside [Recorded] gets the redacted
// invocation, route, result and error, everything inside of it the true ones. Output is redacted
// before it is captured.
package call

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/redact"
	"github.com/dray-dev/dray/internal/strictjson"
)

// Call is one call, running or ended. It is safe for concurrent use.
type Call struct {
	id        string
	principal string
	claim     *dray.Idempotency // nil for none
	clients   atomic.Int32      // of Begin, that have not left
	started   time.Time
	// invocation and route are what the tool gets; record has them redacted.
	invocation dray.Invocation
	route      dray.Route
	routeErr   error
	redactor   *redact.Redactor
	// awaitsApproval is [Prepared.AwaitsApproval].
	awaitsApproval bool
	events         *eventlog.Log
	reader         atomic.Pointer[eventlog.Reader]
	stdin          *StdinPipe
	control        chan dray.Control
	parked         chan struct{} // closed when the call first waits for an approval
	park           sync.Once
	terminal       bool
	cancel         context.CancelCauseFunc
	accept         sync.Once
	onAccept       func()
	accepted       chan struct{}
	done           chan struct{}

	mu        sync.Mutex
	record    dray.Record // without input and output once the call has ended
	encoded   []byte      // the whole record as JSON; nil while the call runs
	rejectErr error

	// Guarded by the lock of the registry: until when the ended call is retained, and about how many
	// bytes of memory it uses.
	expiresAt     time.Time
	retainedBytes int
}

// ID returns the id of the invocation.
func (c *Call) ID() string { return c.id }

// Principal returns who started the call.
func (c *Call) Principal() string { return c.principal }

func (c *Call) claimKey() claimKey { return claimKey{c.principal, c.claim.Key} }

// Events returns the events of the call. The first one reports that it is accepted.
func (c *Call) Events() *eventlog.Log { return c.events }

// BlockingReader returns the reader of events that the tool waits for, which the caller must close.
// It returns nil if the call has none, and to all but the first caller.
func (c *Call) BlockingReader() *eventlog.Reader { return c.reader.Swap(nil) }

// Stdin returns the pipe to the stdin of the call, or nil if the call did not ask for one.
func (c *Call) Stdin() *StdinPipe { return c.stdin }

// Accepted is closed when the begin record of the call is committed. It stays open for a rejected
// call.
func (c *Call) Accepted() <-chan struct{} { return c.accepted }

// Done is closed when everything that the call started has ended and its end record is committed.
func (c *Call) Done() <-chan struct{} { return c.done }

// Cancel cancels the call with a cause. It does not block and has no effect on an ended call.
func (c *Call) Cancel(cause error) {
	c.events.ReleaseReader() // a cancelled call must not wait for a reader
	c.cancel(cause)
}

// Rejected returns why the request did not become a call, or nil if it did. It is valid once Done
// is closed.
func (c *Call) Rejected() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rejectErr
}

// Record returns the record of the call. That of an ended call has no input and no output; see
// [Call.FullRecord].
func (c *Call) Record() dray.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record
}

// FullRecord returns the record of the call with its input and output.
func (c *Call) FullRecord() (dray.Record, error) {
	c.mu.Lock()
	rec, encoded := c.record, c.encoded
	c.mu.Unlock()
	if encoded == nil {
		return rec, nil
	}
	var large struct {
		Input  jsontext.Value `json:"input"`
		Output jsontext.Value `json:"output"`
	}
	// the output of a tool may have a name twice
	if err := json.Unmarshal(encoded, &large, jsontext.AllowDuplicateNames(true)); err != nil {
		return rec, fmt.Errorf("decode the record of the call: %w", err)
	}
	rec.Input, rec.Output = []byte(large.Input), []byte(large.Output)
	return rec, nil
}

// Encoded returns the record as JSON, and whether the call has ended.
func (c *Call) Encoded() (record []byte, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.encoded != nil {
		return c.encoded, true
	}
	_, record = encodeRecord(c.record)
	return record, false
}

// Queued reports whether the call waits for a slot or for an approval.
func (c *Call) Queued() bool { return c.Record().Status == dray.StatusQueued }

func (c *Call) setQueued(queued bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.Status = dray.StatusRunning
	if queued {
		c.record.Status = dray.StatusQueued
	}
}

// Parked is closed when the call first waits for an approval.
func (c *Call) Parked() <-chan struct{} { return c.parked }

func (c *Call) setApproval(id string) {
	c.mu.Lock()
	c.record.Approval = id
	c.mu.Unlock()
	if id != "" {
		c.park.Do(func() { close(c.parked) })
	}
}

func (c *Call) wasAccepted() bool {
	select {
	case <-c.accepted:
		return true
	default:
		return false
	}
}

// markAccepted reports that the call is accepted. Only the first call has an effect.
func (c *Call) markAccepted() {
	c.accept.Do(func() {
		c.events.Accepted(c.id)
		c.onAccept()
		close(c.accepted)
	})
}

// finish sets the final record and adds the end event.
func (c *Call) finish(rec dray.Record) {
	rec, text := encodeRecord(rec)
	body := eventlog.EndBody(text)
	c.mu.Lock()
	c.encoded = eventlog.Invocation(body)
	c.record = rec
	c.record.Input, c.record.Output = nil, nil // they may be large, and are in the encoded record
	c.retainedBytes = max(len(body)-len(rec.Input)-len(rec.Output), 0)
	c.mu.Unlock()
	c.events.Finish(*rec.EndedAt, body)
}

// reject sets the reason why there is no call.
func (c *Call) reject(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejectErr = err
}

// encodeRecord returns a record and its JSON. A record that cannot be encoded becomes a failed one
// without its input and output (AU-05).
func encodeRecord(rec dray.Record) (dray.Record, []byte) {
	b, err := strictjson.Encode(rec)
	if err == nil {
		return rec, b
	}
	rec.Status, rec.Output, rec.Input = dray.StatusFailed, nil, nil
	rec.Error = dray.Errorf(dray.CodeInternal, "encode the record of the call: %w", err).
		WithHint("read the tool's output with GET /v1/invocations/%s/output/stdout", rec.ID)
	b, _ = strictjson.Encode(rec) // its remaining members can always be encoded
	return rec, b
}

// sink receives what happens in the call. All of it shows that the call was accepted.
type sink struct{ call *Call }

func (s sink) Started() {
	s.call.markAccepted()
	s.call.events.Started()
}

// Queued implements admission.QueueSink.
func (s sink) Queued(waiting bool) {
	s.call.markAccepted()
	s.call.setQueued(waiting)
	s.call.events.Queued(waiting)
}

// AwaitsApproval implements [approval.Sink]. An empty id ends the wait.
func (s sink) AwaitsApproval(id string) {
	s.Queued(id != "")
	s.call.setApproval(id)
}

func (s sink) Progress(phase, message string) {
	s.call.markAccepted()
	s.call.events.Progress(phase, s.call.redactor.Text(message))
}

func (s sink) Output(stream dray.Stream, p []byte) { s.call.events.Output(stream, p) }

// Control calls do with the process of the call and returns its error. It blocks until the process
// has started. It fails with conflict if the call ends before that, and with the cause of ctx.
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

// HasTerminal reports whether the call runs on a terminal.
func (c *Call) HasTerminal() bool { return c.terminal }

// ErrCallEnded returns the error of a change to a call that has ended.
func ErrCallEnded() error {
	return dray.Errorf(dray.CodeConflict, "the call has already ended").
		WithHint("dray audit show ID and GET /v1/invocations/ID have its result")
}
