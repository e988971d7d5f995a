package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

const accepted = `{"seq":1,"event":"state","id":"i1","status":"running","phase":"accepted"}` + "\n"

// stream starts a call with the given events.
func stream(t *testing.T, events string) (*Stream, error) {
	t.Helper()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept"); got != ndjson {
			t.Errorf("Accept is %q", got)
		}
		_, _ = io.WriteString(w, events)
	})
	s, err := c.Start(t.Context(), Call{Tool: "exec", Input: []byte(`{"argv":["x"]}`)})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

func TestStreamReturnsEveryByteOnce(t *testing.T) {
	s, err := stream(t, accepted+
		`{"seq":2,"event":"progress","phase":"build","message":"step 1"}
		 {"seq":3,"event":"stdout","offset":0,"text":"hel"}
		 {"seq":4,"event":"stderr","offset":0,"base64":"/wA="}
		 {"seq":5,"event":"stdout","offset":2,"text":"llo"}
		 {"seq":6,"event":"stdout","offset":1,"text":"el"}
		 {"seq":7,"event":"later","whatever":[1]}
		 {"seq":8,"event":"end","invocation":{"id":"i1","status":"succeeded","reason":"exited","exit_code":0}}
		`)
	if err != nil {
		t.Fatal(err)
	}
	if s.ID() != "i1" {
		t.Errorf("id %q", s.ID())
	}
	got := map[string]string{}
	var last Event
	for ev, err := s.Next(); !errors.Is(err, io.EOF); ev, err = s.Next() {
		if err != nil {
			t.Fatal(err)
		}
		got[ev.Name] += string(ev.Bytes)
		last = ev
	}
	if got[EventStdout] != "hello" || got[EventStderr] != "\xff\x00" {
		t.Errorf("got %q", got)
	}
	rec, err := last.Record()
	if err != nil || rec.Status != dray.StatusSucceeded || *rec.ExitCode != 0 {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestBrokenStreams(t *testing.T) {
	tests := map[string]struct {
		events string
		want   string
	}{
		"gap":                   {accepted + `{"seq":2,"event":"stdout","offset":0,"text":"ab"}{"seq":9,"event":"stdout","offset":5,"text":"f"}`, "3 bytes of stdout after byte 2"},
		"ends before the call":  {accepted, "the connection to the daemon was lost"},
		"ends inside an event":  {accepted + `{"seq":2,"event":"std`, "the connection to the daemon was lost"},
		"no id":                 {`{"seq":1,"event":"progress","phase":"x"}`, "sent no id"},
		"is empty":              {"", "the connection to the daemon was lost"},
		"is no JSON":            {accepted + "oops", "the connection to the daemon was lost"},
		"has two keys the same": {accepted + `{"seq":2,"event":"stdout","event":"end"}`, "the connection to the daemon was lost"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := stream(t, tt.events)
			for err == nil {
				_, err = s.Next()
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
			if gap := errors.Is(err, ErrOutputGap); gap != (name == "gap") {
				t.Errorf("ErrOutputGap: %v", gap)
			}
		})
	}
}

// FuzzStream checks that a stream returns only bytes that were sent, and none of them twice.
func FuzzStream(f *testing.F) {
	f.Add(`{"seq":2,"event":"stdout","offset":0,"text":"ab"}`)
	f.Add(`{"seq":2,"event":"stdout","offset":-5,"base64":"/wA="}{"event":"stdout","offset":1}`)
	f.Fuzz(func(t *testing.T, events string) {
		s, err := newStream(&http.Response{Body: io.NopCloser(strings.NewReader(accepted + events))})
		if err != nil {
			t.Fatal(err)
		}
		var total int64
		for {
			ev, err := s.Next()
			if err != nil {
				return
			}
			if ev.Name == EventStdout {
				total += int64(len(ev.Bytes))
				if total != s.next[EventStdout] {
					t.Fatalf("returned %d bytes, counted %d", total, s.next[EventStdout])
				}
			}
		}
	})
}
