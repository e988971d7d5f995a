package processtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/dray-dev/dray/executor/process"
)

// argument tells a supervisor from the tests.
const argument = "supervise-for-test"

// Main is a supervisor if this process was started as one, and does not return then. It has to come
// first in TestMain: a test binary that ran its tests instead would start further ones, and these
// others.
func Main() {
	if len(os.Args) != 2 || os.Args[1] != argument {
		return
	}
	if err := process.Supervise(3); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Launch starts this test binary as a supervisor. The race detector's second of sleep at the end of
// each program is left out.
func Launch() process.SupervisorConfig {
	return process.SupervisorConfig{
		Path: "/proc/self/exe", Args: []string{"supervisor", argument}, Env: append(os.Environ(),
			"GORACE=atexit_sleep_ms=0"),
	}
}

// NewPool makes a pool that is closed at the end of the test.
func NewPool(tb testing.TB) *process.Pool {
	tb.Helper()
	pool := process.NewPool(Launch())
	tb.Cleanup(pool.Close)
	return pool
}
