package hostiletest_test

import (
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/enginetest"
)

// The engine is killed or restarted while calls run, with and without live restore. Every call ends
// by itself or as unavailable, nothing of it is left after the agent's lease, and the next call
// works when the engine is back (EX-14, EX-21).
func TestEngineLost(t *testing.T) {
	for _, live := range []bool{false, true} {
		name := map[bool]string{false: "containers stop", true: "containers live on"}[live]
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for the engine most of the time
			e := enginetest.Start(t, enginetest.Options{Images: []string{busybox}, LiveRestore: live})
			var envs []*testEnv
			for _, mode := range channelModes {
				s := containerSpec{
					image: busybox, user: "1000", copies: inFlight, grace: 10 * time.Millisecond,
					lease: shortLease, engine: e.Host(),
				}
				mode.choose(&s)
				if live {
					s.change = livesOn
				}
				envs = append(envs, newTestContainer(t, mode.name+", "+name, s))
			}
			for what, lose := range map[string]func(){
				"engine restarted": func() { e.Restart(t) },
				"engine killed":    func() { e.Kill(t); e.StartAgain(t) },
			} {
				rows := make([]*tally, len(envs))
				for i, p := range envs {
					rows[i] = newLossRow(t, p.name, what, 0)
				}
				for range max(rounds(20)/10, 1) {
					underEngine(t, envs, lose, rows)
				}
			}
		})
	}
}

// livesOn removes the init, which a restarted engine would have to find on this machine.
func livesOn(_ *container.Config, h *container.HostConfig) { h.Init = nil }

func underEngine(t *testing.T, envs []*testEnv, lose func(), rows []*tally) {
	calls := map[*runningCall]int{} // with the index of its environment
	for i, p := range envs {
		for range inFlight {
			calls[p.begin(t.Context(), "ignore-term")] = i
		}
	}
	for c := range calls {
		if !c.settled(t) {
			t.FailNow()
		}
	}
	begun := time.Now()
	lose()
	for c, i := range calls {
		p := envs[i]
		if p.env.Capabilities().Container.Channel == "socket" && len(c.tool.processes()) > 0 {
			// the socket does not depend on the engine: the call was not disturbed
			c.cancel(executor.ErrTimeout)
			if c.wait(t) {
				timedOut(t, c, "ignore-term")
			}
		} else if c.wait(t) {
			if got := dray.NormalizeResult(c.result, c.err); got.Reason != dray.ReasonUnavailable ||
				got.ExitCode != nil {
				t.Errorf("ended as %s: %v", got.Reason, c.err)
			}
		}
		eventually(t, 20*time.Second, "nothing is left",
			func() bool { return len(c.tool.processes()) == 0 })
		rows[i].add(c.ended.Sub(begun), c.tool.processes())
		p.done(t, c)
	}
	for _, p := range envs {
		if _, err := p.box.api.ContainerStart(t.Context(), p.box.id,
			client.ContainerStartOptions{}); err != nil {
			t.Fatal(err)
		}
		p.renew(t)
		p.works(t)
	}
}
