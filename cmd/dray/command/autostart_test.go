package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	if held, err := locked(path); held || err != nil {
		t.Fatalf("missing lock: %v, %v", held, err)
	}
	l, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(path); !errors.Is(err, errLocked) {
		t.Errorf("locked twice: %v", err)
	}
	for range 2 { // a query does not take the lock
		if held, err := locked(path); !held || err != nil {
			t.Errorf("held lock: %v, %v", held, err)
		}
	}
	l.unlock()
	if held, err := locked(path); held || err != nil {
		t.Errorf("free lock: %v, %v", held, err)
	}
	again, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	again.unlock()
}

// A symlink in the state directory must not cause another file to be locked or created.
func TestLockDoesNotFollowSymlinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "l")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), path); err != nil {
		t.Fatal(err)
	}
	if l, err := tryLock(path); err == nil {
		l.unlock()
		t.Error("a link was followed")
	}
}

func TestLogTail_BeginsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, logName), []byte("of the daemon before\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if lines := l.tail(); len(lines) != 0 {
		t.Errorf("got %q", lines)
	}
	for i := range 500 {
		fmt.Fprintf(l, "line %d \x1b[31m %s\n", i, strings.Repeat("x", 50))
	}
	lines := l.tail()
	if len(lines) != maxLogLines || !strings.HasPrefix(lines[maxLogLines-1], `line 499 \x1b[31m`) {
		t.Errorf("got %d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

func TestLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, logName)
	if err := os.WriteFile(path+".1", []byte("the oldest"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, maxLog+1), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]int64{path: 0, path + ".1": maxLog + 1} {
		info, err := os.Stat(name)
		if err != nil || info.Size() != want {
			t.Errorf("%s: %v, %v; want %d bytes", name, info, err, want)
		}
	}
}

// Commands that start no daemon wait for one that is starting, and say plainly if it exits instead.
func TestPsWhileADaemonStarts(t *testing.T) {
	for name, listens := range map[string]bool{"it listens": true, "it exits": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := newHome(t)
			if err := os.Mkdir(home.state, 0o700); err != nil {
				t.Fatal(err)
			}
			starting, err := tryLock(filepath.Join(home.state, daemonLock))
			if err != nil {
				t.Fatal(err)
			}
			r, terminal := onTerminal(t, home.dray(t, "ps"))
			readUntil(t, terminal, "waiting for the daemon to start")
			if listens {
				serveEmptyPages(t, filepath.Join(home.state, "dray.sock"))
			} else {
				starting.unlock()
			}
			want, code := "no daemon is running for "+home.state+" (not_found)", 3
			if listens {
				want, code = "COMMAND", 0
			}
			if shown := readUntil(t, terminal, want); strings.Contains(shown, "internal") {
				t.Errorf("ps shows %q", shown)
			}
			readUntil(t, terminal, "")
			if got := r.exit(t); got != code {
				t.Errorf("exit code %d, want %d", got, code)
			}
		})
	}
}

// serveEmptyPages listens as a daemon without calls.
func serveEmptyPages(t *testing.T, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[],"next_cursor":""}`)
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
}

// The warning about a daemon of another version is printed on a terminal only.
func TestVersionMismatch(t *testing.T) {
	if got := versionMismatch("v1\x1b[2J"); !strings.Contains(got, `version v1\x1b[2J, this command `) {
		t.Errorf("got %q", got)
	}
	var err strings.Builder
	(&app{err: &err}).warnVersion("v1")
	if err.Len() > 0 {
		t.Errorf("printed %q to a stderr that is no terminal", err.String())
	}
}
