package command

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// socketOfManager listens like a service manager: the socket outlives its daemons.
func socketOfManager(t *testing.T, path string) *os.File {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = f.Close(), l.Close() })
	return f
}

// activated returns a real daemon that gets the socket as systemd passes it.
func activated(t *testing.T, h testState, socket *os.File) *exec.Cmd {
	t.Helper()
	serve := h.dray(t, "serve")
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" serve`, serve.Path)
	cmd.Env = slices.Concat(serve.Env, []string{
		wholeDaemon + "=1", "LISTEN_FDS=1", "DRAY_ENGINE_HOST=unix:///nowhere/docker.sock",
	})
	cmd.ExtraFiles = []*os.File{socket}
	return cmd
}

// A client that connects before the daemon runs is served by it, and so is one after the daemon was
// stopped and started again: the socket stays (OP-06).
func TestSocketActivation(t *testing.T) {
	h := newHome(t)
	path := filepath.Join(h.state, "dray.sock")
	socket := socketOfManager(t, path)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	for range 2 {
		answered := make(chan error, 1)
		go func() {
			resp, err := client.Get("http://localhost/readyz")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			answered <- err
		}()
		daemon := activated(t, h, socket)
		var log strings.Builder
		daemon.Stderr = &log
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("no response")
		}
		if out, err := h.dray(t, "stop").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if err := daemon.Wait(); err != nil {
			t.Errorf("%v: %s", err, log.String())
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if out, err := h.dray(t, "status").CombinedOutput(); exitOf(err) != exitNoDaemon {
		t.Errorf("status: %v: %s", err, out)
	}
}

func exitOf(err error) int {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // of exec itself
		return exit.ExitCode()
	}
	return -1
}

// A socket at another path than the configured one is refused: no client would find it.
func TestSocketActivationAtAnotherPath(t *testing.T) {
	h := newHome(t)
	socket := socketOfManager(t, filepath.Join(h.state, "other.sock"))
	out, err := activated(t, h, socket).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "systemd listens on") {
		t.Errorf("%v: %s", err, out)
	}
}
