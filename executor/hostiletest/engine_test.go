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

// EX-14, EX-21: the engine is stopped, killed or restarted under calls, containers living on or
// not. Every call ends by itself or as unavailable, nothing of it is left once its agent's lease is
// over, and the next call works when the engine is back.
func TestEngineLost(t *testing.T) {
	for _, live := range []bool{false, true} {
		name := map[bool]string{false: "containers stop", true: "containers live on"}[live]
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time it waits for the engine
			e := enginetest.Start(t, enginetest.Options{Images: []string{busybox}, LiveRestore: live})
			var places []*testEnv
			for _, way := range channelModes {
				s := containerSpec{
					image: busybox, user: "1000", copies: inFlight, grace: 10 * time.Millisecond,
					lease: shortLease, engine: e.Host(),
				}
				way.choose(&s)
				if live {
					s.change = livesOn
				}
				places = append(places, newTestContainer(t, way.name+", "+name, s))
			}
			for what, lose := range map[string]func(){
				"engine restarted": func() { e.Restart(t) },
				"engine killed":    func() { e.Kill(t); e.StartAgain(t) },
			} {
				rows := make([]*tally, len(places))
				for i, p := range places {
					rows[i] = newLossRow(t, p.name, what, 0)
				}
				for range max(rounds(20)/10, 1) {
					underEngine(t, places, lose, rows)
				}
			}
		})
	}
}

// livesOn leaves out the init, which an engine that restarts would have to look for on this
// machine.
func livesOn(_ *container.Config, h *container.HostConfig) { h.Init = nil }

func underEngine(t *testing.T, places []*testEnv, lose func(), rows []*tally) {
	calls := map[*runningCall]int{} // with the number of its place
	for i, p := range places {
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
		p := places[i]
		if p.env.Capabilities().Container.Channel == "socket" && len(c.tool.processes()) > 0 {
			// nothing of the engine's stands between: the call did not even notice
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
	for _, p := range places {
		if _, err := p.box.api.ContainerStart(t.Context(), p.box.id,
			client.ContainerStartOptions{}); err != nil {
			t.Fatal(err)
		}
		p.renew(t)
		p.works(t)
	}
}
