package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

const testGeneration = 7

// peer is the other end of a conn: a worker whose frames the test writes.
type peer struct {
	t        testing.TB
	conn     *conn
	in       *os.File // the worker's stdin
	out      *os.File // and its stdout
	frames   *frameReader
	sequence uint32
	kills    chan struct{} // buffered for more than one
	err      error         // of run, after ended
	ended    chan struct{}
}

// newPeer starts a conn over real pipes. prepare sets fields of the conn before it runs.
func newPeer(t testing.TB, prepare ...func(*conn)) *peer {
	t.Helper()
	workerOut, out := pipeFiles(t)
	in, workerIn := pipeFiles(t)
	p := &peer{
		t: t, in: in, out: out, frames: newFrameReader(in, testGeneration),
		kills: make(chan struct{}, 9), ended: make(chan struct{}),
		conn: newConn(workerOut, workerIn, testGeneration),
	}
	p.conn.kill = func() { // the end of a process closes its ends of both pipes
		p.kills <- struct{}{}
		_ = out.Close()
		_ = in.Close()
	}
	for _, f := range prepare {
		f(p.conn)
	}
	var running sync.WaitGroup
	running.Go(func() {
		p.err = p.conn.run()
		close(p.ended)
	})
	t.Cleanup(func() {
		_ = out.Close()
		running.Wait()
		for _, f := range []*os.File{workerOut, workerIn, in} {
			_ = f.Close()
		}
		if n := len(p.kills); n != 1 {
			t.Errorf("the worker was killed %d times", n)
		}
	})
	return p
}

