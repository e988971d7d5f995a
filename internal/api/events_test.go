package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// scriptedOutput is a tool that runs functions of the test.
type scriptedOutput struct {
	do   chan func(dray.Sink)
	done chan struct{}
}

func newScriptedOutput() *scriptedOutput {
	return &scriptedOutput{make(chan func(dray.Sink)), make(chan struct{})}
}

func (k *scriptedOutput) run(_ context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
	for {
		select {
		case f := <-k.do:
			f(sink)
		case <-k.done:
			return exited(0), nil
		}
	}
}

func (k *scriptedOutput) print(stream dray.Stream, text string) {
	k.do <- func(s dray.Sink) { s.Output(stream, []byte(text)) }
}

// Events are sent while the tool runs, numbered from 1, and can be read after any number (CA-07).
func TestEvents(t *testing.T) {
	k := newScriptedOutput()
	d := start(t, func(p *fakeDeps) { p.run = k.run })
	f := d.follow("POST", "/v1/invocations", callBody)
	if l, _ := f.next(); l.Seq != 1 || l.Event != "state" || l.Status != "running" ||
		l.Phase != "accepted" || l.ID != f.id() {
		t.Fatalf("%+v", l)
	}
	k.do <- func(s dray.Sink) { s.Progress("build", "step \x1b[31m1\n") }
	if l, _ := f.next(); l.Seq != 2 || l.Event != "progress" || l.Phase != "build" ||
		l.Message != "step \x1b[31m1\n" {
		t.Errorf("%+v", l)
	}
	k.do <- func(s dray.Sink) { s.Started() }
	if l, _ := f.next(); l.Seq != 3 || l.Event != "state" || l.Phase != "started" {
		t.Errorf("%+v", l)
	}
	for i, out := range []struct {
		stream dray.Stream
		name   string
		text   string
		offset int64
	}{
		{dray.Stdout, "stdout", "one\n", 0},
		{dray.Stderr, "stderr", "warn <&>\u2028", 0},
		{dray.Stdout, "stdout", "two\n", 4},
		{dray.Stdout, "stdout", "\xff\xfe\x00", 8},
	} {
		k.print(out.stream, out.text)
		l, _ := f.next()
		if got := l.Text + string(l.Base64); l.Seq != int64(4+i) || l.Event != out.name ||
			l.Offset != out.offset || got != out.text {
			t.Errorf("%+v, want %q", l, out.text)
		}
		if (l.Base64 != nil) != (out.text[0] == 0xff) {
			t.Errorf("encoding of %q: %+v", out.text, l)
		}
	}
	close(k.done)
	end, _ := f.next()
	if whole := d.do("GET", "/v1/invocations/"+f.id(), ""); end.Seq != 8 || end.Event != "end" ||
		!bytes.Equal(end.Invocation, whole.body) {
		t.Errorf("%+v, want %s", end, whole.body)
	}
	if l, more := f.next(); more {
		t.Errorf("after the end: %+v", l)
	}
	begin := d.follow("GET", "/v1/invocations/"+f.id()+"/events", "").all()
	for after := range int64(8) {
		all := d.follow("GET", fmt.Sprintf("/v1/invocations/%s/events?after=%d", f.id(), after), "").all()
		if int64(len(all)) != 8-after || all[0].Seq != after+1 || all[len(all)-1].Event != "end" ||
			!all[0].At.Equal(begin[after].At) {
			t.Errorf("after %d: %+v", after, all)
		}
	}
	if all := d.follow("GET", "/v1/invocations/"+f.id()+"/events?after=8", "").all(); len(all) != 0 {
		t.Errorf("after the end: %+v", all)
	}
}

