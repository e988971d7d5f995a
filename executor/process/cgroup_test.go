package process_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/executor/process"
)

// newGroupedPool is a pool whose supervisors live in groups of the unified hierarchy.
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

// EX-09: a tool that kills its supervisor wins nothing where each has a group: what it left is
// ended through that, and the end is proved, in a program with other children too.
func TestGroupEndsOrphans(t *testing.T) {
	pool := newGroupedPool(t)
	for range 10 {
		p := shell(t, pool, `read go; setsid setsid sleep 600 & echo $!; kill -KILL $PPID; sleep 600`, 0)
		_, _ = p.Stdin().Write([]byte("\n"))
		got := collect(p)
		if !errors.Is(got.err, process.ErrLost) || !got.exit.Proven || len(got.exit.Survivors) != 0 {
			t.Fatalf("got %+v", got)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(got.stdout)); err == nil && alive(pid) {
			t.Errorf("%d is still there", pid)
		}
	}
	if got := collect(shell(t, pool, "exit 3", 0)); got.exit.Code != 3 || got.err != nil {
		t.Errorf("the next call: %+v", got)
	}
}

// EX-09: with a group, as without, Stop leaves nothing, and the supervisor serves on.
func TestGroupStop(t *testing.T) {
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
