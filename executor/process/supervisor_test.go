package process_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray/executor/process"
)

// With Keep leftover processes run on, are reported, outlive the pool, and are reaped (EX-11).
func TestKeep(t *testing.T) {
	pools := map[string]func(testing.TB) *process.Pool{"plain": newPool, "in groups": newGroupedPool}
	for name, newPool := range pools {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t)
			var kept []int
			for range 5 {
				p := start(t, pool, process.Spec{Argv: []string{"/bin/sh", "-c", `setsid sleep 600 & sleep 600 & echo out; exit 5`}, Keep: true})
				got := collect(p)
				if got.err != nil || got.exit.Code != 5 || got.exit.Leftover != 2 || len(got.exit.Kept) != 2 ||
					got.stdout != "out\n" || !got.exit.Proven {
					t.Fatalf("got %+v", got)
				}
				kept = append(kept, got.exit.Kept...)
			}
			if got := collect(shell(t, pool, "sleep 600 & exit 6", 0)); got.exit.Code != 6 ||
				got.exit.Leftover != 1 || got.exit.Kept != nil {
				t.Errorf("another call: %+v", got)
			}
			pool.Close()
			for _, pid := range kept {
				if !alive(pid) {
					t.Errorf("process %d does not run", pid)
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			for _, pid := range kept {
				waitReaped(t, pid)
			}
		})
	}
}

// waitReaped waits until a process was reaped.
func waitReaped(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for syscall.Kill(pid, 0) == nil {
		if time.Now().After(deadline) {
			t.Fatalf("process %d was not reaped: %v", pid, stat(pid))
		}
	}
}

// Stop ends all processes of a call with Keep (EX-11).
func TestStop_Keep(t *testing.T) {
	pool := newPool(t)
	for range 20 {
		p := start(t, pool, process.Spec{Argv: []string{"/bin/sh", "-c", `setsid sleep 600 & echo $!; sleep 600`}, Keep: true})
		pid := firstPid(t, p)
		p.Stop(0)
		if got := collect(p); got.err != nil || got.exit.Kept != nil || len(got.exit.Survivors) != 0 ||
			alive(pid) {
			t.Fatalf("got %+v, alive %v", got, alive(pid))
		}
	}
}

// A detached supervisor exits when the last leftover process has ended, and is reaped.
func TestDetachedSupervisorExits(t *testing.T) {
	pool := newPool(t)
	p := start(t, pool, process.Spec{Argv: []string{"/bin/sh", "-c", `setsid sleep 600 & echo $PPID`}, Keep: true})
	detached := firstPid(t, p)
	got := collect(p)
	if len(got.exit.Kept) != 1 {
		t.Fatalf("got %+v", got)
	}
	_ = syscall.Kill(got.exit.Kept[0], syscall.SIGKILL)
	waitReaped(t, got.exit.Kept[0])
	waitReaped(t, detached)
}
