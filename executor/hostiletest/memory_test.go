package hostiletest_test

import (
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
)

// EX-12: memory that ran out is told as that, once the kernel killed the tool for it; a tool whose
// child it killed ends by its own code.
func TestMemoryBomb(t *testing.T) {
	for _, way := range channelModes {
		t.Run(way.name, func(t *testing.T) {
			spec := containerSpec{
				user: "vscode", grace: 10 * time.Millisecond,
				change: func(_ *container.Config, h *container.HostConfig) {
					h.Memory, h.MemorySwap = 64<<20, 64<<20
				},
			}
			way.choose(&spec)
			p := newTestContainer(t, way.name, spec)
			s := newLossRow(t, p.name, "memory", 0)
			for range rounds(100) {
				c := p.begin(t.Context(), "memory")
				begun := time.Now()
				if c.wait(t) {
					if c.err != nil || c.result.Reason != dray.ReasonOOM || c.result.ExitCode != nil {
						t.Errorf("ended as %s: %v, %+v, %+v", c.result.Reason, c.err, c.result.Signal, c.result.Error)
					}
					s.add(c.ended.Sub(begun), checkReportMatchesProc(t, c, "memory"))
				}
				p.done(t, c)
				iterations(t, p, 1, []string{"memory-below"},
					func(t *testing.T, c *runningCall) { exits(t, c, 49) })
				p.works(t)
				if t.Failed() {
					return
				}
			}
		})
	}
}
