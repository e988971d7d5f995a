package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
	"github.com/dray-dev/dray/internal/soakreport"
)

// forge is code that makes frames of what it knows: the generation, which is that of its first
// worker, the request, which is its first one, and the sequence, which follows the hello. write
// writes bytes to all that the code can reach.
const forge = `
import json, random, struct
rnd = random.Random(seed)
usage = {"wall_ms": 0, "cpu_ms": 0, "memory_bytes": 0}
bodies = [json.dumps(b).encode() for b in (
    {"ok": True, "code": 0, "value": "forged", "usage": usage}, {},
    {"ok": True, "code": 0, "value": "forged", "globals": {"n": 1000}, "usage": usage},
    {"ok": True, "code": 0, "value": 1, "files": {"created": ["/etc/x"]}, "usage": usage},
    {"ok": False, "code": 300, "usage": usage}, {"ok": True, "code": 0, "value": [[[[[[[[[[1]]]]]]]]]]},
    {"method": "call_tool", "params": {"tool": "exec", "argv": ["touch", "/tmp/x"]}},
)] + [b"forged", b"\xff" * 9, b""]
frames = []
for number in range(count):
    kind = rnd.choice(b"oeoeoeoeoeoeoeoeRRRRRr" + rnd.choice([b"", b"HcCtTqQxX"]) + bytes([rnd.randrange(256)]))
    body = rnd.choice(bodies[:1] * 12 + bodies)
    frame = bytearray(struct.pack(">IBIII", 13 + len(body), kind, 1, 1, 1 + number) + body)
    if rnd.randrange(30) == 0:
        frame[rnd.randrange(17)] ^= 1 << rnd.randrange(8)
    frames.append(bytes(frame))
if rnd.randrange(2):  # as the worker of the runtime container replies
    frames.insert(0, struct.pack(">I", len(bodies[0])) + bodies[0])
write(frames)
`

// writers write bytes to all that code can reach, for each runtime.
var writers = map[string]string{
	"descriptors": `
import os, time
def write(frames):
    for data in frames[0], b"".join(frames[1:]):
        for n in range(256):
            try: os.fstat(n)
            except OSError: continue
            try: os.write(n, data)
            except OSError: pass
        time.sleep(0.01)
`,
	// Without lock-down code reaches the stdout of Deno, which has the frames.
	"stdout of Deno": `
from pyodide.code import run_js
from pyodide.ffi import to_js
def write(frames):
    run_js("(b) => { for (let n = 0; n < b.length;) n += Deno.stdout.writeSync(b.subarray(n)) }")(
        to_js(b"".join(frames)))
`,
}

var forgedPage = soakreport.Page{
	File: "python-frames.md", Title: "Python code that forges frames",
	Text: `Code that knew the generation, the request and the sequence wrote frames to every descriptor of
its process, each time in a new session. *Off* is Pyodide without lock-down, where code reaches the
stream of the frames itself. *Killed* are workers that the daemon ended for what they wrote, or that
ended. *Replies* are calls that ended with a reply, which the daemon had checked. *Touched* counts
the calls of another session, one after each forgery, whose counter was not as expected.`,
	Target:  "nothing beyond an honest result; no other session is touched",
	Columns: []string{"runtime", "written to", "frames", "killed", "replies", "dishonest", "touched"},
	Key:     2,
}

// forgery counts what forged frames have done.
type forgery struct {
	*realChurn
	writer                                   string
	frames, killed, replies, honest, touched int
}

