package hostiletest_test

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/soakreport"
)

// loss is how calls lose their container. Between lose and regain nothing responds.
type loss struct {
	name string
	lose func(*testing.T, *testContainer) error
	// regain brings the container back. It may be nil.
	regain func(*testing.T, *testContainer) error
	code   dray.Code
}

var losses = []loss{
	{
		name: "stopped", code: dray.CodeContainerUnavailable, regain: startAgain,
		lose: func(t *testing.T, b *testContainer) error {
			_, err := b.api.ContainerStop(t.Context(), b.id, client.ContainerStopOptions{Timeout: new(0)})
			return err
		},
	},
	{
		name: "killed", code: dray.CodeContainerUnavailable, regain: startAgain,
		lose: func(t *testing.T, b *testContainer) error {
			_, err := b.api.ContainerKill(t.Context(), b.id, client.ContainerKillOptions{Signal: "KILL"})
			return err
		},
	},
	{
		name: "restarted", code: dray.CodeContainerUnavailable,
		lose: func(t *testing.T, b *testContainer) error {
			_, err := b.api.ContainerRestart(t.Context(), b.id,
				client.ContainerRestartOptions{Timeout: new(0)})
			return err
		},
	},
	{
		name: "paused", code: dray.CodeContainerUnavailable, lose: pause,
		regain: func(t *testing.T, b *testContainer) error {
			_, err := b.api.ContainerUnpause(t.Context(), b.id, client.ContainerUnpauseOptions{})
			return err
		},
	},
	{
		name: "agent stopped", code: dray.CodeAgentLost,
		lose:   func(t *testing.T, b *testContainer) error { return signalAgents(t, b, syscall.SIGSTOP) },
		regain: func(t *testing.T, b *testContainer) error { return signalAgents(t, b, syscall.SIGCONT) },
	},
}

var agentKilled = loss{
	name: "agent killed", code: dray.CodeAgentLost,
	lose: func(t *testing.T, b *testContainer) error {
		return signalAgents(t, b, syscall.SIGKILL)
	},
}

// pauseAttempts is far more than an engine needs on a machine that is busy with this suite.
const pauseAttempts = 20

// pause pauses a container. On cgroup v1 an engine cannot freeze a container while its processes
// fork faster than they are frozen. It then thaws the container and fails, and pause tries again.
func pause(t *testing.T, b *testContainer) error {
	for attempt := 1; ; attempt++ {
		_, err := b.api.ContainerPause(t.Context(), b.id, client.ContainerPauseOptions{})
		if err == nil || attempt == pauseAttempts || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
	}
}

func startAgain(t *testing.T, b *testContainer) error {
	_, err := b.api.ContainerStart(t.Context(), b.id, client.ContainerStartOptions{})
	return err
}

// signalAgents sends a signal from the host to the agents of a container.
func signalAgents(t *testing.T, b *testContainer, sig syscall.Signal) error {
	pids := b.agents(t)
	if len(pids) == 0 && sig != syscall.SIGCONT { // a lost agent is killed by its cgroup
		t.Fatal("/proc shows no agent")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			return err
		}
	}
	return nil
}

// inFlight is the number of calls that run at each loss.
const inFlight = 5

// shortLease makes the daemon give up an agent after a second, a third of it. A new agent may need
// that long for its first frame while the rest of this suite runs.
const shortLease = 3 * time.Second

// When the container or its agent is lost, every call ends as unavailable with its output so far,
// no process or zombie is left, and the next call works (EX-12, EX-14, CA-04).
func TestLosses(t *testing.T) {
	for _, mode := range channelModes {
		for _, l := range losses {
			t.Run(mode.name+"/"+l.name, func(t *testing.T) {
				t.Parallel() // most of the time it waits for the engine
				spec := containerSpec{
					user: "vscode", copies: inFlight, grace: 10 * time.Millisecond,
					lease: shortLease,
				}
				mode.choose(&spec)
				p := newTestContainer(t, mode.name, spec)
				r := soakreport.Rand(t)
				s := newLossRow(t, p.name, l.name, 0)
				for range max(rounds(100)/inFlight, 2) {
					lost(t, p, l, escapeStyles[r.IntN(len(escapeStyles))], s)
					if t.Failed() {
						return
					}
				}
				eventually(t, 10*time.Second, "no zombie is left", func() bool { return p.box.zombies(t) == 0 })
			})
		}
	}
}

