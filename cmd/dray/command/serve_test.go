package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeService is a service that is busy as set by the test.
type fakeService struct {
	mu    sync.Mutex
	busy  bool
	since time.Time
}

func (d *fakeService) Serve(net.Listener) error       { return nil }
func (d *fakeService) Hangup(context.Context)         {}
func (d *fakeService) Shutdown(context.Context) error { return nil }

func (d *fakeService) Idle() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, !d.busy
}

func (d *fakeService) set(busy bool, asked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = busy
	if asked {
		d.since = time.Now()
	}
}

func TestWaitIdleCountsFromTheLastCallsEnd(t *testing.T) {
	tests := map[string]struct {
		happens func(d *fakeService)
		want    time.Duration // after the start, to the second
	}{
		"nothing": {func(*fakeService) {}, 10 * time.Minute},
		"requests": {
			func(d *fakeService) { time.Sleep(4 * time.Minute); d.set(false, true) },
			14 * time.Minute,
		},
		"a long call": {func(d *fakeService) {
			d.set(true, true)
			time.Sleep(time.Hour)
			d.set(false, true)
		}, 70 * time.Minute},
		"a call that no client waits for": {func(d *fakeService) {
			d.set(true, true)
			time.Sleep(time.Hour)
			d.set(false, false) // the end makes no request
		}, 70 * time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, begin := &fakeService{since: time.Now()}, time.Now()
				go tt.happens(d)
				synctest.Wait()
				if !waitIdle(t.Context(), d, 10*time.Minute) {
					t.Fatal("the context ended")
				}
				if took := time.Since(begin); took < tt.want-time.Second || took > tt.want+time.Second {
					t.Errorf("idle after %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestWaitIdleEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if waitIdle(ctx, &fakeService{busy: true}, time.Hour) {
			t.Error("a busy daemon is idle")
		}
	})
}

// A daemon that was killed while it started a process has its lock until that process has its
// program: the next daemon waits for that, and not for a daemon that runs (AU-03).
func TestLockAfterKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), daemonLock)
	held, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.writePID(); err != nil {
		t.Fatal(err)
	}
	if _, err := lockAfterKill(path); !errors.Is(err, errLocked) {
		t.Fatalf("the lock of a daemon that runs: %v", err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendln(nil, ended.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, held.unlock)
	next, err := lockAfterKill(path)
	if err != nil {
		t.Fatalf("the lock of a daemon that was killed: %v", err)
	}
	next.unlock()
}
