package process_test

import (
	"testing"

	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/executor/process"
)

// newGroupedPool is a pool whose supervisors live in groups of the unified hierarchy.
func newGroupedPool(t testing.TB) *process.Pool {
	t.Helper()
	tree := newTree(t)
	pool := process.NewPool(process.Launch{
		Path: "/proc/self/exe", Args: []string{"supervisor", superviseArg}, Env: supervisorEnv(),
		Cgroup: func() *process.Cgroup {
			g, err := tree.Group()
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

func newTree(t testing.TB) *cgroup.Tree {
	t.Helper()
	folder, err := cgroup.OfSelf()
	if err != nil {
		t.Skipf("no unified hierarchy here: %v", err)
	}
	tree, err := cgroup.Open(folder)
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
