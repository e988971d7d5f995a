package python

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// workerProcess is the process of a worker with its conn: what the workers of both runtimes have in
// common.
type workerProcess struct {
	proc   dray.Process
	conn   *conn
	hello  Hello
	stderr stderrHead

	done chan struct{} // closed when exit and err are set
	exit dray.Exit
	err  error
}

// newWorkerProcess returns the workerProcess of a process, and starts to read its streams.
func newWorkerProcess(proc dray.Process, generation uint32, log *zap.Logger) *workerProcess {
	w := &workerProcess{
		proc: proc, done: make(chan struct{}),
		conn: newConn(proc.Output(dray.Stdout), proc.Stdin(), generation),
	}
	w.conn.kill = w.Kill
	var streams sync.WaitGroup
	streams.Go(func() { _ = w.conn.run() }) // its error is that of hello and of the request
	streams.Go(func() { _, _ = io.Copy(&w.stderr, proc.Output(dray.Stderr)) })
	go func() {
		defer close(w.done)
		w.exit, w.err = proc.Wait()
		streams.Wait()
		if text := w.stderr.String(); text != "" && log != nil {
			log.Warn("python worker failed", zap.String("exit", describeExit(w.exit)),
				zap.String("stderr", text))
		}
	}()
	return w
}

// Hello implements Worker.
func (w *workerProcess) Hello() Hello { return w.hello }

// Kill implements Worker.
func (w *workerProcess) Kill() { w.proc.Stop(0) }

// Done implements Worker.
func (w *workerProcess) Done() <-chan struct{} { return w.done }

// Exit implements Worker.
func (w *workerProcess) Exit() (dray.Exit, error) { return w.exit, w.err }

func describeExit(exit dray.Exit) string {
	if exit.Signal != 0 {
		return exit.Signal.String()
	}
	return fmt.Sprintf("exit code %d", exit.Code)
}

// maxStderr bounds a stderrHead in bytes.
const maxStderr = 4 << 10

// stderrHead keeps the first bytes of the stderr of a worker's process, which writes there only if
// it fails. It is safe for concurrent use.
type stderrHead struct {
	mu   sync.Mutex
	kept []byte
}

// Write never fails, so the stream is read to its end.
func (s *stderrHead) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, p[:min(len(p), maxStderr-len(s.kept))]...)
	return len(p), nil
}

func (s *stderrHead) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.TrimSpace(s.kept))
}
