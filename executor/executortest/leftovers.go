package executortest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// EX-11: what a call was told to keep runs on after the result, which names it; it delays neither that nor the end of the output.
func testKeptLeftovers(t *testing.T, h Harness) {
	if !h.leftovers(t) {
		return
	}
	for range h.rounds() {
		p := h.start(t, dray.ProcessSpec{
			Argv: []string{"/bin/sh", "-c", `setsid sleep 600 >/dev/null 2>&1 & echo $!; sleep 600 & echo $!; exit 5`}, KeepLeftovers: true,
		})
		got := finish(p, nil)
		pids := strings.Fields(got.stdout)
		if got.err != nil || got.exit.Code != 5 || got.exit.Leftover != 2 || len(got.exit.KeptPIDs) != 2 || !got.exit.Survivors.Proven || len(pids) != 2 {
			t.Fatalf("got %+v", got)
		}
		for _, pid := range got.exit.KeptPIDs {
			name := strconv.Itoa(pid)
			if !h.alive(t, name) {
				t.Errorf("%d was not kept", pid)
			}
			h.ok(t, h.sh(t, "kill -KILL $1", name), 0)
		}
	}
}

// EX-11: a call that is stopped takes all with it, whatever it was to keep.
func testKeepAndStop(t *testing.T, h Harness) {
	if !h.caps().TracksLeftovers {
		t.Log("not promised here: see KeptLeftovers and LetGo")
		return
	}
	for range h.rounds() {
		p := h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", `setsid sleep 600 & echo $!; sleep 600`}, KeepLeftovers: true})
		left := pid(t, p)
		p.Stop(0)
		got := collect(p)
		if got.err != nil || len(got.exit.KeptPIDs) != 0 || len(got.exit.Survivors.PIDs) != 0 || h.alive(t, left) {
			t.Fatalf("got %+v", got)
		}
	}
}
