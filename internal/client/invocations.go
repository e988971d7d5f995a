package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Call is the body of POST /v1/invocations. All strings must be UTF-8.
type Call struct {
	Tool string `json:"tool"`
	// Input may be omitted for Route.
	Input        jsontext.Value         `json:"input,omitzero"`
	Workspace    string                 `json:"workspace,omitzero"`
	Container    string                 `json:"container,omitzero"`
	Environment  dray.EnvironmentChoice `json:"environment,omitzero"`
	Cwd          string                 `json:"cwd,omitzero"`
	CwdIsDefault bool                   `json:"cwd_is_default,omitzero"`
	Env          map[string]string      `json:"env,omitempty"`
	// Leftovers is "keep" to keep the processes that the tool leaves running.
	Leftovers dray.Leftovers `json:"leftovers,omitzero"`
	// Paths is the side whose paths the caller writes and reads. Empty is the host.
	Paths dray.PathsSide `json:"paths,omitzero"`
	// RewriteText enables the rewriting of paths in text; nil uses the tool's default.
	RewriteText *bool `json:"rewrite_text,omitempty"`
	// Sync are files and directories to copy to the host when the call ends.
	Sync []string `json:"sync,omitempty"`
	// OnSlowReader is "wait" to block the tool while the stream of Start is not read, like a pipe.
	OnSlowReader string `json:"on_slow_reader,omitzero"`
	// StdinOpen keeps stdin open for Stdin.
	StdinOpen bool `json:"stdin_open,omitzero"`
	// TTY requests a terminal of this size.
	TTY *dray.TerminalSize `json:"tty,omitzero"`
	// TimeoutSeconds is 0 for the default of the tool or the configuration.
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`
	// LocalEnv contains the caller's values of the ${localEnv:X} in the workspace's configuration.
	LocalEnv map[string]string `json:"local_env,omitempty"`
	Context  dray.CallContext  `json:"context,omitzero"`
	// IdempotencyKey makes repeats of the request one call; empty for none. A call with a key goes on
	// when its stream is closed.
	IdempotencyKey string `json:"-"`
}

// Page is a page of a list. NextCursor is empty on the last page; a page that is not the last one
// may have fewer items than its limit. Unreadable lists damaged rows.
type Page[T any] struct {
	Items      []T             `json:"items"`
	NextCursor string          `json:"next_cursor"`
	Unreadable []UnreadableRow `json:"unreadable,omitempty"`
}

// UnreadableRow is a damaged row of the audit log.
type UnreadableRow struct {
	Seq     int64  `json:"seq"`
	Message string `json:"message"`
}

// Start starts a call and returns its events. Cancelling ctx or closing the stream cancels the
// call.
func (c *Client) Start(ctx context.Context, call Call) (*Stream, error) {
	return c.stream(ctx, "/v1/invocations", call)
}

// Cancel requests the end of a call. The stream of the call reports when it has ended.
func (c *Client) Cancel(ctx context.Context, id string) error {
	return c.command(ctx, invocationPath(id, "/cancel"), nil)
}

// CancelAndWait cancels a call and returns its record when it has ended.
func (c *Client) CancelAndWait(ctx context.Context, id string) (Reply[dray.Record], error) {
	return post[dray.Record](ctx, c, invocationPath(id, "/cancel"), nil)
}

// CancelSession cancels the caller's own calls of a session and returns their records when they
// have ended.
func (c *Client) CancelSession(ctx context.Context, session string,
) (Reply[Page[dray.Record]], error) {
	path := "/v1/sessions/cancel?" + url.Values{"session_id": {session}}.Encode()
	return post[Page[dray.Record]](ctx, c, path, nil)
}

func invocationPath(id, rest string) string {
	return "/v1/invocations/" + url.PathEscape(id) + rest
}

// Invocation returns one call of the audit log.
func (c *Client) Invocation(ctx context.Context, id string) (Reply[dray.Record], error) {
	return get[dray.Record](ctx, c, invocationPath(id, ""), nil)
}

// The versions of a stream's text. TextAuto is the rewritten one if it exists, else the raw one.
const (
	TextRaw  = "false"
	TextAuto = "auto"
)

// Output returns the captured stdout or stderr of a call; while the call runs, what was captured so
// far. The caller closes it.
func (c *Client) Output(ctx context.Context, id, stream, text string) (io.ReadCloser, error) {
	path := invocationPath(id, "/output/"+stream+"?"+url.Values{"rewritten": {text}}.Encode())
	resp, err := c.send(ctx, http.MethodGet, path, nil, "*/*")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// List is a list that the daemon returns in pages, newest first.
type List string

// The lists, of [dray.Record], [ChangedFile] and [AuditEvent].
const (
	Invocations  List = "/v1/invocations"
	ChangedFiles List = "/v1/audit/files"
	AuditEvents  List = "/v1/audit/events"
)

// FetchPage returns a page of a list. The filters are query parameters. T is the type of an item,
// or [jsontext.Value] for its JSON.
func FetchPage[T any](ctx context.Context, c *Client, list List, filters url.Values,
) (Page[T], error) {
	reply, err := get[Page[T]](ctx, c, string(list), filters)
	return reply.Value, err
}

// Invocations returns a page of calls, newest first. The filters are query parameters.
func (c *Client) Invocations(ctx context.Context, filters url.Values) (Page[dray.Record], error) {
	return FetchPage[dray.Record](ctx, c, Invocations, filters)
}

// AuditEvent is an event of the audit log. Body is an object that depends on the kind, or null.
type AuditEvent struct {
	Seq        int64          `json:"seq"`
	Kind       string         `json:"kind"`
	At         time.Time      `json:"at"`
	Invocation string         `json:"invocation"`
	Body       jsontext.Value `json:"body"`
}

// ChangedFile is a file that dray changed for a call. At is the end of the call.
type ChangedFile struct {
	Invocation string `json:"invocation"`
	dray.FileChange
	At time.Time `json:"at"`
}

// Route returns where a call would run, and why. Nothing runs.
func (c *Client) Route(ctx context.Context, call Call) (Reply[Route], error) {
	return post[Route](ctx, c, "/v1/route", call)
}

// Route is the routing decision for a call. Error is set if the call would be refused.
type Route struct {
	dray.Route
	Error *dray.Error `json:"error"`
}

// Resize sets the size of a call's terminal. It blocks until the call's process runs.
func (c *Client) Resize(ctx context.Context, id string, size dray.TerminalSize) error {
	return c.command(ctx, invocationPath(id, "/resize"), size)
}

const ndjson = "application/x-ndjson"

// Names of events.
const (
	EventState    = "state"
	EventProgress = "progress"
	EventStdout   = "stdout"
	EventStderr   = "stderr"
	EventEnd      = "end"
)

// PhaseStarted is the phase of the state event that reports the start of the process.
const PhaseStarted = "started"

// ErrOutputGap is returned if output is missing between two events: the client read too slowly.
var ErrOutputGap = errors.New("output was dropped because it was read too slowly")

// Stream is the sequence of events of one call. It must not be used concurrently.
type Stream struct {
	id    string
	body  io.ReadCloser
	dec   *jsontext.Decoder
	next  map[string]int64
	ended bool
}

// Event is a line of a stream.
type Event struct {
	Name string `json:"event"`
	// ID and Status are set for a state event, whose Phase is the step that is complete.
	ID     string      `json:"id"`
	Status dray.Status `json:"status"`
	// Phase and Message are set for a progress event.
	Phase   string `json:"phase"`
	Message string `json:"message"`
	// Offset is the number of bytes of the stream before those of a stdout or stderr event. Next
	// decodes Text and Base64 to Bytes.
	Offset int64   `json:"offset"`
	Text   *string `json:"text"`
	Base64 []byte  `json:"base64"`
	Bytes  []byte  `json:"-"`
	// Invocation is the record of the call in an end event.
	Invocation jsontext.Value `json:"invocation"`
}

// newStream reads the first event, which contains the id of the call. It is sent when the call is
// accepted, before anything runs.
func newStream(resp *http.Response) (*Stream, error) {
	s := &Stream{body: resp.Body, dec: jsontext.NewDecoder(resp.Body), next: map[string]int64{}}
	ev, err := s.Next()
	if err == nil && (ev.Name != EventState || ev.ID == "") {
		err = dray.Errorf(dray.CodeInternal, "the daemon sent no id for the call").
			WithHint("the daemon may be of another version: stop it and try again")
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	s.id = ev.ID
	return s, nil
}

// ID returns the id of the invocation.
func (s *Stream) ID() string { return s.id }

// Close closes the stream, and cancels the call if it still runs.
func (s *Stream) Close() error { return s.body.Close() }

// Next blocks until the next event. It returns io.EOF after the end event, and [ErrOutputGap] if
// output is missing. It returns each byte of output once, even if the daemon repeats it.
func (s *Stream) Next() (Event, error) {
	if s.ended {
		return Event{}, io.EOF
	}
	var ev Event
	if err := json.UnmarshalDecode(s.dec, &ev); err != nil {
		return Event{}, disconnectedError(err)
	}
	switch ev.Name {
	case EventStdout, EventStderr:
		return s.output(ev)
	case EventEnd:
		s.ended = true
	}
	return ev, nil
}

// output checks that an event continues where the previous one ended.
func (s *Stream) output(ev Event) (Event, error) {
	ev.Bytes = ev.Base64
	if ev.Text != nil {
		ev.Bytes = []byte(*ev.Text)
	}
	want := s.next[ev.Name]
	switch {
	case ev.Offset < 0:
		return ev, disconnectedError(fmt.Errorf("invalid offset %d", ev.Offset))
	case ev.Offset > want:
		return ev, fmt.Errorf("%w: %d bytes of %s after byte %d", ErrOutputGap, ev.Offset-want, ev.Name,
			want)
	case ev.Offset < want:
		ev.Bytes = ev.Bytes[min(want-ev.Offset, int64(len(ev.Bytes))):]
	}
	s.next[ev.Name] = want + int64(len(ev.Bytes))
	return ev, nil
}

var errDisconnected = errors.New("the connection to the daemon was lost")

// IsLost reports whether err means that the connection to the daemon broke while a call ran.
func IsLost(err error) bool { return errors.Is(err, errDisconnected) }

// disconnectedError returns the error for a stream that stopped before the end event.
func disconnectedError(err error) error {
	hung, ok := errors.AsType[*dray.Error](err)
	switch {
	case ok && errors.Is(hung, ErrUnresponsive):
		return hung
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return dray.Errorf(dray.CodeInternal, "%w: %w", errDisconnected, err).
		WithHint("see daemon.log in the state directory; run dray audit list to see how the call ended")
}

// Record decodes the record of an end event.
func (e Event) Record() (dray.Record, error) {
	var rec dray.Record
	if err := json.Unmarshal(e.Invocation, &rec); err != nil {
		return rec, dray.Errorf(dray.CodeInternal, "decode the record of the call: %w", err)
	}
	return rec, nil
}

// stdinChunk is the maximum size of one request in bytes: the size of a pipe's buffer, so that a
// slow reader slows down the writer.
const stdinChunk = 64 << 10

// stdinWait is the wait after a 429 without Retry-After.
const stdinWait = 100 * time.Millisecond

// Stdin sends the content of r to a running call, then end of file. It blocks while the tool does
// not read. It returns nil if the call has ended, whether or not the tool has read everything.
func (c *Client) Stdin(ctx context.Context, id string, r io.Reader) error {
	buf := make([]byte, stdinChunk)
	var offset int64
	for {
		n, readErr := r.Read(buf)
		eof := readErr == io.EOF
		if n > 0 || eof {
			if ended, err := c.write(ctx, id, offset, buf[:n], eof); ended || err != nil {
				return err
			}
		}
		offset += int64(n)
		if eof {
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("read stdin: %w", readErr)
		}
	}
}

// write sends one chunk, repeatedly while the daemon's buffer is full. The offset makes a repeat
// harmless.
func (c *Client) write(ctx context.Context, id string, offset int64, p []byte, eof bool,
) (ended bool, err error) {
	query := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if eof {
		query.Set("eof", "1")
	}
	target := invocationPath(id, "/stdin?"+query.Encode())
	for {
		wait, err := c.writeOnce(ctx, target, p)
		switch {
		case IsCallEnded(err):
			return true, nil
		case err != nil || wait == 0:
			return false, err
		}
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
	}
}

// writeOnce makes one request. It returns a positive wait if the request must be repeated.
func (c *Client) writeOnce(ctx context.Context, target string, p []byte) (time.Duration, error) {
	req, err := newRequest(ctx, http.MethodPost, target, bytes.NewReader(p))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.http.Do(req)
	if err != nil { // the call's stream returns the same error
		return 0, preferCause(ctx, disconnectedError(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return retryAfter(resp.Header), nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return 0, problemError(resp)
	}
	return 0, nil
}

// IsCallEnded reports whether err means that the call has ended, is being ended with the daemon, or
// no longer reads stdin.
func IsCallEnded(err error) bool {
	code := dray.CodeOf(err)
	return code == dray.CodeNotFound || code == dray.CodeConflict || code == dray.CodeShuttingDown
}

// retryAfter returns the wait in seconds. The daemon also sends fractions, which the standard does
// not have.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || seconds <= 0 || seconds > 60 {
		return stdinWait
	}
	return time.Duration(seconds * float64(time.Second))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
