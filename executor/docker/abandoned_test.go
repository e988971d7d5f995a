package docker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/docker"
)

// agentsOf returns the pids, on this machine, of the agents of a container, as /proc shows them.
func agentsOf(t *testing.T, id string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var pid int
		if n, _ := fmt.Sscan(e.Name(), &pid); n == 0 {
			continue
		}
		argv, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		groups, _ := os.ReadFile("/proc/" + e.Name() + "/cgroup")
		if strings.Contains(string(argv), "\x00serve\x00") && strings.Contains(string(groups), id) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Calls whose timeout ends while the agent is stopped are not started when it continues. Their
// records say that survivors are unknown, and later calls warn (EX-09).
func TestAbandonedStartsDoNotHappen(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportStdio} {
		t.Run(string(transport), func(t *testing.T) {
			markers := t.TempDir()
			e := newEngine(t, transport)
			box := runContainer(t, e, debian, func(_ *container.Config, h *container.HostConfig) {
				h.Binds = append(h.Binds, markers+":/markers")
			})
			env := environment(t, e, box, agent.Spec{})
			signal := func(sig syscall.Signal) {
				t.Helper()
				pids := agentsOf(t, box.ID)
				if len(pids) != 1 {
					t.Fatalf("the agents are %v", pids)
				}
				if err := syscall.Kill(pids[0], sig); err != nil {
					t.Fatal(err)
				}
				for sig == syscall.SIGSTOP && !stopped(pids[0]) { // each thread stops by itself
				}
			}
			signal(syscall.SIGSTOP)
			var calls sync.WaitGroup
			for i := range 48 {
				calls.Go(func() { abandonedStart(t, env, fmt.Sprintf("/markers/%d", i)) })
			}
			calls.Wait()
			signal(syscall.SIGCONT)
			next, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{"true"}, Dir: "/"})
			if err != nil {
				t.Fatal(err)
			}
			checkWarned(t, next)
			if _, err := next.Wait(); err != nil {
				t.Error(err)
			}
			if ran, err := os.ReadDir(markers); err != nil || len(ran) > 0 {
				t.Errorf("%d of 48 calls ran after their end (%v)", len(ran), err)
			}
		})
	}
}

// A start that is abandoned at any moment leaves no directory for result files in the container
// (EX-23).
func TestAbandonedStartsLeaveNoResults(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportStdio} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			box := runContainer(t, e, debian, nil)
			env, abandoned := environment(t, e, box, agent.Spec{}), 0
			for i := range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%30)*200*time.Microsecond)
				p, err := env.Start(ctx, dray.ProcessSpec{
					Argv: []string{"sh", "-c", "touch $DRAY_RESULTS/a; exec sleep 600"},
					Dir:  "/", CallID: strconv.Itoa(i),
				})
				cancel()
				if err != nil {
					abandoned++
					continue
				}
				p.Stop(0)
				exit, err := p.Wait()
				if err != nil {
					t.Fatal(err)
				}
				if exit.Results != nil {
					exit.Results.Remove()
				}
			}
			if abandoned == 0 {
				t.Error("no start was abandoned")
			}
			checkNoResults(t, box.ID)
		})
	}
}

// checkNoResults checks that soon no call has a directory for result files in a container.
func checkNoResults(t *testing.T, id string) {
	t.Helper()
	pids := agentsOf(t, id)
	if len(pids) != 1 {
		t.Fatalf("the agents are %v", pids)
	}
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/dev/shm/.dray-results-*", pids[0]))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("the directories are %v, %v", dirs, err)
	}
	left := 1
	for deadline := time.Now().Add(10 * time.Second); left > 0 && time.Now().Before(deadline); {
		entries, err := os.ReadDir(dirs[0])
		if left = len(entries); err != nil {
			t.Fatal(err)
		}
	}
	if left > 0 {
		t.Errorf("%d directories for result files are left", left)
	}
}

// stopped reports whether all threads of a process are stopped.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return !slices.ContainsFunc(threads, func(path string) bool {
		b, _ := os.ReadFile(path)
		return !strings.Contains(string(b), ") T ")
	})
}

// abandonedStart makes a call whose timeout ends before its agent responds.
func abandonedStart(t *testing.T, env dray.Environment, marker string) {
	store, err := capture.NewStore(capture.Options{Dir: t.TempDir(), Limit: 1 << 20, SummaryBytes: 1 << 10})
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, executor.ErrTimeout)
	defer cancel()
	runner := executor.Runner{Captures: store, Grace: 100 * time.Millisecond}
	out, err := runner.Run(ctx, env, dray.ProcessSpec{Argv: []string{"touch", marker}, Dir: "/"},
		executor.Options{ID: "abandoned"}, discardSink{})
	out.Release()
	kill := out.Result.Metadata.Kill
	if err != nil || out.Result.Reason != dray.ReasonTimeout || kill == nil || kill.Survivors.Proven {
		t.Errorf("ended as %s, %v, killed %+v", out.Result.Reason, err, kill)
	}
}

// discardSink ignores all events of a call.
type discardSink struct{}

func (discardSink) Started()                   {}
func (discardSink) Progress(_, _ string)       {}
func (discardSink) Output(dray.Stream, []byte) {}

// A tool with CAP_SYS_ADMIN that leaves its cgroup, by a mount of its own, and kills the agent
// and its supervisor outlives its call. The survivors are then unknown, and not none (EX-09).
func TestSurvivorsAreUnknownAfterLeavingTheCgroup(t *testing.T) {
	e := newEngineWith(t, docker.Options{Transport: docker.TransportSocket, Lease: time.Hour})
	box := runContainer(t, e, debian, func(_ *container.Config, h *container.HostConfig) {
		h.CapAdd = append(h.CapAdd, "SYS_ADMIN")
		h.SecurityOpt = []string{"apparmor=unconfined"}
	})
	env := environment(t, e, box, agent.Spec{})
	p := begin(t, env, `mkdir /tmp/cg && mount -t cgroup2 none /tmp/cg && (
		echo 0 >/tmp/cg/cgroup.procs && echo ready && exec setsid sleep 613 >/dev/null 2>&1 <&1) &
		read go; kill -9 $(grep -h PPid /proc/$PPID/status | tr -dc 0-9) $PPID; exec sleep 612`)
	_, _ = p.Stdin().Write([]byte("\n"))
	exit, err := p.Wait()
	runs := false // it may still be about to start its program
	for end := time.Now().Add(10 * time.Second); !runs && time.Now().Before(end); {
		runs = strings.Contains(commands(t, box.ID), "sleep 613")
	}
	if dray.CodeOf(err) != dray.CodeAgentLost || !runs || exit.Survivors.Proven {
		t.Errorf("ended with %v; survivors %+v; left its cgroup and runs: %v", err, exit.Survivors, runs)
	}
	next := begin(t, environment(t, e, box, agent.Spec{}), "echo ready")
	checkWarned(t, next)
	_, _ = next.Wait()
}

// checkWarned checks that a later call in a container warns of processes that may still run there.
func checkWarned(t *testing.T, next dray.Process) {
	t.Helper()
	p, ok := next.(interface{ Warnings() []string })
	if !ok || !strings.Contains(strings.Join(p.Warnings(), " "), "may still run") {
		t.Errorf("the next call does not warn: %v", p)
	}
}
