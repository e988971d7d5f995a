package process_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/executor/process"
)

// newGroupedPool returns a pool whose supervisors live in cgroups.
func newGroupedPool(t testing.TB) *process.Pool {
	t.Helper()
	tree := newTree(t)
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe", Args: []string{"supervisor", superviseArg}, Env: supervisorEnv(),
		Cgroup: func() *process.Cgroup {
			g, err := tree.NewGroup()
			if err != nil {
				t.Error(err)
				return nil
			}
			return g
		},
	})
	t.Cleanup(pool.Close)
	return pool
}

func newTree(t testing.TB) *cgroup.Manager {
	t.Helper()
	folder, err := cgroup.SelfPath()
	if err != nil {
		t.Skipf("no unified hierarchy here: %v", err)
	}
	tree, err := cgroup.NewManager(folder)
	if err != nil {
		t.Skipf("groups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

// A pool with cgroups kills what a tool left that killed its supervisor, and proves that nothing is
// left, even in a program with other children (EX-09).
func TestCgroupEndsOrphans(t *testing.T) {
	pool := newGroupedPool(t)
	for range 10 {
		p := shell(t, pool, `read go; setsid setsid sleep 600 & echo $!; kill -KILL $PPID; sleep 600`, 0)
		_, _ = p.Stdin().Write([]byte("\n"))
		got := collect(p)
		if !errors.Is(got.err, process.ErrLost) || !got.exit.Proven || len(got.exit.Survivors) != 0 {
			t.Fatalf("got %+v", got)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(got.stdout)); err == nil && alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
	if got := collect(shell(t, pool, "exit 3", 0)); got.exit.Code != 3 || got.err != nil {
		t.Errorf("the next call: %+v", got)
	}
}

// Stop with a cgroup leaves no process, and the supervisor serves the next call (EX-09).
func TestCgroupStop(t *testing.T) {
	pool := newGroupedPool(t)
	for name, script := range escapes {
		for range 5 {
			p := shell(t, pool, script, 0)
			pid := firstPid(t, p)
			p.Stop(0)
			if got := collect(p); got.err != nil || len(got.exit.Survivors) != 0 || alive(pid) {
				t.Fatalf("%s: got %+v, alive %v", name, got, alive(pid))
			}
		}
	}
}
