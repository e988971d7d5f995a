package docker_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// An agent that runs out of file descriptors says so, wherever in a start that is, and serves the
// next call (CA-04).
func TestAgentOutOfDescriptors(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportStdio} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			box := runContainer(t, e, debian, nil)
			env := environment(t, e, box, agent.Spec{})
			run := func() error {
				p, err := env.Start(t.Context(), dray.ProcessSpec{
					Argv: []string{"true"}, Dir: "/tmp", CallID: "descriptors",
				})
				if err == nil {
					_, err = p.Wait()
				}
				return err
			}
			if err := run(); err != nil {
				t.Fatal(err)
			}
			pids, limited := agentsOf(t, box.ID), 0
			if len(pids) != 1 {
				t.Fatalf("the agents are %v", pids)
			}
			for free := range 16 {
				restore := limitFDs(t, pids[0], free)
				err := run()
				restore()
				if dray.CodeOf(err) == dray.CodeLimitExceeded {
					limited++
				} else if err != nil {
					t.Errorf("%d free descriptors: %s: %v", free, dray.CodeOf(err), err)
				}
				if err := run(); err != nil {
					t.Fatalf("after %d free descriptors: %v", free, err)
				}
			}
			if now := agentsOf(t, box.ID); limited == 0 || len(now) != 1 || now[0] != pids[0] {
				t.Errorf("%d calls were limited; the agents are %v", limited, now)
			}
		})
	}
}

// limitFDs lets a process open only so many more files.
func limitFDs(t *testing.T, pid, free int) (restore func()) {
	t.Helper()
	open := map[string]bool{}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		open[e.Name()] = true
	}
	limit := 0
	for unused := -1; unused < free; limit++ {
		if !open[fmt.Sprint(limit)] {
			unused++
		}
	}
	var old unix.Rlimit
	lower := unix.Rlimit{Cur: uint64(limit - 1)}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	lower.Max = old.Max
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &lower, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
			t.Error(err)
		}
	}
}
