package hostiletest_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray/executor"
)

// A fork bomb that has filled the container's limit of processes ends with its call, and the next
// call works (EX-09).
func TestForkBomb(t *testing.T) {
	const limit = 96 // agent and supervisors use about 40
	for _, mode := range channelModes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			spec := containerSpec{
				user: "vscode", grace: 10 * time.Millisecond,
				change: func(_ *container.Config, h *container.HostConfig) {
					h.PidsLimit = new(int64(limit))
				},
			}
			mode.choose(&spec)
			p := newTestContainer(t, mode.name, spec)
			if got := p.pidsLimit(t); got != limit {
				t.Fatalf("the container's limit is %d: without one the bomb would fill the machine", got)
			}
			s := newLossRow(t, p.name, "bomb", 0)
			for range rounds(100) {
				c := p.begin(t.Context(), "bomb")
				if c.settled(t) {
					eventually(t, 20*time.Second, "the bomb fills the limit",
						func() bool { return len(c.tool.processes()) > limit/2 })
					took := c.end(t, executor.ErrTimeout)
					s.add(took, timedOut(t, c, "bomb"))
				}
				p.done(t, c)
				p.works(t)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// pidsLimit returns the limit of processes that the kernel enforces in the container.
func (p *testEnv) pidsLimit(t *testing.T) int {
	t.Helper()
	c := p.begin(t.Context(), "limit")
	defer p.done(t, c)
	c.wait(t)
	n, _ := strconv.Atoi(strings.TrimSpace(c.result.Stdout.Text)) // 0 for "max"
	return n
}
