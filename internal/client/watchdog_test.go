package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// Who takes connections and answers nothing is given up, and what to do about it is said.
func TestUnresponsiveDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket) // the kernel takes the connections
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := New(socket, nil)
	defer c.Close()
	c.slowAfter, c.probeTime = time.Millisecond, 10*time.Millisecond
	c.OnSlow = func() { t.Error("it is said to live") }
	_, err = c.Tools(t.Context())
	end := fmt.Sprintf("kill -9 %d", os.Getpid())
	if !errors.Is(err, ErrUnresponsive) || errors.Is(err, ErrNoDaemon) ||
		!strings.Contains(dray.AsError(err).Hint, end) {
		t.Errorf("got %v, hint %q", err, dray.AsError(err).Hint)
	}
}

// A daemon that lives is waited for, however long it takes, and that is told once.
func TestSlowAnswer(t *testing.T) {
	var probes, told atomic.Int32
	enough := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			if probes.Add(1) == 3 {
				close(enough)
			}
			return
		}
		<-enough
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	c.slowAfter, c.probeTime = time.Millisecond, time.Minute
	c.OnSlow = func() { told.Add(1) }
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told.Load() != 1 {
		t.Errorf("it was told %d times", told.Load())
	}
}

// That the daemon is of another version is told once, with its process.
func TestDaemonOfAnotherVersion(t *testing.T) {
	for theirs, want := range map[string]string{"": "[]", "v1": "[]", "v2": "[v2 true]"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Dray-Version", theirs)
			_, _ = w.Write([]byte(`{"items":[]}`))
		})
		c.Version = "v1"
		told := []string{}
		c.OnVersionMismatch = func(version string,
			pid int,
		) {
			told = append(told, fmt.Sprint(version, " ", pid == os.Getpid()))
		}
		for range 2 {
			if _, err := c.Tools(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(told); got != want {
			t.Errorf("a daemon of version %q: told %s, want %s", theirs, got, want)
		}
	}
}
