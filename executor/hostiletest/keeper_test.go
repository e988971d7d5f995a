package hostiletest_test

import (
	"io"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/cgroup"
)

// grouped reports whether the agent's processes are in a cgroup of the host, which kills even what
// a tool that is root leaves. That needs the socket, which identifies the agent, and cgroup v2.
func (p *testEnv) grouped(t testing.TB) bool {
	t.Helper()
	c, err := p.box.api.ContainerInspect(t.Context(), p.box.id, inspectPlain)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cgroup.ContainerPath(p.box.id, c.Container.State.Pid)
	return err == nil && p.env.Capabilities().Container.Channel == "socket"
}

// without removes the init, so that the first process is the sleeper, which the kernel protects
// from the other processes.
func without(_ *container.Config, h *container.HostConfig) { h.Init = nil }

// A tool that is root kills or stops its supervisor or the agent. That is never reported as the
// tool's own end, the reported survivors are those in /proc, a cgroup leaves nothing, and the next
// call works (EX-09, EX-12, EX-14).
func TestRootAttacksSupervisors(t *testing.T) {
	for _, mode := range channelModes {
		for _, style := range []string{"kill-supervisor", "kill-both", "kill-all", "stop-supervisor"} {
			t.Run(mode.name+"/"+style, func(t *testing.T) {
				t.Parallel() // most of the time it waits for the engine
				spec := containerSpec{grace: 10 * time.Millisecond, change: without}
				mode.choose(&spec)
				p := newTestContainer(t, mode.name, spec)
				maxLeft := int64(0)
				if !p.grouped(t) && style != "kill-supervisor" && style != "stop-supervisor" {
					maxLeft = anyNumber
				}
				s := newLossRow(t, p.name, style, maxLeft)
				for range rounds(200) {
					attackSupervisors(t, p, style, s)
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

// attackSupervisors runs one call whose tool attacks its supervisor, and kills what is left of it.
func attackSupervisors(t *testing.T, p *testEnv, style string, s *tally) {
	stdin, word := io.Pipe()
	c := p.beginWith(t.Context(), stdin, style)
	defer p.done(t, c)
	if !c.settled(t) || len(c.tool.processes()) < 2 {
		t.Fatalf("%s: %d processes are there", style, len(c.tool.processes()))
	}
	if _, err := word.Write([]byte("!")); err != nil {
		t.Error(err)
	}
	begun := time.Now()
	if style == "stop-supervisor" { // dray continues it at once
		took := c.end(t, executor.ErrTimeout)
		s.add(took, timedOut(t, c, style))
		return
	}
	if !c.wait(t) {
		return
	}
	if got := dray.NormalizeResult(c.result, c.err); got.Reason != dray.ReasonUnavailable ||
		dray.CodeOf(c.err) != dray.CodeAgentLost {
		t.Errorf("%s: ended as %s, %v", style, got.Reason, c.err)
	}
	checkReportMatchesProc(t, c, style)
	if k := c.result.Metadata.Kill; p.grouped(t) &&
		(k == nil || !k.Survivors.Proven || len(k.Survivors.PIDs) > 0) {
		t.Errorf("%s: survivors are %+v, although a cgroup proves that there are none", style, k)
	}
	if p.grouped(t) || style == "kill-supervisor" {
		eventually(t, 5*time.Second, style+": nothing is left",
			func() bool { return len(c.tool.processes()) == 0 })
	}
	s.add(c.ended.Sub(begun), c.tool.processes())
	c.tool.kill()
	p.renew(t)
	p.works(t)
}

// A user that kills all processes of its own ends neither its supervisor nor a call of another user
// (EX-09).
func TestUserKillsAll(t *testing.T) {
	for _, mode := range channelModes {
		t.Run(mode.name, func(t *testing.T) {
			s := containerSpec{user: "vscode", copies: 2, grace: 10 * time.Millisecond, change: without}
			mode.choose(&s)
			p := newTestContainer(t, mode.name, s)
			other := p.as(t, "nobody")
			for range rounds(500) {
				witness := other.begin(t.Context(), "session")
				stdin, word := io.Pipe()
				c := p.beginWith(t.Context(), stdin, "kill-all")
				if witness.settled(t) && c.settled(t) {
					_, _ = word.Write([]byte("!"))
					eventually(t, 10*time.Second, "the tool killed its own",
						func() bool { return len(c.tool.processes()) == 1 })
					c.end(t, executor.ErrTimeout)
					timedOut(t, c, "kill-all")
					if n := len(witness.tool.processes()); n != 2 {
						t.Errorf("the other user has %d processes, want 2", n)
					}
					witness.end(t, executor.ErrTimeout)
					timedOut(t, witness, "session")
				}
				p.done(t, c)
				other.done(t, witness)
			}
			p.works(t)
		})
	}
}
