package process

import (
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code if Signal is zero.
	Code   int
	Signal syscall.Signal
	// Leftover counts descendants that were alive when the leader ended by itself; they were ended too, but for those in Kept.
	Leftover int
	// Kept are the pids of those that Spec.Keep left running.
	Kept []int
	// OOM says whether the kernel ended the leader because memory ran out.
	OOM dray.OOM
	// Survivors are pids that did not go within five seconds of KILL.
	Survivors []int
	// Proven says that Survivors are all there are. It is false only beside ErrLost.
	Proven bool

	unknown       bool // how the leader ended is not known
	tracerBlocked bool // the supervisor waits for a tracer to let go of what has ended, and serves no more calls
}

// packExit leaves Proven out: it is not the supervisor's to say.
func packExit(f *pack.Fields, e *Exit) {
	pack.Int(f, &e.Code)
	pack.Int(f, &e.Signal)
	pack.Int(f, &e.Leftover)
	pack.List(f, &e.Kept, pack.NoLimit, pack.Int)
	pack.Int(f, &e.OOM)
	pack.List(f, &e.Survivors, pack.NoLimit, pack.Int)
	pack.Bool(f, &e.unknown)
	pack.Bool(f, &e.tracerBlocked)
}
