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

// bench is this host as an environment, with a folder that tools may work in.
type bench struct {
	env dray.Environment
	dir string
	// outside is a folder where they may not.
	outside string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	pool := process.NewPool(process.Launch{
		Path: "/proc/self/exe", Args: []string{"supervisor", superviseArg}, Env: append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
	})
	t.Cleanup(pool.Close)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{env: host.New(host.Config{Roots: []string{dir}, Homes: t.TempDir()}, pool).In(dir), dir: dir, outside: t.TempDir()}
}

// runner is one that keeps what tools print as the options say.
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
