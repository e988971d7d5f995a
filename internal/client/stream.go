package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

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

// ErrOutputGap says that output is missing between two events: the client was too slow, and the daemon went on without it.
var ErrOutputGap = errors.New("a part of the output was not received")

// Stream is the events of one call, in order. It is used by one goroutine.
type Stream struct {
	id    string
	body  io.ReadCloser
	dec   *jsontext.Decoder
	next  map[string]int64
	ended bool
}

// Event is one line of a stream. The fields behind Name belong to the events that their comments name.
type Event struct {
	Seq  uint64 `json:"seq"`
	Name string `json:"event"`
	// ID and Status: state. The phase of a state says which step is done.
	ID     string      `json:"id"`
	Status dray.Status `json:"status"`
	// Phase and Message: progress.
	Phase   string `json:"phase"`
	Message string `json:"message"`
	// Offset counts the bytes of the stream before these: stdout, stderr. Next takes care of Text and Base64; Bytes has what is new.
	Offset int64   `json:"offset"`
	Text   *string `json:"text"`
	Base64 []byte  `json:"base64"`
	Bytes  []byte  `json:"-"`
	// Invocation is the call: end.
	Invocation jsontext.Value `json:"invocation"`
}

// newStream reads the first event, which names the call. It comes as soon as the call is accepted, long before anything runs.
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

// Next waits for the next event. After the end event it gives io.EOF; a stream that stops before is an error, and so is a hole in it ([ErrOutputGap]).
// Output that was given already is cut off, so that every byte is given once.
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
		return ev, fmt.Errorf("%w: %d bytes of %s after byte %d", ErrOutputGap, ev.Offset-want, ev.Name, want)
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
