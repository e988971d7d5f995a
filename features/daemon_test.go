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

// daemon is a whole dray in this process, on a state folder of its own.
type daemon struct {
	state, config string
	log           *lineLog
	http          *http.Client
	stop          context.CancelFunc
	ended         chan struct{} // closed when code is set
	code          int
}

// startDaemon starts `dray serve` with a configuration and waits until it says that it is ready.
func startDaemon(t testing.TB, config string) *daemon {
	t.Helper()
	folder := newFolder(t)
	d := &daemon{state: filepath.Join(folder, "state"), config: filepath.Join(folder, "config.yaml"), log: newLineLog(), ended: make(chan struct{})}
	writeFiles(t, folder, map[string]string{"config.yaml": "devcontainer: {cli: " + devcontainerCLI(t) + ", up_args: [--buildkit, never]}\n" + config})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	d.stop = stop
	go func() {
		defer close(d.ended)
		d.code = command.Execute(ctx, []string{"serve", "--state", d.state, "--config", d.config}, strings.NewReader(""), io.Discard, d.log)
		d.log.end()
	}()
	t.Cleanup(func() { d.end(t) })
	if _, ok := d.log.await("ready"); !ok {
		t.Fatalf("the daemon does not start: %s", d.log.text())
	}
	d.http = socketClient(filepath.Join(d.state, "dray.sock"))
	return d
}

// end stops the daemon and waits for it.
func (d *daemon) end(t testing.TB) {
	t.Helper()
	if d.http != nil {
		d.http.CloseIdleConnections()
	}
	d.stop()
	select {
	case <-d.ended:
	case <-time.After(30 * time.Second):
		t.Error("the daemon does not end")
	}
	if d.code != 0 {
		t.Errorf("the daemon ended with %d: %s", d.code, d.log.text())
	}
}

func socketClient(socket string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}
}

// ran is what a command line did.
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

// lineLog is the daemon's log; others can wait for an event in it.
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

// lines gives the complete lines, decoded; what is no JSON is nil.
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

// await waits for the line of an event; it is not ok if the log ends or 20 s pass without one.
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