// lost makes calls of a tool lose their container or agent, checks how each ends, and that a later
// call works.
func lost(t *testing.T, p *testEnv, l loss, style string, s *tally) {
	calls := make([]*runningCall, inFlight)
	for i := range calls {
		calls[i] = p.begin(t.Context(), style)
	}
	for _, c := range calls {
		if !c.settled(t) {
			t.FailNow()
		}
	}
	begun := time.Now()
	if err := l.lose(t, p.box); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if c.wait(t) {
			unavailable(t, c, l.code)
		}
	}
	if l.regain != nil {
		if err := l.regain(t, p.box); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range calls {
		eventually(t, 20*time.Second, l.name+": nothing is left of a "+style,
			func() bool { return len(c.tool.processes()) == 0 })
		s.add(c.ended.Sub(begun), c.tool.processes())
		p.done(t, c)
	}
	p.renew(t)
	p.works(t)
}

// unavailable checks the result of a call that has lost its container: its reason, and the output
// so far.
func unavailable(t *testing.T, c *runningCall, code dray.Code) {
	t.Helper()
	got := dray.NormalizeResult(c.result, c.err)
	// a busy engine may notice the container's end later than dray the agent's
	told := dray.CodeOf(c.err)
	if got.Reason != dray.ReasonUnavailable || got.ExitCode != nil || told != code &&
		told != dray.CodeAgentLost || dray.AsError(c.err).Hint == "" {
		t.Errorf("ended as %s: %v (%s), want %s", got.Reason, c.err, dray.CodeOf(c.err), code)
	}
	if c.result.Stdout.Text != "ready\n" {
		t.Errorf("got the output %q", c.result.Stdout.Text)
	}
	checkReportMatchesProc(t, c, "loss")
}

// The agent is killed repeatedly while calls run. No goroutine or fd leaks in the daemon's part,
// and one agent runs in the container (EX-14).
func TestAgentKilledUnderLoad(t *testing.T) {
	for _, mode := range channelModes {
		t.Run(mode.name, func(t *testing.T) {
			spec := containerSpec{
				user: "vscode", copies: inFlight, grace: 10 * time.Millisecond,
				lease: shortLease,
			}
			mode.choose(&spec)
			p := newTestContainer(t, mode.name, spec)
			p.works(t)
			r := soakreport.Rand(t)
			s, held := newLossRow(t, p.name, "agent killed under load", 0), resourceCount{}
			for n := range rounds(100) {
				if n == 2 { // from now on the connections to the engine are reused
					held = countResources(t)
				}
				lost(t, p, agentKilled, escapeStyles[r.IntN(len(escapeStyles))], s)
				if t.Failed() {
					return
				}
			}
			eventually(t, 10*time.Second, "nothing leaks here",
				func() bool { return countResources(t).within(held) })
			eventually(t, 10*time.Second, "one agent is left",
				func() bool { return len(p.box.agents(t)) == 1 })
			eventually(t, 10*time.Second, "no zombie is left", func() bool { return p.box.zombies(t) == 0 })
			if t.Failed() {
				t.Logf("before %+v, now %+v; in the container: %+v", held, countResources(t),
					p.box.residents(t))
			}
		})
	}
}

// A call is ended while its agent is stopped. When the agent continues, it ends the processes of
// the call (EX-21).
func TestStopWhileAgentIsStopped(t *testing.T) {
	for _, mode := range channelModes {
		t.Run(mode.name, func(t *testing.T) {
			s := containerSpec{user: "vscode", grace: 10 * time.Millisecond, lease: shortLease}
			mode.choose(&s)
			p := newTestContainer(t, mode.name, s)
			for range max(rounds(40)/4, 1) {
				c := p.begin(t.Context(), "ignore-term")
				if c.settled(t) && signalAgents(t, p.box, syscall.SIGSTOP) == nil {
					c.end(t, executor.ErrTimeout)
					if got := dray.NormalizeResult(c.result, c.err); got.Reason != dray.ReasonUnavailable &&
						got.Reason != dray.ReasonTimeout {
						t.Errorf("ended as %s: %v", got.Reason, c.err)
					}
					checkReportMatchesProc(t, c, "ignore-term")
					_ = signalAgents(t, p.box, syscall.SIGCONT)
					eventually(t, 10*time.Second, "nothing is left",
						func() bool { return len(c.tool.processes()) == 0 })
				}
				p.done(t, c)
			}
			p.renew(t)
			p.works(t)
		})
	}
}

// resourceCount counts resources of this process that can leak.
type resourceCount struct{ goroutines, descriptors int }

func countResources(t *testing.T) resourceCount {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return resourceCount{runtime.NumGoroutine(), len(dir)}
}

// within allows a few idle connections to the engine.
func (h resourceCount) within(before resourceCount) bool {
	return h.goroutines <= before.goroutines+8 && h.descriptors <= before.descriptors+4
}
