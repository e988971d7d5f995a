package features

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray/cmd/dray/command"
)

// daemon is a daemon in this process with a state directory of its own.
type daemon struct {
	state, config string
	log           *lineLog
	http          *http.Client
	stop          context.CancelFunc
	ended         chan struct{} // closed when code is set
	code          int
}

// startDaemon starts `dray serve` with a configuration and waits for its ready line. The
// daemon stops at the end of the test.
func startDaemon(t testing.TB, config string) *daemon {
	t.Helper()
	folder := newDir(t)
	writeFiles(t, folder, map[string]string{"config.yaml": "devcontainer: {cli: " +
		devcontainerCLI(t) + ", up_args: [--buildkit, never]}\n" + config})
	d := launch(filepath.Join(folder, "state"), filepath.Join(folder, "config.yaml"))
	t.Cleanup(func() {
		if code := d.end(t); code != 0 {
			t.Errorf("the daemon ended with %d: %s", code, d.log.text())
		}
	})
	if _, ok := d.log.await("ready"); !ok {
		t.Fatalf("the daemon does not start: %s", d.log.text())
	}
	return d
}

// launch starts `dray serve` without waiting.
func launch(state, config string) *daemon {
	ctx, stop := context.WithCancel(context.Background())
	d := &daemon{
		state: state, config: config, log: newLineLog(), http: socketClient(filepath.Join(state,
			"dray.sock")), stop: stop, ended: make(chan struct{}),
	}
	go func() {
		defer close(d.ended)
		d.code = command.Execute(ctx, []string{"serve", "--state", d.state, "--config", d.config},
			strings.NewReader(""), io.Discard, d.log)
		d.log.end()
	}()
	return d
}

// relaunch ends the daemon and returns another one with its state and configuration.
func (d *daemon) relaunch(t testing.TB) *daemon {
	t.Helper()
	if code := d.end(t); code != 0 {
		t.Errorf("the daemon ended with %d: %s", code, d.log.text())
	}
	next := launch(d.state, d.config)
	t.Cleanup(func() { next.end(t) })
	if _, ok := next.log.await("ready"); !ok {
		t.Fatal(next.log.text())
	}
	return next
}

// end stops the daemon, waits for it and returns its exit code.
func (d *daemon) end(t testing.TB) int {
	t.Helper()
	d.http.CloseIdleConnections()
	d.stop()
	return d.wait(t)
}

func (d *daemon) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-d.ended:
		return d.code
	case <-time.After(30 * time.Second):
		t.Error("the daemon does not end")
		return -1
	}
}

func socketClient(socket string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}
}

// ran is the result of a command line.
type ran struct {
	code           int
	stdout, stderr []byte
}

// dray runs one command line of dray against this daemon.
func (d *daemon) dray(ctx context.Context, stdin io.Reader, args ...string) ran {
	var stdout, stderr bytes.Buffer
	args = append([]string{args[0], "--state", d.state, "--config", d.config}, args[1:]...)
	code := command.Execute(ctx, args, stdin, &stdout, &stderr)
	return ran{code, stdout.Bytes(), stderr.Bytes()}
}

// lineLog is the daemon's log. Tests can wait for an event in it.
type lineLog struct {
	mu     sync.Mutex
	buf    []byte
	closed bool
	more   chan struct{} // closed and replaced at each change
}

func newLineLog() *lineLog { return &lineLog{more: make(chan struct{})} }

func (l *lineLog) Write(p []byte) (int, error) {
	l.change(func() { l.buf = append(l.buf, p...) })
	return len(p), nil
}

func (l *lineLog) end() { l.change(func() { l.closed = true }) }

func (l *lineLog) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.more)
	l.more = make(chan struct{})
}

func (l *lineLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

// lines returns the complete lines, decoded, with nil for invalid JSON.
func (l *lineLog) lines() []map[string]any {
	var lines []map[string]any
	for line := range strings.Lines(l.text()) {
		var decoded map[string]any
		if strings.HasSuffix(line, "\n") {
			_ = json.Unmarshal([]byte(line), &decoded)
			lines = append(lines, decoded)
		}
	}
	return lines
}

// await waits for the line of an event. ok is false if there is none before the end of the log or
// within 20 s.
func (l *lineLog) await(event string) (map[string]any, bool) {
	late := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		more, closed := l.more, l.closed
		l.mu.Unlock()
		for _, line := range l.lines() {
			if line["event"] == event {
				return line, true
			}
		}
		if closed {
			return nil, false
		}
		select {
		case <-more:
		case <-late:
			return nil, false
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
