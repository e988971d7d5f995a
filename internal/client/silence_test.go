package client

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// Who takes connections and answers nothing is given up, and what to do about it is said.
func TestSilentDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket) // the kernel takes the connections
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := New(socket, nil)
	defer c.Close()
	c.patience, c.probeTime = time.Millisecond, 10*time.Millisecond
	c.Waiting = func() { t.Error("it is said to live") }
	_, err = c.Tools(t.Context())
	if !errors.Is(err, ErrSilent) || errors.Is(err, ErrNoDaemon) || dray.AsError(err).Hint == "" {
		t.Errorf("got %v", err)
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
	c.patience, c.probeTime = time.Millisecond, time.Minute
	c.Waiting = func() { told.Add(1) }
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told.Load() != 1 {
		t.Errorf("it was told %d times", told.Load())
	}
}
