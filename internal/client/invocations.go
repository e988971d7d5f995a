package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Call is the body of a call. Strings that are not UTF-8 cannot be sent: JSON has no form for them.
type Call struct {
	Tool string `json:"tool"`
	// Input may be left out where a call is routed only.
	Input       jsontext.Value         `json:"input,omitzero"`
	Workspace   string                 `json:"workspace,omitzero"`
	Container   string                 `json:"container,omitzero"`
	Environment dray.EnvironmentChoice `json:"environment,omitzero"`
	Cwd         string                 `json:"cwd,omitzero"`
	Env         map[string]string      `json:"env,omitempty"`
	// Leftovers "keep" leaves the processes that the tool leaves running to the environment.
	Leftovers dray.Leftovers `json:"leftovers,omitzero"`
	// RewriteText has the paths in text rewritten; nil leaves it to the tool.
	RewriteText *bool `json:"rewrite_text,omitempty"`
	// Sync are files and folders to bring home when the call ends.
	Sync []string `json:"sync,omitempty"`
	// OnSlowReader "wait" has the tool wait for the stream of Start, as it would for a pipe.
	OnSlowReader string `json:"on_slow_reader,omitzero"`
	// StdinOpen announces that Stdin follows.
	StdinOpen bool `json:"stdin_open,omitzero"`
	// TTY asks for a terminal of that size.
	TTY *dray.TerminalSize `json:"tty,omitzero"`
	// TimeoutSeconds is absent where it is 0: then the tool's or the configured default holds.
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`
	// LocalEnv holds the caller's values of the ${localEnv:X} that the workspace's configuration uses.
	LocalEnv map[string]string `json:"local_env,omitempty"`
}

// Page is one page of a list. NextCursor is empty on the last.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor"`
}

// Start starts a call and gives its events while it runs. Ending the context, or closing the
// stream, takes the client away, and with it the call.
func (c *Client) Start(ctx context.Context, call Call) (*Stream, error) {
	return c.stream(ctx, "/v1/invocations", call)
}

