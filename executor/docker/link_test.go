package docker_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/enginetest"
)

// engineProxy is a TCP proxy between the daemon and the engine that a test can stall or cut.
type engineProxy struct {
	listener net.Listener
	to       string
	flow     sync.RWMutex // write-locked to stall the proxy
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newEngineProxy(t *testing.T, to string) *engineProxy {
	t.Helper()
	l := &engineProxy{to: to}
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	l.wg.Go(l.accept)
	t.Cleanup(func() {
		_ = l.listener.Close()
		l.cut()
		l.wg.Wait()
	})
	return l
}

func (l *engineProxy) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		l.mu.Unlock()
		l.wg.Go(func() { l.pass(near, far) })
		l.wg.Go(func() { l.pass(far, near) })
	}
}

// pass copies bytes in one direction, then the end of file.
func (l *engineProxy) pass(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		l.flow.RLock()
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		l.flow.RUnlock()
		if err != nil {
			break
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// cut closes every connection. New ones can be opened.
func (l *engineProxy) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// throughProxy returns an engine that is reached through a proxy, and a container. All other
// clients use the engine's socket.
func throughProxy(t *testing.T, own *enginetest.Engine, lease time.Duration,
) (*engineProxy, *docker.Engine, devcontainer.ContainerInfo) {
	t.Helper()
	l := newEngineProxy(t, own.TCP())
	t.Setenv("DOCKER_HOST", "tcp://"+l.listener.Addr().String())
	e := newEngineWith(t, docker.Options{Transport: docker.TransportStdio, Lease: lease})
	t.Setenv("DOCKER_HOST", own.Host())
	return l, e, runContainer(t, e, debian, nil)
}

const ignoreTERM = `trap "" TERM HUP; setsid sh -c 'trap "" TERM HUP; setsid sleep 600 & wait' & echo ready; sleep 600`

// When the connection to the engine is cut during a call, the call ends as unavailable, none of its
// processes is left in the container, and the next call runs (EX-14, EX-21).
func linkCut(t *testing.T, own *enginetest.Engine) {
	l, e, box := throughProxy(t, own, 30*time.Second)
	env := environment(t, e, box, agent.Spec{User: "vscode"})
	for range 5 {
		p := begin(t, env, ignoreTERM)
		l.cut()
		wantUnavailable(t, p, 10*time.Second)
		wantNothing(t, box)
		if got := run(t, environment(t, e, box, agent.Spec{}), id, ""); got.stdout != "0\n" {
			t.Fatalf("the next call: %+v", got)
		}
	}
}

// A connection that stalls without an end is detected on both sides within the lease (EX-09,
// EX-21).
func linkStalled(t *testing.T, own *enginetest.Engine) {
	const lease = 3 * time.Second
	l, e, box := throughProxy(t, own, lease)
	p := begin(t, environment(t, e, box, agent.Spec{User: "vscode"}), ignoreTERM)
	l.flow.Lock()
	wantUnavailable(t, p, 5*lease)
	wantNothing(t, box)
	l.flow.Unlock()
	if got := run(t, environment(t, e, box, agent.Spec{}), id, ""); got.stdout != "0\n" {
		t.Errorf("the next call: %+v", got)
	}
}

func wantUnavailable(t *testing.T, p dray.Process, limit time.Duration) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, p.Output(dray.Stdout))
		exit, err := p.Wait()
		if exit.Survivors.Proven {
			t.Errorf("survivors are proven over a broken connection: %+v", exit)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if dray.NormalizeResult(dray.Result{}, err).Reason != dray.ReasonUnavailable {
			t.Errorf("got %v (%s)", err, dray.CodeOf(err))
		}
	case <-time.After(limit):
		t.Fatalf("the call still runs %s after the connection broke", limit)
	}
}

// wantNothing waits until no process of dray or of its tools runs in a container.
func wantNothing(t *testing.T, c devcontainer.ContainerInfo) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for left := commands(t, c.ID); strings.Contains(left, "sleep 600") ||
		strings.Contains(left, "agent"); left = commands(t, c.ID) {
		if deadline.Err() != nil {
			t.Fatalf("still running: %s", left)
		}
	}
}
