// Package pythontest is the contract suite of [python.Runtime]: every runtime passes Run. If a
// runtime lacks a capability, the suite tests that requests which need it are refused.
package pythontest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// Harness has the runtime to test.
type Harness struct {
	Runtime     python.Runtime
	Environment dray.Environment
	// Dir is a directory in the environment that its user may write to. Its content may be lost.
	Dir string
	// Files are those of requests; nil for all of the environment.
	Files *python.Workspace
	// Permissions are those of the workers; nil for those of the environment.
	Permissions *python.Permissions
	// Executable is the interpreter to test; empty for the runtime's own.
	Executable string
}

// replyTimeout bounds the wait for one reply. It is far beyond what any request takes.
const replyTimeout = 90 * time.Second

// Outcome is a request that has ended.
type Outcome struct {
	python.Reply
	Stdout, Stderr string
	// Err is set if the worker ended without a reply.
	Err error
	// Files and CommitErr are set if the runtime is transactional.
	Files     python.FileChanges
	CommitErr error
}

// Worker is a worker of the test, with its harness.
type Worker struct {
	python.Worker
	Harness
}

// Start starts a worker that ends with the test.
func (h Harness) Start(t testing.TB, change func(*python.WorkerSpec)) Worker {
	t.Helper()
	spec := python.WorkerSpec{
		Environment: h.Environment, Generation: 3, Executable: h.Executable, Permissions: h.Permissions,
	}
	if change != nil {
		change(&spec)
	}
	w, err := h.Runtime.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start a worker: %v", err)
	}
	t.Cleanup(func() {
		w.Kill()
		<-w.Done()
	})
	return Worker{w, h}
}

// Fill returns a request with what each has.
func (h Harness) fill(req python.Request) python.Request {
	if req.Cwd == "" {
		req.Cwd = h.Dir
	}
	if req.State == "" {
		req.State = python.Persistent
	}
	return req
}

// Begin starts a request and does not write its stdin.
func (w Worker) Begin(t testing.TB, req python.Request) *Running {
	t.Helper()
	e, err := w.Execute(t.Context(), w.fill(req), w.Workspace())
	if err != nil {
		t.Fatalf("execute %.200q: %v", req.Code, err)
	}
	r := &Running{Execution: e}
	r.reading.Go(func() { _, _ = io.Copy(&r.stdout, e.Output(dray.Stdout)) })
	r.reading.Go(func() { _, _ = io.Copy(&r.stderr, e.Output(dray.Stderr)) })
	return r
}

// Workspace returns the files of the environment. Code may change all of them.
func (h Harness) Workspace() python.Workspace {
	if h.Files != nil {
		return *h.Files
	}
	return python.Workspace{
		Open: func(ctx context.Context, dir string) (python.Directory, error) {
			files, err := h.Environment.Files(ctx, dir)
			if err != nil {
				return nil, err
			}
			opened, ok := files.(python.Directory)
			if !ok {
				_ = files.Close()
				return nil, dray.Errorf(dray.CodeInternal, "%s is not a directory of the host", dir)
			}
			return opened, nil
		},
		CheckChange: func(string, bool) error { return nil },
	}
}

// Running is a request that runs.
type Running struct {
	python.Execution
	// NoCommit discards the changes of files.
	NoCommit       bool
	reading        sync.WaitGroup
	stdout, stderr lockedBuffer
}

// End waits for the end of the request.
func (r *Running) End(t testing.TB) Outcome {
	t.Helper()
	select {
	case <-r.Done():
	case <-time.After(replyTimeout):
		t.Fatalf("no reply in %s; stdout %.300q, stderr %.300q", replyTimeout, r.stdout.String(),
			r.stderr.String())
	}
	r.reading.Wait()
	got := Outcome{Stdout: r.stdout.String(), Stderr: r.stderr.String()}
	got.Reply, got.Err = r.Reply()
	if c, ok := r.Execution.(python.Committer); ok {
		if got.Err == nil && !r.NoCommit {
			got.Files, got.CommitErr = c.Commit(t.Context())
		}
		c.Discard()
	}
	return got
}

// Until waits until stdout contains a text, or the request ends.
func (r *Running) Until(t testing.TB, text string) {
	t.Helper()
	for changed := r.stdout.changed(); !strings.Contains(r.stdout.String(), text); {
		select {
		case <-changed:
			changed = r.stdout.changed()
		case <-r.Done():
			t.Fatalf("the request ended before it printed %q", text)
		case <-time.After(replyTimeout):
			t.Fatalf("%q was not printed; stdout is %.300q", text, r.stdout.String())
		}
	}
}

// Run runs a request without stdin.
func (w Worker) Run(t testing.TB, req python.Request) Outcome {
	t.Helper()
	return w.RunWith(t, req, nil)
}

// RunWith runs a request with stdin.
func (w Worker) RunWith(t testing.TB, req python.Request, stdin []byte) Outcome {
	t.Helper()
	r := w.Begin(t, req)
	var writing sync.WaitGroup
	writing.Go(func() {
		_, _ = r.Stdin().Write(stdin) // code need not read it
		_ = r.Stdin().Close()
	})
	got := r.End(t)
	writing.Wait()
	return got
}

// Code runs code in the globals of the session. The test fails without a reply.
func (w Worker) Code(t testing.TB, code string) Outcome {
	t.Helper()
	got := w.Run(t, python.Request{Code: code})
	if got.Err != nil {
		t.Fatalf("%.200q: %v", code, got.Err)
	}
	return got
}

// Value runs code that must succeed and returns its value as compact JSON.
func (w Worker) Value(t testing.TB, code string) string {
	t.Helper()
	got := w.Code(t, code)
	if !got.OK {
		t.Fatalf("%.200q: %s", code, got.Describe())
	}
	return Compact(got.Value)
}

// Describe returns what a failed test prints of an outcome.
func (o Outcome) Describe() string {
	b, _ := json.Marshal(o.Reply)
	text := string(b)
	if o.Error != nil {
		text += "\n" + o.Error.Traceback
	}
	return text + "\nstdout: " + o.Stdout + "\nstderr: " + o.Stderr
}

// Message returns the message of the error, or nothing.
func (o Outcome) Message() string {
	if o.Error == nil {
		return ""
	}
	return o.Error.Message
}

// Compact returns JSON without spaces.
func Compact(value json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return b.String()
}

// lockedBuffer is a buffer that tells when it grows.
type lockedBuffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
	next  chan struct{}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
	return b.bytes.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

// changed returns a channel that is closed by the next write.
func (b *lockedBuffer) changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}