// Cancel asks that a call ends. Its stream tells when it has.
func (c *Client) Cancel(ctx context.Context, id string) error {
	resp, err := c.send(ctx, http.MethodPost, "/v1/invocations/"+url.PathEscape(id)+"/cancel", nil,
		"application/json")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Invocation gives one call of the trail.
func (c *Client) Invocation(ctx context.Context, id string) (Reply[dray.Record], error) {
	return get[dray.Record](ctx, c, "/v1/invocations/"+url.PathEscape(id), nil)
}

// The texts of a stream. Shown is the one whose paths were rewritten, where there is one, else what
// was printed.
const (
	TextRaw       = "false"
	TextRewritten = "true"
	TextAuto      = "auto"
)

// Output gives what is kept of one text of a call's stdout or stderr, while it runs what is kept so
// far. The caller closes it.
func (c *Client) Output(ctx context.Context, id, stream, text string) (io.ReadCloser, error) {
	path := "/v1/invocations/" + url.PathEscape(id) + "/output/" + stream + "?" +
		url.Values{"rewritten": {text}}.Encode()
	resp, err := c.send(ctx, http.MethodGet, path, nil, "*/*")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Invocations gives a page of the trail, newest first. The filters are those of the HTTP interface.
func (c *Client) Invocations(ctx context.Context, filters url.Values) (Reply[Page[dray.Record]],
	error,
) {
	return get[Page[dray.Record]](ctx, c, "/v1/invocations", filters)
}

// ChangedFiles gives a page of the files that dray changed, newest first. The filters are those of
// the HTTP interface.
func (c *Client) ChangedFiles(ctx context.Context, filters url.Values) (Reply[Page[ChangedFile]],
	error,
) {
	return get[Page[ChangedFile]](ctx, c, "/v1/audit/files", filters)
}

// ChangedFile is a file that dray changed for a call, which ended at At.
type ChangedFile struct {
	Invocation string `json:"invocation"`
	PlanID     string `json:"plan_id"`
	dray.FileChange
	At time.Time `json:"at"`
}

// Route says where a call would run, and why. Nothing runs.
func (c *Client) Route(ctx context.Context, call Call) (Reply[Route], error) {
	return exchange[Route](ctx, c, http.MethodPost, "/v1/route", call)
}

// Route is the decision for a call. Where the call would be refused, Error says why, and the rest
// what was looked at.
type Route struct {
	dray.Route
	Error *dray.Error `json:"error"`
}

// Resize changes the size of the terminal of a call that was started with one. It waits until the
// call's process runs.
func (c *Client) Resize(ctx context.Context, id string, size dray.TerminalSize) error {
	resp, err := c.send(ctx, http.MethodPost, "/v1/invocations/"+url.PathEscape(id)+"/resize", size,
		"application/json")
	if err != nil {
		return err
	}
	return resp.Body.Close()
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

// PhaseStarted is the phase of the state event that tells of the process.
const PhaseStarted = "started"

// ErrOutputGap says that output is missing between two events: the client was too slow, and the
// daemon went on without it.
var ErrOutputGap = errors.New("a part of the output was not received")

// Stream is the events of one call, in order. It is used by one goroutine.
type Stream struct {
	id    string
	body  io.ReadCloser
	dec   *jsontext.Decoder
	next  map[string]int64
	ended bool
}

// Event is one line of a stream. The fields behind Name belong to the events that their comments
// name.
type Event struct {
	Seq  uint64 `json:"seq"`
	Name string `json:"event"`
	// ID and Status: state. The phase of a state says which step is done.
	ID     string      `json:"id"`
	Status dray.Status `json:"status"`
	// Phase and Message: progress.
	Phase   string `json:"phase"`
	Message string `json:"message"`
	// Offset counts the bytes of the stream before these: stdout, stderr. Next takes care of Text and
	// Base64; Bytes has what is new.
	Offset int64   `json:"offset"`
	Text   *string `json:"text"`
	Base64 []byte  `json:"base64"`
	Bytes  []byte  `json:"-"`
	// Invocation is the call: end.
	Invocation jsontext.Value `json:"invocation"`
}

// newStream reads the first event, which names the call. It comes as soon as the call is accepted,
// long before anything runs.
func newStream(resp *http.Response) (*Stream, error) {
	s := &Stream{body: resp.Body, dec: jsontext.NewDecoder(resp.Body), next: map[string]int64{}}
	ev, err := s.Next()
	if err == nil && (ev.Name != EventState || ev.ID == "") {
		err = dray.Errorf(dray.CodeInternal, "the daemon accepted the call and did not name it").
			WithHint("daemon and command may be of different versions: end the daemon and try again")
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	s.id = ev.ID
	return s, nil
}

// ID is the invocation's.
func (s *Stream) ID() string { return s.id }

// Close ends the stream, and the call if it still runs.
func (s *Stream) Close() error { return s.body.Close() }

// Next waits for the next event. After the end event it gives io.EOF; a stream that stops before is
// an error, and so is a hole in it ([ErrOutputGap]). Output that was given already is cut off, so
// that every byte is given once.
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

// output checks that an event goes on where the one before ended.
func (s *Stream) output(ev Event) (Event, error) {
	ev.Bytes = ev.Base64
	if ev.Text != nil {
		ev.Bytes = []byte(*ev.Text)
	}
	want := s.next[ev.Name]
	switch {
	case ev.Offset < 0:
		return ev, disconnectedError(fmt.Errorf("%d is no offset", ev.Offset))
	case ev.Offset > want:
		return ev, fmt.Errorf("%w: %d bytes of %s after byte %d", ErrOutputGap, ev.Offset-want, ev.Name,
			want)
	case ev.Offset < want:
		ev.Bytes = ev.Bytes[min(want-ev.Offset, int64(len(ev.Bytes))):]
	}
	s.next[ev.Name] = want + int64(len(ev.Bytes))
	return ev, nil
}

var errDisconnected = errors.New("the daemon was lost")

// IsLost says that the connection to the daemon broke while a call ran.
func IsLost(err error) bool { return errors.Is(err, errDisconnected) }

// disconnectedError says that the stream stopped before the call's end did arrive.
func disconnectedError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the end of the connection is not that of the call
	}
	return dray.Errorf(dray.CodeInternal, "%w before the end: %w", errDisconnected, err).
		WithHint("its log is daemon.log in the state folder; the trail tells how a call ended: dray audit list")
}

// Record reads the call that an end event carries.
func (e Event) Record() (dray.Record, error) {
	var rec dray.Record
	if err := json.Unmarshal(e.Invocation, &rec); err != nil {
		return rec, dray.Errorf(dray.CodeInternal, "understanding how the call ended: %w", err)
	}
	return rec, nil
}
