package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process/processtest"
	"github.com/dray-dev/dray/internal/mcp/upstream"
)

func TestMain(m *testing.M) {
	processtest.Main()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if path, _ := hostile(); path != "" {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		os.Exit(code)
	}))
}

// hostile builds the server once, without cgo.
var hostile = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dray-hostile")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "hostile")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = &dray.Error{Message: string(out)}
	}
	return path, err
})

type fixture struct {
	*upstream.Server
	starts atomic.Int32
	mark   string // an argument by which /proc shows the processes of the server
}

func newServer(t *testing.T, mode string) *fixture {
	t.Helper()
	path, err := hostile()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := host.New(host.Config{
		Roots: []string{dir}, Env: []string{"PATH"}, Homes: filepath.Join(t.TempDir(), "homes"),
	}, processtest.NewPool(t))
	f := &fixture{mark: dir}
	f.Server = upstream.New(upstream.Config{
		Name: mode, StartTimeout: 20 * time.Second, Grace: time.Second, MaxCalls: 4, Delay: time.Hour,
		Spec: dray.ProcessSpec{Argv: []string{path, mode, dir}, Dir: dir},
		Environment: func(context.Context) (dray.Environment, error) {
			f.starts.Add(1)
			return h.Environment(dir), nil
		},
	})
	t.Cleanup(f.Close)
	return f
}

func (f *fixture) call(ctx context.Context) (upstream.Reply, error) {
	return f.Call(ctx, "t0", json.RawMessage(`{}`))
}

// left returns the processes with an argument or working directory of the server.
func (f *fixture) left(t *testing.T) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		args, _ := os.ReadFile(p + "/cmdline")
		cwd, _ := os.Readlink(p + "/cwd")
		if strings.Contains(string(args), f.mark) || cwd == f.mark {
			pids = append(pids, p)
		}
	}
	return pids
}

// TestHostileServerFailsOnlyItsOwnCalls has a server misbehave during a call, while the calls of
// another go on. Nothing of it is left.
func TestHostileServerFailsOnlyItsOwnCalls(t *testing.T) {
	good := newServer(t, "good")
	for mode, says := range map[string]string{
		"crash": "code 7", "garbage": "not json", "giant-line": "maximum line length", "flood": "printed more than",
		"no-message": "no message of JSON-RPC",
	} {
		t.Run(mode, func(t *testing.T) {
			bad := newServer(t, mode)
			failed := make(chan error, 1)
			go func() {
				_, err := bad.call(t.Context())
				failed <- err
			}()
			for range 20 {
				if _, err := good.call(t.Context()); err != nil {
					t.Fatalf("the other server: %v", err)
				}
			}
			err := <-failed
			if dray.CodeOf(err) != dray.CodeAgentLost || !strings.Contains(err.Error(), says) {
				t.Errorf("the call ended with %q: %v", dray.CodeOf(err), err)
			}
			if strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("control codes in %q", err)
			}
			bad.Close()
			if left := bad.left(t); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// TestNumbersAreExact has a server return an integer beyond 2^53, and a _meta that lies about it.
func TestNumbersAreExact(t *testing.T) {
	reply, err := newServer(t, "large-number").call(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"n":9007199254740993,"f":1.10}`
	if got := string(reply.Output); got != want {
		t.Errorf("the output is %s", got)
	}
}

// TestCancelledCallOfHungServer cancels a call that the server never ends, or answers with the id
// of another call. A server that does not answer any more is stopped.
func TestCancelledCallOfHungServer(t *testing.T) {
	for mode, restarts := range map[string]bool{"hang": true, "lying-ids": false} {
		t.Run(mode, func(t *testing.T) {
			s := newServer(t, mode)
			if _, err := s.Tools(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := s.call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call ended with %v", err)
			}
			if stopped := len(s.left(t)) == 0; stopped != restarts {
				t.Errorf("the server was stopped: %v", stopped)
			}
		})
	}
}

// TestCancelledCallsOfDeafServer has a server that does not read its stdin. The calls that wait to
// write to it end when they are cancelled, and the server with them (MC-06, EX-08).
func TestCancelledCallsOfDeafServer(t *testing.T) {
	f := newServer(t, "deaf")
	if _, err := f.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	arguments := json.RawMessage(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ended := make(chan error)
	for range 2 {
		go func() {
			_, err := f.Call(ctx, "t0", arguments)
			ended <- err
		}()
	}
	for range 2 {
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call ended with %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a call did not end after its deadline")
		}
	}
	if left := f.left(t); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestRequestsWithoutEnd has a server send requests and read no answer. It is ended before their
// queue grows, although no call waits for it (MC-06).
func TestRequestsWithoutEnd(t *testing.T) {
	f := newServer(t, "pings")
	if _, err := f.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for len(f.left(t)) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the server still runs")
		}
		runtime.Gosched()
	}
	if _, err := f.Tools(t.Context()); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// TestServerThatCannotStart is refused, with its stderr as a hint, and not started again and
// again.
func TestServerThatCannotStart(t *testing.T) {
	for mode, says := range map[string]string{
		"crash-start": "code 3", "many-tools": "500 tools", "large-tools": "2097152 bytes",
	} {
		t.Run(mode, func(t *testing.T) {
			s := newServer(t, mode)
			for range 5 {
				_, err := s.call(t.Context())
				if dray.CodeOf(err) != dray.CodeHelperMissing {
					t.Errorf("the call ended with %q: %v", dray.CodeOf(err), err)
				}
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the error does not say %q: %v", says, err)
				}
			}
			if n := s.starts.Load(); n != 2 {
				t.Errorf("%d starts", n)
			}
			if left := s.left(t); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// TestHungStartIsCancelled cancels a call while the server does not answer initialize.
func TestHungStartIsCancelled(t *testing.T) {
	s := newServer(t, "hang-start")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v", err)
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestWaitForStartIsCancelled cancels a call that waits while another one starts the server.
func TestWaitForStartIsCancelled(t *testing.T) {
	s := newServer(t, "hang-start")
	first, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := s.call(first)
		ended <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for ; s.starts.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server is not started")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call that waits ended with %v", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the start ended first: %v", err)
	default:
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that starts the server ended with %v", err)
	}
}

// TestCloseEndsDescendants closes a server that ignores the end of its stdin, and one with a
// child.
func TestCloseEndsDescendants(t *testing.T) {
	for _, mode := range []string{"ignore-eof", "children"} {
		t.Run(mode, func(t *testing.T) {
			s := newServer(t, mode)
			if _, err := s.call(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.left(t)) == 0 {
				t.Fatal("the processes of the server are not found")
			}
			s.Close()
			if left := s.left(t); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
			if _, err := s.call(t.Context()); dray.CodeOf(err) != dray.CodeShuttingDown {
				t.Errorf("a call after Close: %v", err)
			}
		})
	}
}