func pipeFiles(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// write writes a frame with the next sequence.
func (p *peer) write(k kind, request uint32, body string) {
	h := header{
		body: len(body), kind: k, generation: testGeneration, request: request, sequence: p.sequence,
	}
	p.sequence++
	p.raw(append(h.append(nil), body...))
}

// raw writes bytes. That fails if the worker was killed meanwhile.
func (p *peer) raw(b []byte) { _, _ = p.out.Write(b) }

// read returns the next frame to the worker.
func (p *peer) read() (header, string) {
	p.t.Helper()
	h, err := p.frames.next()
	if err != nil && h.kind == 0 {
		p.t.Errorf("read a frame: %v", err)
		return h, ""
	}
	body, err := p.frames.read(nil, h.body)
	if err != nil {
		p.t.Errorf("read a body: %v", err)
	}
	return h, string(body)
}

const testHello = `{"python":"3.11.2","executable":"/usr/bin/python3","prefix":"/usr"}`

// readyPeer returns a peer that has sent its hello.
func readyPeer(t testing.TB, prepare ...func(*conn)) *peer {
	t.Helper()
	p := newPeer(t, prepare...)
	p.write(kindHello, 0, testHello)
	hello, err := p.conn.hello(context.Background())
	if err != nil || hello.Python != "3.11.2" {
		t.Fatalf("hello: %+v, %v", hello, err)
	}
	return p
}

func (p *peer) execute(req Request) *execution {
	p.t.Helper()
	e, err := p.conn.execute(req, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// collect reads both streams until the request has ended.
func collect(e *execution) (stdout, stderr string) {
	var readers sync.WaitGroup
	readers.Go(func() { stdout = readAll(e.Output(dray.Stdout)) })
	readers.Go(func() { stderr = readAll(e.Output(dray.Stderr)) })
	readers.Wait()
	<-e.Done()
	return stdout, stderr
}

func readAll(r io.Reader) string {
	b, _ := io.ReadAll(r)
	return string(b)
}

const okReply = `{"ok":true,"code":0,"value":2,"usage":{"wall_ms":1,"cpu_ms":1,"memory_bytes":9}}`

// Two requests one after the other on one worker: each has its output before its reply, and stdin
// arrives in frames with its end (PY-08).
func TestConn_RequestsOneAfterTheOther(t *testing.T) {
	p := readyPeer(t)
	for request := uint32(1); request <= 2; request++ {
		e := p.execute(Request{Code: "1+1"})
		if h, body := p.read(); h.kind != kindRequestEnd || h.request != request ||
			!strings.Contains(body, `"code":"1+1"`) {
			t.Fatalf("request: %+v %s", h, body)
		}
		if _, err := p.conn.execute(Request{}, nil); err == nil {
			t.Fatal("a second request at a time was accepted")
		}
		text := strings.Repeat("x", maxStdin) + "y"
		var feeding sync.WaitGroup
		feeding.Go(func() {
			_, _ = io.WriteString(e.Stdin(), text)
			_ = e.Stdin().Close()
		})
		_, first := p.read()
		_, second := p.read()
		if first+second != text {
			t.Fatalf("stdin has %d and %d bytes", len(first), len(second))
		}
		if h, _ := p.frames.next(); h.kind != kindStdinEnd || h.request != request {
			t.Fatalf("end of stdin: %+v", h)
		}
		feeding.Wait()
		p.write(kindStdout, request, "out")
		p.write(kindStderr, request, "err")
		p.write(kindReply, request, okReply[:10])
		p.write(kindReplyEnd, request, okReply[10:])
		if out, errs := collect(e); out != "out" || errs != "err" {
			t.Fatalf("output: %q %q", out, errs)
		}
		if r, err := e.Reply(); err != nil || !r.OK || string(r.Value) != "2" {
			t.Fatalf("reply: %+v, %v", r, err)
		}
		if _, err := e.Stdin().Write([]byte("late")); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("stdin after the end: %v", err)
		}
	}
}

// Only the frame says that code used up its processor time, not a text of the reply, and a frame
// of the runtime pyodide does not: its code can forge all of them (PY-06, PY-08).
func TestConn_CPULimit(t *testing.T) {
	const expired = `{"ok":false,"code":124,"error":{"message":"CPU time limit exceeded"},` +
		`"usage":{"wall_ms":1,"cpu_ms":1,"memory_bytes":9}}`
	for _, last := range []kind{kindReplyEnd, kindCPULimit} {
		p := readyPeer(t)
		e := p.execute(Request{})
		p.read()
		p.write(kindReply, 1, expired[:10])
		p.write(last, 1, expired[10:])
		collect(e)
		if r, err := e.Reply(); err != nil || r.CPULimit != (last == kindCPULimit) {
			t.Errorf("%c: %+v, %v", last, r, err)
		}
		forged := &pyodideExecution{execution: e}
		if r, err := forged.Reply(); err != nil || r.CPULimit {
			t.Errorf("%c of pyodide: %+v, %v", last, r, err)
		}
	}
}

// Values and output of the largest size arrive (PY-08).
func TestConn_LargestReplyArrives(t *testing.T) {
	p := readyPeer(t)
	e := p.execute(Request{})
	p.read()
	value := `"` + strings.Repeat("v", MaxValue-2) + `"`
	reply := strings.Replace(okReply, "2", value, 1)
	var writing sync.WaitGroup
	writing.Go(func() {
		p.write(kindStdout, 1, strings.Repeat("o", maxBody))
		for len(reply) > maxBody {
			p.write(kindReply, 1, reply[:maxBody])
			reply = reply[maxBody:]
		}
		p.write(kindReplyEnd, 1, reply)
	})
	out, _ := collect(e)
	writing.Wait()
	r, err := e.Reply()
	if err != nil || string(r.Value) != value || len(out) != maxBody {
		t.Fatalf("%d bytes of value, %d of output, %v", len(r.Value), len(out), err)
	}
}

// Anything malformed, oversized, duplicate, stale or unexpected kills the worker, and the request
// that runs fails with agent_lost (PY-08).
func TestConn_ViolationsKillTheWorker(t *testing.T) {
	frame := func(k kind, generation, request, sequence uint32, body string) []byte {
		h := header{body: len(body), kind: k, generation: generation, request: request, sequence: sequence}
		return append(h.append(nil), body...)
	}
	reply := func(body string) []byte { return frame(kindReplyEnd, testGeneration, 1, 1, body) }
	tests := map[string][]byte{
		"too short":             {0, 0, 0, 12, 'o', 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1},
		"too long":              {0, 16, 0, 14, 'o', 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1},
		"longest":               {255, 255, 255, 255, 'o', 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1},
		"unknown type":          frame('z', testGeneration, 1, 1, "x"),
		"type of the daemon":    frame(kindRequestEnd, testGeneration, 1, 1, "{}"),
		"second hello":          frame(kindHello, testGeneration, 1, 1, testHello),
		"hello of no request":   frame(kindHello, testGeneration, 0, 1, testHello),
		"empty output":          frame(kindStdout, testGeneration, 1, 1, ""),
		"older generation":      frame(kindStdout, testGeneration-1, 1, 1, "x"),
		"later generation":      frame(kindStdout, testGeneration+1, 1, 1, "x"),
		"duplicate sequence":    frame(kindStdout, testGeneration, 1, 0, "x"),
		"skipped sequence":      frame(kindStdout, testGeneration, 1, 2, "x"),
		"older request":         frame(kindStdout, testGeneration, 0, 1, "x"),
		"later request":         frame(kindReplyEnd, testGeneration, 2, 1, okReply),
		"call without a broker": frame(kindCallEnd, testGeneration, 1, 1, "{}"),
		"files unexpectedly":    frame(kindChangedEnd, testGeneration, 1, 1, ""),
		"empty reply":           reply(""),
		"text after the reply":  reply(okReply + "x"),
		"unknown member":        reply(strings.Replace(okReply, "ok", "extra\":1,\"ok", 1)),
		"duplicate member":      reply(strings.Replace(okReply, "ok", "code\":0,\"ok", 1)),
		"member in capitals":    reply(strings.Replace(okReply, "code", "CODE", 1)),
		"invalid UTF-8":         reply(strings.Replace(okReply, "2", "\"\xff\"", 1)),
	}
	for name, forged := range tests {
		t.Run(name, func(t *testing.T) {
			p := readyPeer(t)
			e := p.execute(Request{})
			p.raw(forged)
			collect(e)
			<-p.ended
			if _, err := e.Reply(); dray.CodeOf(err) != dray.CodeAgentLost || dray.AsError(err).Hint == "" {
				t.Fatalf("the request ended with %v", err)
			}
			if _, err := p.conn.execute(Request{}, nil); err == nil {
				t.Fatal("another request was accepted")
			}
		})
	}
}

// A byte while no request runs kills the worker, before the next request (PY-08).
func TestConn_StrayByteWhileIdle(t *testing.T) {
	p := readyPeer(t)
	p.raw([]byte{0})
	<-p.ended
	if dray.CodeOf(p.err) != dray.CodeAgentLost {
		t.Fatal(p.err)
	}
	if _, err := p.conn.execute(Request{}, nil); dray.CodeOf(err) != dray.CodeAgentLost {
		t.Fatal(err)
	}
}

func TestConn_WrongHello(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON": "hello", "unknown member": `{"python":"3.11.2","x":1}`, "no version": `{}`,
		"relative":       `{"python":"3.11.2","executable":"python3"}`,
		"control":        `{"python":"3.11.2","executable":"/\u001b[2J"}`,
		"version":        `{"python":"<script>"}`,
		"larger than it": `{"python":"3.11.2","prefix":"/` + strings.Repeat("x", maxHello) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.write(kindHello, 0, body)
			if _, err := p.conn.hello(context.Background()); dray.CodeOf(err) != dray.CodeAgentLost {
				t.Fatal(err)
			}
		})
	}
}

