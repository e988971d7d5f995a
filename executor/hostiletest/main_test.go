package hostiletest_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/internal/soakreport"
)

// workshop is a temporary directory of this run. It has the program hostile.
var workshop string

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == suspendHelperArg {
		if err := runSuspendHelper(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "dray-hostiletest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workshop = dir
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // parallel tests wait for engines and leases
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

var hostile = sync.OnceValues(func() ([]byte, error) {
	path := filepath.Join(workshop, "hostile")
	if out, err := exec.Command("cc", "-O1", "-Wall", "-Werror", "-static", "-pthread", "-o", path,
		"testdata/hostile.c").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling testdata/hostile.c: %w: %s", err, out)
	}
	return os.ReadFile(path)
})

// supervisorProgram writes the agent to a file, for pools of the host.
var supervisorProgram = sync.OnceValues(func() (string, error) {
	agent, err := agentbin.For("amd64")
	if err != nil {
		return "", err
	}
	path := filepath.Join(workshop, "supervisor")
	return path, os.WriteFile(path, agent.Data, 0o755)
})

var soaking = soakreport.Enabled()

// rounds returns the number of repetitions. full is that of a whole soak.
func rounds(full int) int {
	brief := min(20, full)
	if testing.Short() {
		brief = 4
	}
	return soakreport.Count(full, brief)
}

// eventually fails the test unless ok becomes true within limit.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	if !becomes(limit, ok) {
		t.Errorf("after %s it is not true that %s", limit, what)
	}
}

func becomes(limit time.Duration, ok func() bool) bool {
	over := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-over:
			return ok()
		case <-tick.C:
		}
	}
	return true
}
