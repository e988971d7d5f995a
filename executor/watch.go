package executor

import (
	"context"
	"time"

	"github.com/dray-dev/dray"
)

// watchdog ends a process when its context does, when it is silent for too long, or when what it prints can no longer be kept.
type watchdog struct {
	proc     dray.Process
	grace    time.Duration
	idle     time.Duration
	activity chan struct{}
	overflow chan struct{}
	cause    error // read after until has returned
}

func newWatch(proc dray.Process, grace, idle time.Duration) *watchdog {
	return &watchdog{proc: proc, grace: grace, idle: idle, activity: make(chan struct{}, 1), overflow: make(chan struct{}, 1)}
}

// outputSeen says that the process printed something.
func (w *watchdog) outputSeen() {
	if w.idle > 0 {
		notify(w.activity)
	}
}

// captureFailed says that something of it is not kept.
func (w *watchdog) captureFailed() { notify(w.overflow) }

func notify(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (w *watchdog) until(ctx context.Context, ended <-chan struct{}) {
	var silence <-chan time.Time
	timer := time.NewTimer(max(w.idle, time.Hour))
	defer timer.Stop()
	if w.idle > 0 {
		timer.Reset(w.idle)
		silence = timer.C
	}
	for {
		select {
		case <-ended:
			return
		case <-w.activity:
			timer.Reset(w.idle)
			continue
		case <-w.overflow:
			w.cause = ErrOutputLimit
		case <-silence:
			w.cause = ErrIdleTimeout
		case <-ctx.Done():
			w.cause = context.Cause(ctx)
		}
		w.proc.Stop(w.grace)
		return
	}
}