// A worker that ends while it runs a request, also in the middle of a frame, is told apart from one
// that violates the protocol.
func TestConn_WorkerEnds(t *testing.T) {
	for _, cut := range []int{0, 3, headerSize, headerSize + 2} {
		p := readyPeer(t)
		e := p.execute(Request{})
		h := header{body: 5, kind: kindStdout, generation: testGeneration, request: 1, sequence: 1}
		p.raw(append(h.append(nil), "hello"...)[:cut])
		_ = p.out.Close()
		collect(e)
		if _, err := e.Reply(); !errors.Is(err, errWorkerEnded) {
			t.Fatalf("after %d bytes: %v", cut, err)
		}
	}
}

// An interrupt overtakes stdin that the worker does not read, is sent once, and does not overtake
// its own request.
func TestConn_InterruptIsFirst(t *testing.T) {
	w := newFrameWriter(nil, testGeneration)
	interrupt := message{request: 1, last: kindInterrupt}
	w.add(message{request: 1, last: kindRequestEnd})
	w.add(message{request: 1, last: kindStdin})
	w.interrupt(interrupt)
	w.interrupt(interrupt)
	w.add(message{request: 1, last: kindStdinEnd})
	order := ""
	for m, ok := w.next(); ok; m, ok = w.next() {
		order += string(m.last)
	}
	if order != "QxiI" {
		t.Fatal(order)
	}
}