// Code that knows the generation, the request and the sequence writes 100,000 forged frames to
// every descriptor. Its call ends with agent_lost, or with what its code could have returned, and a
// second session keeps its variables (PY-08).
func TestSessions_ForgedFrames(t *testing.T) {
	unlocked := newPyodideHarness(t)
	unlocked.Runtime = python.NewPyodide(newPyodideConfig(t).Unlock())
	for _, f := range []*forgery{
		{realChurn: &realChurn{harness: newEngineHarness(t, debian, docker.TransportAuto)}, writer: "descriptors"},
		{realChurn: &realChurn{harness: newPyodideHarness(t)}, writer: "descriptors"},
		{realChurn: &realChurn{harness: unlocked}, writer: "stdout of Deno"},
	} {
		name := f.harness.Runtime.Name()
		if f.harness.Runtime == unlocked.Runtime {
			name += ", off"
		}
		t.Run(name, func(t *testing.T) {
			forgedPage.Row(t, []string{name, f.writer}, func() []soakreport.Cell {
				return []soakreport.Cell{
					soakreport.Value(f.frames), soakreport.Value(f.killed), soakreport.Value(f.replies),
					soakreport.Exactly(f.replies-f.honest, 0), soakreport.Exactly(f.touched, 0),
				}
			})
			f.test(t)
		})
	}
}

func (f *forgery) test(t *testing.T) {
	const each = 250
	f.open(t, 3, 3)
	rnd := soakreport.Rand(t)
	for n := 1; f.frames < soakreport.Count(100_000, 1_000); n++ {
		f.attack(t, fmt.Sprint("forger", n), rnd.Uint32(), each)
		f.frames += each
		got := f.ask(t, "other", "n = globals().get('n', 0) + 1\nn", nil)
		if got.Err != nil || string(got.Value) != fmt.Sprint(n) {
			f.touched++
			t.Errorf("after %d frames the other session has %s, %v; want %d", f.frames, got.Describe(),
				got.Err, n)
		}
	}
	if f.replies+f.killed == 0 || f.writer != "descriptors" && f.killed == 0 {
		t.Errorf("%d workers were killed, %d replied", f.killed, f.replies)
	}
}

// attack runs the forger in a new session.
func (f *forgery) attack(t *testing.T, name string, seed uint32, frames int) {
	t.Helper()
	got := f.ask(t, name, writers[f.writer]+forge, map[string]json.RawMessage{
		"seed": json.RawMessage(fmt.Sprint(seed)), "count": json.RawMessage(fmt.Sprint(frames)),
	})
	if got.Err != nil {
		f.killed++
		if !isTyped(got.Err) {
			t.Errorf("the forger ended with %v", got.Err)
		}
		return
	}
	f.replies++
	body, err := json.Marshal(got.Reply)
	if err == nil {
		err = python.CheckReply(body, nil)
	}
	if err == nil {
		f.honest++
	} else {
		t.Errorf("the forger's reply %.300s: %v", got.Describe(), err)
	}
}

// isTyped reports whether a call ended with a code of the closed list, or by a signal.
func isTyped(err error) bool {
	return dray.CodeOf(err) == dray.CodeAgentLost || errors.Is(err, errSignalled)
}

var errSignalled = errors.New("the worker was ended by a signal")

// ask makes a call of a session. Err is the error of a call without a reply. A call that does not
// end within a minute is stopped.
func (c *realChurn) ask(t *testing.T, name, code string, inputs map[string]json.RawMessage,
) pythontest.Outcome {
	t.Helper()
	spec := c.spec(code)
	spec.Request.Inputs = inputs
	run, err := c.sessions.Start(context.Background(), c.key(name), c.harness.Environment, spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer run.Release()
	defer time.AfterFunc(time.Minute, func() { run.Stop(0) }).Stop()
	var got pythontest.Outcome
	var stderr []byte
	var reading sync.WaitGroup
	reading.Go(func() { stderr, _ = io.ReadAll(run.Output(dray.Stderr)) })
	_ = run.Stdin().Close()
	stdout, _ := io.ReadAll(run.Output(dray.Stdout))
	reading.Wait()
	exit, err := run.Wait()
	if exit.Signal != 0 && err == nil {
		err = errSignalled
	}
	got.Reply, _ = run.Reply()
	got.Stdout, got.Stderr, got.Err = string(stdout), string(stderr), err
	return got
}
