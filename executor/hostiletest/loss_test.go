package hostiletest_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/soakreport"
)

// loss is a way for calls to lose the container under them. Between lose and regain nothing
// answers.
type loss struct {
	name string
	lose func(*testing.T, *testContainer) error
	// regain brings the container back; nil where there is nothing to be done.
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
		name: "paused", code: dray.CodeContainerUnavailable,
		lose: func(t *testing.T, b *testContainer) error {
			_, err := b.api.ContainerPause(t.Context(), b.id, client.ContainerPauseOptions{})
			return err
		}, regain: func(t *testing.T, b *testContainer) error {
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

func startAgain(t *testing.T, b *testContainer) error {
	_, err := b.api.ContainerStart(t.Context(), b.id, client.ContainerStartOptions{})
	return err
}

// signalAgents sends a signal to the agents of a container, from this machine.
func signalAgents(t *testing.T, b *testContainer, sig syscall.Signal) error {
	pids := b.agents(t)
	if len(pids) == 0 && sig != syscall.SIGCONT { // one that was lost is ended, where its group serves
		t.Fatal("no agent is there, or the look is blind")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			return err
		}
	}
	return nil
}

// inFlight is how many calls each loss meets.
const inFlight = 5

// shortLease has a silent agent noticed soon, after a third of it. A second is what a new agent may
// need to say its first word where everything else of this suite runs beside it; half of one was
// not always enough.
const shortLease = 3 * time.Second

// EX-12, EX-14, CA-04: the container goes, or its agent, and every call in it ends as unavailable,
// with what it printed, soon; nothing of them is left, and the next call works. Nothing is left in
// this process either, and no zombie in the container.
func TestLosses(t *testing.T) {
	for _, way := range channelModes {
		for _, l := range losses {
			t.Run(way.name+"/"+l.name, func(t *testing.T) {
				t.Parallel() // most of the time it waits for the engine
				spec := containerSpec{
					user: "vscode", copies: inFlight, grace: 10 * time.Millisecond,
					lease: shortLease,
				}
				way.choose(&spec)
				p := newTestContainer(t, way.name, spec)
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

// unavailable is the end of a call that lost what it ran in: never the tool's own, and with what
// the tool printed until then.
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
		t.Errorf("of its output this is left: %q", c.result.Stdout.Text)
	}
	checkReportMatchesProc(t, c, "loss")
}

// EX-14: the agent is killed again and again under load. Nothing leaks here: no goroutine, no
// descriptor; in the container one agent is left.
func TestAgentKilledUnderLoad(t *testing.T) {
	for _, way := range channelModes {
		t.Run(way.name, func(t *testing.T) {
			spec := containerSpec{
				user: "vscode", copies: inFlight, grace: 10 * time.Millisecond,
				lease: shortLease,
			}
			way.choose(&spec)
			p := newTestContainer(t, way.name, spec)
			p.works(t)
			r := soakreport.Rand(t)
			s, held := newLossRow(t, p.name, "agent killed under load", 0), resourceCount{}
			for n := range rounds(100) {
				if n == 2 { // by now connections to the engine are kept for the next question
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

// EX-21: the daemon loses an agent that is stopped for longer than the lease, and the agent, once
// it goes on, ends what it had started. That is among the losses; here a call is told to end while
// its agent is stopped.
func TestStopWhileAgentIsStopped(t *testing.T) {
	for _, way := range channelModes {
		t.Run(way.name, func(t *testing.T) {
			s := containerSpec{user: "vscode", grace: 10 * time.Millisecond, lease: shortLease}
			way.choose(&s)
			p := newTestContainer(t, way.name, s)
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

// resourceCount is what this process holds of what can leak.
type resourceCount struct{ goroutines, descriptors int }

func countResources(t *testing.T) resourceCount {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return resourceCount{runtime.NumGoroutine(), len(dir)}
}

// within allows for a few idle connections to the engine, and for nothing that comes with every
// round.
func (h resourceCount) within(before resourceCount) bool {
	return h.goroutines <= before.goroutines+8 && h.descriptors <= before.descriptors+4
}
