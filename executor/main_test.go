package executor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
)

// The test binary is its own supervisor.
const superviseArg = "supervise-for-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == superviseArg {
		if err := process.Supervise(3); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// fixture is the host environment, with a directory where tools may work.
type fixture struct {
	env dray.Environment
	dir string
	// outside is a directory where they may not.
	outside string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe", Args: []string{"supervisor", superviseArg}, Env: append(os.Environ(),
			"GORACE=atexit_sleep_ms=0"),
	})
	t.Cleanup(pool.Close)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{env: host.New(host.Config{Roots: []string{dir}, Homes: t.TempDir()}, pool).
		Environment(dir), dir: dir, outside: t.TempDir()}
}

// newRunner returns a runner with these captures.
func newRunner(t testing.TB, opts capture.Options) *executor.Runner {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	store, err := capture.NewStore(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &executor.Runner{Captures: store}
}
