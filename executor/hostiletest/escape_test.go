package hostiletest_test

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/soakreport"
)

// escapeStyles are the styles of hostile.c that try to outlive their calls.
var escapeStyles = []string{
	"child", "session", "double-fork", "double-session", "closed", "cleared", "renamed", "ignore-term", "stopped", "all-stopped", "traced", "zombies",
	"fork-chain", "vfork", "sibling", "threads", "leader-thread-exit", "subreaper", "deep", "tree", "undumpable",
}

// timeouts is the number of timeouts of each style in a whole soak. With it and the concurrency
// below that takes more than two hours on two cores.
const timeouts = 500

// grace is the time between TERM and KILL: the default in a soak, else short.
func grace() time.Duration {
	if soaking {
		return 2 * time.Second
	}
	return 10 * time.Millisecond
}

// concurrency is the number of concurrent calls of a style.
func concurrency() int {
	if soaking {
		return 16
	}
	return 4
}

// A timeout ends all descendants of a call, whatever they did to escape. The reported survivors are
// those in /proc, and the next call works (EX-09, EX-10).
func TestEscapes(t *testing.T) {
	forEachEnv(t, containerSpec{user: "vscode", copies: concurrency(), grace: grace()},
		func(t *testing.T, p *testEnv) {
			if p.box == nil {
				eachStyle(t, p, []string{"own-namespace"}) // tools in containers cannot create namespaces
			}
			eachStyle(t, p, escapeStyles)
		})
	t.Run("root without init", func(t *testing.T) {
		eachStyle(t, newTestContainer(t, "root without init", containerSpec{
			image: busybox, copies: concurrency(), grace: grace(), change: func(_ *container.Config,
				h *container.HostConfig,
			) {
				h.Init = nil
			},
		}), escapeStyles)
	})
}

func eachStyle(t *testing.T, p *testEnv, styles []string) {
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			r := soakreport.Rand(t)
			s, dockerLeaves := newEscapeRow(t, p.name, style)
			runConcurrently(rounds(timeouts), func() func() {
				if after := time.Duration(r.IntN(40000)) * time.Microsecond; after < 8*time.Millisecond {
					return func() { escapeAnyTime(t, p, style, after, s) }
				}
				return func() { escapeReady(t, p, style, s) }
			})
			p.works(t)
			s.left.Add(int64(p.tools.noneRuns(t, style)))
			*dockerLeaves = compareWithDockerExec(t, p, style)
		})
	}
}

// runConcurrently calls n functions that next returns, some of them concurrently.
func runConcurrently(n int, next func() func()) {
	var all sync.WaitGroup
	slots := make(chan struct{}, concurrency())
	for range n {
		do := next()
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do()
		})
	}
	all.Wait()
}

// escapeReady ends a call by its timeout when the tool has done what its style says.
func escapeReady(t *testing.T, p *testEnv, style string, s *tally) {
	c := p.begin(t.Context(), style)
	defer p.done(t, c)
	if !c.settled(t) {
		return
	}
	if len(c.tool.processes()) == 0 {
		t.Errorf("%s: /proc shows no process of the tool while the call runs", style)
	}
	took := c.end(t, executor.ErrTimeout)
	s.add(took, timedOut(t, c, style))
}

// escapeAnyTime ends a call by its timeout at any moment: before the start, during it, or while the
// tool forks.
func escapeAnyTime(t *testing.T, p *testEnv, style string, after time.Duration, s *tally) {
	due := time.Now().Add(after)
	ctx, cancel := context.WithTimeoutCause(t.Context(), after, executor.ErrTimeout)
	defer cancel()
	c := p.begin(ctx, style)
	defer p.done(t, c)
	if c.wait(t) {
		s.add(c.ended.Sub(due), timedOut(t, c, style))
	}
}

// timedOut checks the result of a call that its timeout ended, and returns the processes that are
// left of it, as /proc shows them.
func timedOut(t *testing.T, c *runningCall, style string) (left []int) {
	t.Helper()
	if c.err != nil || c.result.Reason != dray.ReasonTimeout {
		t.Errorf("%s: ended as %s: %v, %+v", style, c.result.Reason, c.err, c.result.Error)
	}
	if k := c.result.Metadata.Kill; k != nil && (!k.Survivors.Proven || len(k.Survivors.PIDs) > 0) {
		t.Errorf("%s: survivors are %+v", style, k.Survivors)
	}
	if left = checkReportMatchesProc(t, c, style); len(left) > 0 {
		t.Errorf("%s: these processes are left: %s", style, described(left))
	}
	return left
}

// compareWithDockerExec returns the number of processes that each call by `docker exec` leaves, in a
// soak only.
func compareWithDockerExec(t *testing.T, p *testEnv, style string) string {
	t.Helper()
	if !soaking || p.box == nil {
		return "-"
	}
	calls := soakreport.Count(10, 0)
	other := newTestContainer(t, "docker exec", containerSpec{image: debian, copies: calls})
	left := 0
	for range calls {
		left += dockerExec(t, other, style)
	}
	return fmt.Sprintf("%.1f", float64(left)/float64(calls))
}

// dockerExec starts the tool, ends the client by TERM and after the grace by KILL, and counts the
// processes that are left.
func dockerExec(t *testing.T, p *testEnv, style string) int {
	tl := <-p.tools.stock // not returned to the stock: a process may run it
	args := []string{"exec", p.box.id, p.path + "/" + tl.name, style}
	if p.box.spec.User != "" {
		args = slices.Insert(args, 1, "--user", p.box.spec.User)
	}
	cmd := exec.Command("docker", args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("docker exec printed %q, %v", line, err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	over := time.AfterFunc(grace(), func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	over.Stop()
	becomes(grace(), func() bool { return len(tl.processes()) == 0 })
	left := len(tl.processes())
	tl.kill()
	return left
}
