package hostiletest_test

import (
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
)

// A tool that the kernel killed because memory ran out ends with reason oom. A tool whose child was
// killed ends with its own exit code (EX-12).
func TestMemoryBomb(t *testing.T) {
	for _, mode := range channelModes {
		t.Run(mode.name, func(t *testing.T) {
			spec := containerSpec{
				user: "vscode", grace: 10 * time.Millisecond,
				change: func(_ *container.Config, h *container.HostConfig) {
					h.Memory, h.MemorySwap = 64<<20, 64<<20
				},
			}
			mode.choose(&spec)
			p := newTestContainer(t, mode.name, spec)
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
