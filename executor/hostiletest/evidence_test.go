package hostiletest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray/internal/soakreport"
)

var (
	escapePage = soakreport.Page{
		File: "escapes.md", Title: "Tools that try to outlive their timeout",
		Text: `Sixteen calls ran at a time. Each was ended by its timeout when the tool had done what its
style says. One call in five was ended at a random moment in its first eight milliseconds instead.
*Left* counts the processes that still ran the tool's program when the call had ended, as /proc of
the host shows them. *Overshoot* is the time from the deadline to the end of the call, including
the grace of 2 s for tools that ignore TERM. *docker exec leaves* is the number of processes for
each call of the same tool by ` + "`docker exec`" + `, 2 s after its client was ended by TERM and
KILL. The styles are those of executor/hostiletest/testdata/hostile.c.`,
		Target: "every call overshoots by less than the grace and the 5 s for KILL, and no process is " +
			"left; only the engine's exec, used where no agent runs, cannot end what is left (counted)",
		Columns: []string{
			"environment", "style", "calls", "left", "overshoot p50", "p99", "max",
			"docker exec leaves",
		},
		Key: 2, Setup: engineVersion,
	}
	lossPage = soakreport.Page{
		File: "losses.md", Title: "Calls that lose their agent, container or engine",
		Text: `Calls of tools in the styles of escapes.md ran when their agent, container or engine was lost, or
when a tool attacked its supervisor or used up the container's memory or processes. *Left* counts
the processes that still ran the tool's program after that, as /proc of the host shows them.
*Ended after* is the time from the loss to the end of the call.`,
		Target: "no process is left, unless root in the container killed the agent and no cgroup " +
			"of the host holds its processes (then they are counted and the report says so)",
		Columns: []string{
			"environment", "loss", "calls", "left", "ended after p50", "p99", "max",
		},
		Key: 2, Setup: engineVersion,
	}
	bytesPage = soakreport.Page{
		File: "bytes.md", Title: "Output of any size",
		Text: `The tool wrote this many bytes, and the test compared the totals, the retained bytes and their
SHA-256 with what it wrote. *Memory* is the growth of the daemon's resident memory at its highest.`,
		Target:  "all bytes are counted, and the memory grows by at most 64 MiB",
		Columns: []string{"environment", "output", "bytes", "counted", "memory MiB", "time"},
		Key:     2, Setup: engineVersion,
	}
)

// tally collects what was measured of the calls of one row.
type tally struct {
	took soakreport.Series
	left atomic.Int64 // processes that ran their tool's program after the call, as /proc shows them
}

func (s *tally) add(took time.Duration, left []int) {
	s.took.Add(took)
	s.left.Add(int64(len(left)))
}

// maxOvershoot is the grace of the published counts and the 2.5 s within which a call ends after
// it.
const maxOvershoot = 4500 * time.Millisecond

// cells are those of escapePage and lossPage: calls, left, and the times.
func (s *tally) cells(maxLeft int64) []soakreport.Cell {
	return []soakreport.Cell{
		soakreport.Value(s.took.Len()), soakreport.AtMost(s.left.Load(), maxLeft),
		soakreport.Value(s.took.Percentile(50)), soakreport.Value(s.took.Percentile(99)),
		soakreport.AtMost(s.took.Percentile(100), maxOvershoot),
	}
}

// newEscapeRow records a row of escapePage when t has ended.
func newEscapeRow(t *testing.T, environment, style string) (s *tally, dockerLeaves *string) {
	t.Helper()
	s, dockerLeaves = new(tally), new("-")
	escapePage.Row(t, []string{environment, style}, func() []soakreport.Cell {
		return append(s.cells(0), soakreport.Value(*dockerLeaves))
	})
	return s, dockerLeaves
}

// anyNumber is for rows in which leftover processes are reported and do not miss the target.
const anyNumber = int64(1) << 62

// newLossRow records a row of lossPage when t has ended.
func newLossRow(t *testing.T, environment, loss string, maxLeft int64) *tally {
	t.Helper()
	s := new(tally)
	lossPage.Row(t, []string{environment, loss}, func() []soakreport.Cell {
		cells := s.cells(maxLeft)
		cells[4].Missed = false // engines need their own time to come back
		return cells
	})
	return s
}

// newBytesRow records a row of bytesPage when t has ended.
func newBytesRow(t *testing.T, environment, output string, size int64) *byteCount {
	t.Helper()
	c := new(byteCount)
	bytesPage.Row(t, []string{environment, output}, func() []soakreport.Cell {
		return []soakreport.Cell{
			soakreport.Value(size), soakreport.Exactly(c.counted, size),
			soakreport.AtMost(c.grown>>20, 64), soakreport.Value(c.took),
		}
	})
	return c
}

// byteCount is what was measured of one call: the bytes that its result reports of a stream, the
// growth of memory in bytes, and the time.
type byteCount struct {
	counted, grown int64
	took           time.Duration
}

// engineVersion is the version of the container engine.
var engineVersion = sync.OnceValue(func() string {
	api, err := client.New(client.FromEnv)
	if err != nil {
		return "no engine"
	}
	defer func() { _ = api.Close() }()
	v, err := api.ServerVersion(context.Background(), client.ServerVersionOptions{})
	if err != nil {
		return "no engine"
	}
	return fmt.Sprintf("engine %s", v.Version)
})
