package hostiletest_test

import (
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/soakreport"
)

// Without an agent the engine's exec is used. A call still ends in time and by its timeout, its
// report does not claim that nothing is left, and the next call works. What is left is counted
// (EX-15).
func TestEscapesFromEngineExec(t *testing.T) {
	p := newTestContainer(t, "engine exec", containerSpec{
		user: "vscode", transport: docker.TransportEngine, copies: 2, grace: grace(),
	})
	for _, style := range []string{"child", "session", "double-session", "ignore-term", "fork-chain"} {
		t.Run(style, func(t *testing.T) {
			s := new(tally)
			escapePage.Row(t, []string{p.name, style}, func() []soakreport.Cell {
				return append(s.cells(anyNumber), soakreport.Value("-"))
			})
			for range soakreport.Count(50, 4) {
				c := p.begin(t.Context(), style)
				if c.settled(t) {
					took := c.end(t, executor.ErrTimeout)
					left := checkReportMatchesProc(t, c, style)
					s.add(took, left)
					if c.err != nil || c.result.Reason != dray.ReasonTimeout {
						t.Errorf("ended as %s: %v", c.result.Reason, c.err)
					}
					if k := c.result.Metadata.Kill; k != nil && k.Survivors.Proven && len(left) > 0 {
						t.Errorf("the report is %+v, and %s are left", k.Survivors, described(left))
					}
					c.tool.kill()
				}
				p.done(t, c)
			}
			p.works(t)
		})
	}
}
