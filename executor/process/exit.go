package process

import (
	"encoding/binary"
	"syscall"

	"github.com/dray-dev/dray"
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

	untold bool // how the leader ended is not known
	held   bool // the supervisor waits for a tracer to let go of what has ended, and serves no more calls
}

func (e Exit) encode() []byte {
	b := binary.AppendVarint(nil, int64(e.Code))
	b = binary.AppendVarint(b, int64(e.Signal))
	b = binary.AppendVarint(b, int64(e.Leftover))
	b = append(b, flag(e.untold), flag(e.held), byte(e.OOM)) //nolint:gosec // one of three
	return appendPIDs(appendPIDs(b, e.Survivors), e.Kept)
}

func appendPIDs(b []byte, pids []int) []byte {
	b = binary.AppendUvarint(b, uint64(len(pids)))
	for _, pid := range pids {
		b = binary.AppendVarint(b, int64(pid))
	}
	return b
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func decodeExit(b []byte) (Exit, error) {
	d := decoder{b: b}
	e := Exit{Code: int(d.varint()), Signal: syscall.Signal(d.varint()), Leftover: int(d.varint()), Proven: true}
	e.untold, e.held, e.OOM = d.byte() == 1, d.byte() == 1, dray.OOM(d.byte())
	e.Survivors, e.Kept = d.pids(), d.pids()
	if d.failed {
		return Exit{}, errMalformed
	}
	return e, nil
}

func (d *decoder) pids() (pids []int) {
	for range d.count() {
		pids = append(pids, int(d.varint()))
	}
	return pids
}
