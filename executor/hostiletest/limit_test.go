package hostiletest_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray/executor"
)

// EX-09: a fork bomb fills the container's limit, and ends with its call; the next call finds room.
func TestForkBomb(t *testing.T) {
	const limit = 64
	for _, way := range channelModes {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			spec := containerSpec{
				user: "vscode", grace: 10 * time.Millisecond,
				change: func(_ *container.Config, h *container.HostConfig) {
					h.PidsLimit = new(int64(limit))
				},
			}
			way.choose(&spec)
			p := newTestContainer(t, way.name, spec)
			if got := p.pidsLimit(t); got != limit {
				t.Fatalf("the container's limit is %d, and a bomb without one would be the machine's", got)
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

// pidsLimit is what the kernel will hold the container to.
func (p *testEnv) pidsLimit(t *testing.T) int {
	t.Helper()
	c := p.begin(t.Context(), "limit")
	defer p.done(t, c)
	c.wait(t)
	n, _ := strconv.Atoi(strings.TrimSpace(c.result.Stdout.Text)) // "max" is none
	return n
}
