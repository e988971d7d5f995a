package executor

import (
	"context"
	"time"

	"github.com/dray-dev/dray"
)

// watch ends a process when its context does, when it is silent for too long, or when what it prints can no longer be kept.
type watch struct {
	proc  dray.Process
	grace time.Duration
	idle  time.Duration
	noise chan struct{}
	full  chan struct{}
	cause error // read after until has returned
}

func newWatch(proc dray.Process, grace, idle time.Duration) *watch {
	return &watch{proc: proc, grace: grace, idle: idle, noise: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

// heard says that the process printed something.
func (w *watch) heard() {
	if w.idle > 0 {
		tell(w.noise)
	}
}

// unkept says that something of it is not kept.
func (w *watch) unkept() { tell(w.full) }

func tell(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (w *watch) until(ctx context.Context, ended <-chan struct{}) {
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
		case <-w.noise:
			timer.Reset(w.idle)
			continue
		case <-w.full:
			w.cause = ErrOutput
		case <-silence:
			w.cause = ErrIdle
		case <-ctx.Done():
			w.cause = context.Cause(ctx)
		}
		w.proc.Stop(w.grace)
		return
	}
}