func TestServerSentEvents(t *testing.T) {
	d := start(t, nil)
	a := d.do("POST", "/v1/invocations", callBody, "Accept: text/event-stream")
	id := strings.TrimPrefix(a.header.Get("Location"), "/v1/invocations/")
	record := d.do("GET", "/v1/invocations/"+id, "").body
	events := d.follow("GET", a.header.Get("Location")+"/events", "").all()
	at := func(seq int) string {
		return `"at":"` + events[seq-1].At.Format(time.RFC3339Nano) + `",`
	}
	want := []string{
		"id: 1\nevent: state\ndata: {" + at(1) + "\"id\":\"" + id +
			"\",\"status\":\"running\",\"phase\":\"accepted\"}\n\n",
		"id: 2\nevent: state\ndata: {" + at(2) + "\"status\":\"running\",\"phase\":\"started\"}\n\n",
		"id: 3\nevent: stdout\ndata: {" + at(3) + "\"offset\":0,\"text\":\"hello\\n\"}\n\n",
		"id: 4\nevent: end\ndata: {" + at(4) + "\"invocation\":" + string(record) + "}\n\n",
	}
	if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" ||
		string(a.body) != strings.Join(want, "") {
		t.Errorf("%d %v\n%s", a.status, a.header, a.body)
	}
	// a browser repeats the URL and sends the last id in a header
	a = d.do("GET", "/v1/invocations/"+id+"/events?after=1", "", "Last-Event-ID: 3")
	if a.header.Get("Content-Type") != "text/event-stream" || string(a.body) != want[3] {
		t.Errorf("%s", a.body)
	}
	if a := d.do("GET", "/v1/invocations/"+id+"/events", "", "Last-Event-ID: 4"); a.status != 204 ||
		len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A call that only the audit log has gets its end event.
func TestEvents_FromAuditLog(t *testing.T) {
	d := start(t, nil)
	rec := dray.NewRecord(dray.Invocation{ID: someID, Tool: "exec", Principal: selfPrincipal},
		time.Now()).WithResult(dray.NormalizeResult(exited(0), nil))
	d.audit.put(rec)
	whole := d.do("GET", "/v1/invocations/"+someID, "")
	all := d.follow("GET", "/v1/invocations/"+someID+"/events?after=17", "").all()
	if len(all) != 1 || all[0].Seq != 18 || !all[0].At.Equal(*rec.EndedAt) || all[0].Event != "end" ||
		!bytes.Equal(all[0].Invocation, whole.body) {
		t.Errorf("%+v", all)
	}
}

// The response of a stream begins before the first event.
func TestEvents_BeginsWithoutEvent(t *testing.T) {
	k := newScriptedOutput()
	d := start(t, func(p *fakeDeps) { p.run = k.run })
	id := d.do("POST", "/v1/invocations?wait_ms=0", callBody).record(t).ID
	// the status of the response is sent before the next event
	f := d.follow("GET", "/v1/invocations/"+id+"/events?after=1", "")
	k.print(dray.Stdout, "x")
	if l, _ := f.next(); l.Seq != 2 || l.Text != "x" {
		t.Errorf("%+v", l)
	}
	close(k.done)
}

// A slow reader delays neither the tool nor other readers, and misses nothing that is captured
// (CA-07).
func TestEvents_SlowReader(t *testing.T) {
	const total = 6 << 20 // more than is in memory
	output := bytes.Repeat([]byte("0123456789abcde\n"), total/16)
	captured := captures{}
	release := make(chan struct{})
	d := start(t, func(p *fakeDeps) {
		p.captures = captured
		p.run = func(_ context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			<-release
			for rest := output; len(rest) > 0; rest = rest[64<<10:] {
				sink.Output(dray.Stdout, rest[:64<<10])
			}
			return exited(0), nil
		}
	})
	id := d.do("POST", "/v1/invocations?wait_ms=0", callBody).record(t).ID
	captured[id+".stdout"] = output
	slow, err := net.Dial("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow,
		"GET /v1/invocations/%s/events HTTP/1.0\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n", id)
	fast := d.follow("GET", "/v1/invocations/"+id+"/events", "")
	close(release)
	if a := d.do("GET", "/v1/invocations/"+id+"?wait_ms=60000", ""); a.record(t).
		Status != dray.StatusSucceeded {
		t.Fatalf("%s", a.body)
	}
	if got := concatOutput(t, fast.all()); !bytes.Equal(got, output) {
		t.Errorf("the fast reader got %d bytes", len(got))
	}
	b, err := io.ReadAll(slow)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(b, []byte("\r\n\r\n"))
	var all []line
	for l := range bytes.Lines(body) {
		var ev line
		if err := json.Unmarshal(l, &ev); err != nil {
			t.Fatal(err)
		}
		all = append(all, ev)
	}
	if got := concatOutput(t, all); !bytes.Equal(got, output) {
		t.Errorf("the slow reader got %d bytes", len(got))
	}
}

// concatOutput returns the stdout in events, and checks that sequence numbers and offsets have no
// gap.
func concatOutput(t *testing.T, all []line) []byte {
	t.Helper()
	var got []byte
	for i, l := range all {
		if l.Seq != int64(i+1) {
			t.Fatalf("event %d has the sequence number %d", i+1, l.Seq)
		}
		if l.Event != "stdout" {
			continue
		}
		if l.Offset != int64(len(got)) {
			t.Fatalf("event %d has the offset %d, want %d", l.Seq, l.Offset, len(got))
		}
		got = append(got, l.Text...)
		got = append(got, l.Base64...)
	}
	if all[len(all)-1].Event != "end" {
		t.Fatal("the end event is missing")
	}
	return got
}

// With on_slow_reader: wait the tool waits for the reader of its response. Cancelling it does not.
func TestOnSlowReader_Wait(t *testing.T) {
	const size = 12 << 20
	written := make(chan int, 2)
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			n := 0
			for ; n < size && ctx.Err() == nil; n += 64 << 10 {
				sink.Output(dray.Stdout, bytes.Repeat([]byte("x"), 64<<10))
			}
			written <- n
			return exited(0), nil
		}
	})
	const waitBody = `{"tool":"exec","on_slow_reader":"wait"}`
	all := d.follow("POST", "/v1/invocations", waitBody)
	// nothing is captured, so all of it came from memory
	if got := concatOutput(t, all.all()); len(got) != size {
		t.Errorf("read %d bytes", len(got))
	}
	if n := <-written; n != size {
		t.Errorf("wrote %d bytes", n)
	}
	idle := d.follow("POST", "/v1/invocations", waitBody)
	if a := d.do("POST", "/v1/invocations/"+idle.id()+"/cancel", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := <-written; n == size {
		t.Error("the tool did not wait")
	}
}

// Every event has its time, in order, and the end event that of the record.
func TestEventsHaveTimes(t *testing.T) {
	d := start(t, nil)
	before := time.Now()
	f := d.follow("POST", "/v1/invocations", callBody)
	all := f.all()
	for _, l := range all {
		if l.At.Before(before) || l.At.Location() != time.UTC {
			t.Errorf("%s has the time %v, after %v", l.Event, l.At, before)
		}
		before = l.At
	}
	var rec struct {
		EndedAt time.Time `json:"ended_at"`
	}
	end := all[len(all)-1]
	if err := json.Unmarshal(end.Invocation, &rec); err != nil || !end.At.Equal(rec.EndedAt) {
		t.Errorf("the end event has the time %v, the record %v (%v)", end.At, rec.EndedAt, err)
	}
}