// Writing to stdin blocks while the worker reads nothing, and ends with the request.
func TestConn_StdinBlocksUntilTheEnd(t *testing.T) {
	p := readyPeer(t)
	e := p.execute(Request{})
	p.read()
	failed := make(chan error)
	go func() {
		_, err := e.Stdin().Write(make([]byte, 4<<20)) // no pipe holds that much
		failed <- err
	}()
	p.write(kindReplyEnd, 1, okReply)
	collect(e)
	if err := <-failed; !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
}

// A worker whose stdin is closed takes no request and no interrupt, so it is killed.
func TestConn_StdinIsClosed(t *testing.T) {
	p := readyPeer(t)
	_ = p.in.Close()
	e := p.execute(Request{})
	collect(e)
	if _, err := e.Reply(); !errors.Is(err, errWorkerEnded) {
		t.Fatal(err)
	}
}

// Calls of the code go to the broker of the runtime and come back, and the files that changed are
// one stream (PY-11).
func TestConn_CallsAndFiles(t *testing.T) {
	calls := make(chan string, 1)
	p := readyPeer(t, func(c *conn) {
		c.newBroker = func(e *execution, req Request) *broker { return newBroker(e, req, nil, nil) }
	})
	e := p.execute(Request{Services: Services{CallTool: func(_ context.Context, name string,
		input json.RawMessage, _ Permissions,
	) (json.RawMessage, error) {
		calls <- name + string(input)
		return json.RawMessage(`"answer"`), nil
	}}})
	defer e.broker.close()
	p.read()
	p.write(kindCall, 1, `{"id":1,"interrupts":0,`)
	p.write(kindCallEnd, 1, `"call_tool":{"name":"stat","input":{"a":1}}}`)
	if got := <-calls; got != `stat{"a":1}` {
		t.Fatal(got)
	}
	if h, body := p.read(); h.kind != kindResultEnd || body != `{"id":1,"output":"answer"}` {
		t.Fatalf("%+v %s", h, body)
	}
	p.write(kindReplyEnd, 1, okReply)
	collect(e)
	staging := &stagingWriter{conn: p.conn, ctx: t.Context(), request: p.conn.nextRequest()}
	var writing sync.WaitGroup
	writing.Go(func() { _, _ = io.WriteString(staging, "files") })
	if h, body := p.read(); h.kind != kindFiles || h.request != 2 || body != "files" {
		t.Fatalf("%+v %s", h, body)
	}
	writing.Wait()
	staging.close()
	if h, _ := p.read(); h.kind != kindFilesEnd || h.request != 2 {
		t.Fatalf("%+v", h)
	}
	received := newChanges(t.TempDir())
	defer received.close()
	e, err := p.conn.execute(Request{}, received)
	if err != nil {
		t.Fatal(err)
	}
	p.read()
	p.write(kindChanged, 2, "drt1D\x01")
	p.write(kindChanged, 2, "a\x00Z")
	p.write(kindChangedEnd, 2, "\x01\x00")
	p.write(kindReplyEnd, 2, okReply)
	collect(e)
	if got := received.list; len(got) != 1 || got[0].name != "a" || !got[0].dir {
		t.Fatalf("%+v", got)
	}
}

