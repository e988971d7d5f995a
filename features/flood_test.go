package features

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	// flooded is the number of bytes that the tool prints on each stream, of which floodKept are
	// captured.
	flooded   = 64 << 20
	floodKept = 8 << 20
	// slowPiece is what a slow reader reads twenty times a second: a megabyte each second.
	slowPiece = 50 << 10
)

// A reader of one megabyte a second does not delay a tool that floods both streams, or other calls.
// After the end of the tool the reader gets the rest of the captured output, in sequence and
// without gaps. The daemon's memory does not grow (CA-01, CA-07).
func TestSlowReaderBesideAFlood(t *testing.T) {
	root := newDir(t)
	d := startDaemon(t, fmt.Sprintf("host: {roots: [%s]}\nlimits: {capture: %d}\n", root, floodKept))
	call := func(query string, argv ...string) answer {
		t.Helper()
		body := map[string]any{
			"tool": "exec", "input": map[string]any{"argv": argv}, "cwd": root,
			"environment": "host",
		}
		a, err := d.call(t.Context(), query, body)
		if err != nil || a.status/100 != 2 {
			t.Fatalf("%v: %s", err, a.raw)
		}
		return a
	}
	before := memoryInUse()
	script := fmt.Sprintf("while [ ! -e go ]; do sleep 0.01; done; head -c %d /dev/zero >&2 & "+
		"head -c %[1]d /dev/zero; wait", flooded)
	id := call("?wait_ms=0", "sh", "-c", "cd "+root+"; "+script).id()
	reader := followSlowly(t, d, "/v1/invocations/"+id+"/events")
	writeFiles(t, root, map[string]string{"go": ""})
	others, peak := 0, uint64(0)
	for over := false; !over; others++ {
		if a := call("", "true"); a.at("/status") != "succeeded" {
			t.Fatalf("another call: %s", a.raw)
		}
		peak = max(peak, memoryInUse())
		a, err := d.ask(t.Context(), http.MethodGet, "/v1/invocations/"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		over = a.at("/status") != "running"
	}
	behind := reader.hurry()
	end, err := d.ask(t.Context(), http.MethodGet, "/v1/invocations/"+id, nil)
	if err != nil || end.at("/status") != "succeeded" {
		t.Fatalf("%v: %s", err, end.raw)
	}
	for _, stream := range []string{"/stdout", "/stderr"} {
		got := fmt.Sprintf("%v of %v", end.at(stream+"/kept_bytes"), end.at(stream+"/total_bytes"))
		if want := fmt.Sprintf("%d of %d", floodKept, flooded); got != want {
			t.Errorf("%s: captured %s, want %s", stream, got, want)
		}
	}
	if behind > flooded {
		t.Errorf("the reader was not slow: it had %d bytes at the end of the tool", behind)
	}
	if grown := int64(peak) - int64(before); grown > 64<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	t.Logf("%d other calls ended meanwhile; the reader had %d bytes when the tool was over", others,
		behind)
	reader.check(t)
}

func memoryInUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// slowReader follows the events of a call at its own pace.
type slowReader struct {
	resp   *http.Response
	fast   chan struct{} // closed when it may read without delay
	had    chan int64    // the bytes that it had read before
	done   sync.WaitGroup
	events []slowEvent
	err    error
}

type slowEvent struct {
	Seq    int64
	Event  string
	Offset int64
	size   int64
}

// largestEvent is the maximum output of an event. A partly captured event is not sent to a reader.
const largestEvent = 32 << 10

func followSlowly(t *testing.T, d *daemon, path string) *slowReader {
	t.Helper()
	resp, err := d.send(t.Context(), http.MethodGet, path, nil, "application/x-ndjson") //nolint:bodyclose // check closes it
	if err != nil {
		t.Fatal(err)
	}
	r := &slowReader{resp: resp, fast: make(chan struct{}), had: make(chan int64, 1)}
	r.done.Go(r.read)
	return r
}

func (r *slowReader) hurry() int64 {
	close(r.fast)
	return <-r.had
}

// read reads a piece at each tick until fast is closed, then the rest.
func (r *slowReader) read() {
	pipe, lines := io.Pipe()
	r.done.Go(func() {
		tick := time.NewTicker(time.Second / 20)
		defer tick.Stop()
		var n int64
		for slow := true; slow; {
			select {
			case <-tick.C:
				m, err := io.CopyN(lines, r.resp.Body, slowPiece)
				n += m
				slow = err == nil
			case <-r.fast:
				slow = false
			}
		}
		r.had <- n
		_, err := io.Copy(lines, r.resp.Body)
		_ = lines.CloseWithError(err)
	})
	scanner := bufio.NewScanner(pipe)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var ev struct {
			slowEvent
			Text   string
			Base64 []byte
		}
		if err := json.Unmarshal(scanner.Bytes(), &ev); err != nil {
			r.err = err
		}
		ev.size = int64(len(ev.Text) + len(ev.Base64))
		r.events = append(r.events, ev.slowEvent)
	}
}

// check compares what was received with what was captured.
func (r *slowReader) check(t *testing.T) {
	t.Helper()
	r.done.Wait()
	_ = r.resp.Body.Close()
	if r.err != nil || len(r.events) == 0 || r.events[len(r.events)-1].Event != "end" {
		t.Fatalf("%d events, %v", len(r.events), r.err)
	}
	next, last := map[string]int64{}, int64(0)
	for _, ev := range r.events {
		if ev.Seq <= last {
			t.Fatalf("event %d follows event %d", ev.Seq, last)
		}
		last = ev.Seq
		if ev.Event != "stdout" && ev.Event != "stderr" {
			continue
		}
		if ev.Offset != next[ev.Event] && next[ev.Event] <= floodKept-largestEvent {
			t.Fatalf("%s has a gap from %d to %d", ev.Event, next[ev.Event], ev.Offset)
		}
		next[ev.Event] = ev.Offset + ev.size
	}
}
