package command

import (
	"context"
	"net"
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
