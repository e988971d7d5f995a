package executortest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// What an environment says that it cannot do is tested as well: it is told as not known, and nothing else is claimed.

// terminals says whether a terminal is all that it can be. Where not, it is one all the same: see Terminal and TerminalJobs.
func (h Harness) terminals(t *testing.T) bool {
	t.Helper()
	if !h.caps().NativeTerminals {
		t.Log("not promised here: the terminal is the engine's own")
	}
	return h.caps().NativeTerminals
}

// leftovers says whether what a leader leaves running is found. Where not, all of it is kept, whatever was asked for, and none is named or
// counted.
func (h Harness) leftovers(t *testing.T) bool {
	t.Helper()
	if h.caps().TracksLeftovers {
		return true
	}
	for _, keep := range []bool{true, false} {
		p := h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", `setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!; exit 5`}, KeepLeftovers: keep})
		got := finish(p, nil)
		left := strings.TrimSpace(got.stdout)
		if got.err != nil || got.exit.Code != 5 || got.exit.Leftover != 0 || len(got.exit.KeptPIDs) != 0 || got.exit.Survivors.Proven || !h.alive(t, left) {
			t.Errorf("keep %v: got %+v, %v; %s is alive: %v", keep, got.exit, got.err, left, h.alive(t, left))
		}
		h.kill(t, left)
	}
	return false
}

// testUnkillable is what becomes of a process that nobody can end: it goes on, and the result claims nothing else.
func testUnkillable(t *testing.T, h Harness) {
	if h.caps().ExactSurvivors {
		t.Log("Stop ends processes here: see Stop and StopEndsEscapees")
		return
	}
	p := h.shell(t, `echo $$; exec sleep 600`)
	leader := pid(t, p)
	p.Stop(0)
	got := withTimeout(t, 20*time.Second, func() processResult { return collect(p) })
	if got.err != nil || got.exit.Survivors.Proven || !slices.Equal(got.exit.Survivors.PIDs, nil) || !h.alive(t, leader) {
		t.Errorf("got %+v, %v; alive: %v", got.exit, got.err, h.alive(t, leader))
	}
	h.kill(t, leader)
}

// kill kills what a test was promised to find alive.
func (h Harness) kill(t *testing.T, pid string) {
	t.Helper()
	h.sh(t, `kill -9 $1`, pid)
	for giveUp := time.Now().Add(10 * time.Second); h.alive(t, pid); {
		if time.Now().After(giveUp) {
			t.Fatalf("%s does not go", pid)
		}
	}
}