// A body of frames above its limit ends the worker at the header that exceeds it (PY-08).
func TestConn_OversizedReply(t *testing.T) {
	p := readyPeer(t)
	e := p.execute(Request{})
	for range maxReply / maxBody {
		p.write(kindReply, 1, strings.Repeat(" ", maxBody))
	}
	h := header{body: 2, kind: kindReply, generation: testGeneration, request: 1, sequence: p.sequence}
	p.raw(h.append(nil))
	collect(e)
	if _, err := e.Reply(); dray.CodeOf(err) != dray.CodeAgentLost {
		t.Fatal(err)
	}
}

// Hostile code knows generation, request and sequence, and forges 100,000 frames. Each worker is
// killed, or its reply is within the limits, as an honest one's is (PY-08).
func TestConn_ForgedFrames(t *testing.T) {
	rnd := soakreport.Rand(t)
	for forged := 0; forged < soakreport.Count(100_000, 20_000); {
		forged += forgeFrames(t, rnd)
	}
}

// forgeFrames sends forged frames to a conn until it has ended, and returns their number.
func forgeFrames(t *testing.T, rnd *rand.Rand) (n int) {
	var stream bytes.Buffer
	hello := header{body: len(testHello), kind: kindHello, generation: testGeneration}
	stream.Write(append(hello.append(nil), testHello...))
	for sequence := uint32(1); sequence < 40; sequence++ {
		stream.Write(forgeFrame(rnd, sequence))
	}
	c := newConn(&stream, io.Discard, testGeneration)
	c.active = newExecution(c, 1, []string{"g"}, nil)
	e := c.active
	c.workerHello = Hello{}
	close(c.ready)
	_, _ = c.frames.next()
	_, _ = c.frames.read(nil, len(testHello))
	var running sync.WaitGroup
	running.Go(func() { _ = c.run() })
	collect(e)
	running.Wait()
	reply, err := e.Reply()
	if err == nil {
		checkHonest(t, reply)
	} else if !errors.Is(err, errWorkerEnded) && dray.CodeOf(err) != dray.CodeAgentLost {
		t.Errorf("the worker ended with %v", err)
	}
	return int(c.frames.sequence)
}

func forgeFrame(rnd *rand.Rand, sequence uint32) []byte {
	bodies := []string{
		okReply, "{}", `{"ok":false,"code":300}`, `{"ok":true,"code":0,"globals":{"h":1}}`, "x",
		`{"ok":true,"code":0,"value":[[[[[[[[[1]]]]]]]]]}`, `{"ok":true,"code":0,"value":1e999}`,
	}
	kinds := []kind{kindStdout, kindStderr, kindReply, kindReplyEnd, kindHello, kindCall, kind(rnd.Uint32())}
	body := bodies[rnd.IntN(len(bodies))]
	h := header{
		body: len(body), kind: kinds[min(rnd.IntN(60)/9, 6)], generation: testGeneration, request: 1,
		sequence: sequence,
	}
	b := append(h.append(nil), body...)
	if rnd.IntN(40) == 0 { // a bit is wrong
		b[rnd.IntN(headerSize)] ^= 1 << rnd.IntN(8)
	}
	return b
}

// checkHonest checks that a reply could be that of an honest worker, whatever its code did.
func checkHonest(t testing.TB, r Reply) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("the reply is no JSON: %v", err)
	}
	if _, err := checkReply(b, []string{"g"}); err != nil {
		t.Fatalf("a reply was accepted that is none: %v", err)
	}
}

// No stream of bytes makes the conn panic, hang, or accept a reply that is none.
func FuzzConn(f *testing.F) {
	reply := header{body: len(okReply), kind: kindReplyEnd, generation: testGeneration, request: 1}
	f.Add(append(reply.append(nil), okReply...))
	f.Add([]byte{0, 0, 0, 12})
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := newConn(bytes.NewReader(stream), io.Discard, testGeneration)
		close(c.ready)
		e := newExecution(c, 1, []string{"g"}, nil)
		c.active, c.request = e, 1
		var running sync.WaitGroup
		running.Go(func() { _ = c.run() })
		collect(e)
		running.Wait()
		if r, err := e.Reply(); err == nil {
			checkHonest(t, r)
		} else if fmt.Sprint(err) == "" {
			t.Fatal("an error has no text")
		}
	})
}
