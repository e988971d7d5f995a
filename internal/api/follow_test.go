package api_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// line is one event as NDJSON.
type line struct {
	Seq        int64           `json:"seq"`
	Event      string          `json:"event"`
	At         time.Time       `json:"at"`
	Status     string          `json:"status"`
	ID         string          `json:"id"`
	Phase      string          `json:"phase"`
	Message    string          `json:"message"`
	Offset     int64           `json:"offset"`
	Text       string          `json:"text"`
	Base64     []byte          `json:"base64"`
	Invocation json.RawMessage `json:"invocation"`
	Workspace  json.RawMessage `json:"workspace"`
	Pruned     json.RawMessage `json:"pruned"`
	Error      *dray.Error     `json:"error"`
}

// follower reads a stream of events.
type follower struct {
	t    testing.TB
	resp *http.Response
	in   *bufio.Reader
}

// follow opens a stream as NDJSON.
func (d *daemon) follow(method, path, body string) *follower {
	d.t.Helper()
	resp, err := d.client.Do(d.request(method, path, body, "Accept: application/x-ndjson"))
	if err != nil {
		d.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		d.t.Fatalf("%s %s: %s %s", method, path, resp.Status, b)
	}
	d.t.Cleanup(func() { resp.Body.Close() })
	return &follower{d.t, resp, bufio.NewReader(resp.Body)}
}

// id returns the id of the call in the headers of the response.
func (f *follower) id() string { return filepath.Base(f.resp.Header.Get("Location")) }

// next returns the next event, and false at the end of the stream.
func (f *follower) next() (line, bool) {
	f.t.Helper()
	b, err := f.in.ReadBytes('\n')
	if err == io.EOF && len(b) == 0 {
		return line{}, false
	}
	if err != nil {
		f.t.Fatal(err)
	}
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		f.t.Fatalf("%v: %s", err, b)
	}
	return l, true
}

// until returns the next event with a name and skips others.
func (f *follower) until(name string) line {
	f.t.Helper()
	for {
		l, ok := f.next()
		if !ok {
			f.t.Fatalf("the stream ended without %s", name)
		}
		if l.Event == name {
			return l
		}
	}
}

// all reads the stream to its end.
func (f *follower) all() []line {
	f.t.Helper()
	var all []line
	for l, ok := f.next(); ok; l, ok = f.next() {
		all = append(all, l)
	}
	return all
}
