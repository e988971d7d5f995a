package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// A daemon that accepts connections and does not respond is an error with a hint.
func TestUnresponsiveDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket) // the kernel accepts connections
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := New(socket, nil)
	defer c.Close()
	c.slowAfter, c.probeTimeout = time.Millisecond, 10*time.Millisecond
	c.OnSlow = func() { t.Error("a hung daemon is reported as slow") }
	_, err = c.Tools(t.Context(), "")
	if !errors.Is(err, ErrUnresponsive) || errors.Is(err, ErrNoDaemon) ||
		!strings.Contains(dray.AsError(err).Hint, "dray stop") {
		t.Errorf("got %v, hint %q", err, dray.AsError(err).Hint)
	}
}

// A daemon that hangs while a call runs is an error too, and a quiet call is none.
func TestUnresponsiveDaemonOfStream(t *testing.T) {
	var probes atomic.Int32
	started := make(chan struct{}) // until then a slow response may be reported
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = w.Write([]byte(`{"seq":1,"event":"state","id":"1"}` + "\n"))
			_ = http.NewResponseController(w).Flush()
		} else if <-started; probes.Add(1) < 4 {
			return
		}
		<-r.Context().Done()
	})
	c.slowAfter, c.probeTimeout = time.Millisecond, 2*time.Second
	c.OnSlow = func() { t.Error("a quiet call is reported as slow") }
	stream, err := c.Start(t.Context(), Call{Tool: "exec"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	close(started)
	if _, err := stream.Next(); !errors.Is(err, ErrUnresponsive) || IsLost(err) ||
		!strings.Contains(dray.AsError(err).Hint, "dray stop") || probes.Load() < 4 {
		t.Errorf("after %d checks: %v, hint %q", probes.Load(), err, dray.AsError(err).Hint)
	}
}

// A slow response is waited for, and OnSlow is called once.
func TestSlowResponse(t *testing.T) {
	var probes, slow atomic.Int32
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
	c.slowAfter, c.probeTimeout = time.Millisecond, time.Minute
	c.OnSlow = func() { slow.Add(1) }
	if _, err := c.Tools(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if slow.Load() != 1 {
		t.Errorf("OnSlow was called %d times", slow.Load())
	}
}

// OnVersionMismatch is called once.
func TestVersionMismatch(t *testing.T) {
	for theirs, want := range map[string]string{"": "[]", "v1": "[]", "v2": "[v2]"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Dray-Version", theirs)
			_, _ = w.Write([]byte(`{"items":[]}`))
		})
		c.Version = "v1"
		slow := []string{}
		c.OnVersionMismatch = func(version string) { slow = append(slow, version) }
		for range 2 {
			if _, err := c.Tools(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(slow); got != want {
			t.Errorf("a daemon of version %q: got %s, want %s", theirs, got, want)
		}
	}
}
