package hostiletest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/soakreport"
)

// kept is what is kept of each stream here (call_test.go), view what is shown of head and tail.
const kept, view = 1 << 20, 16 << 10

// forEachEnv runs a test on the host and in a container by each way to it.
func forEachEnv(t *testing.T, s containerSpec, test func(*testing.T, *testEnv)) {
	t.Run("host", func(t *testing.T) { test(t, newHost(t, s.copies, s.grace)) })
	for _, way := range channelModes {
		t.Run(way.name, func(t *testing.T) {
			s := s
			way.choose(&s)
			test(t, newTestContainer(t, way.name, s))
		})
	}
}

// iterations makes a call again and again, and looks that nothing stays of it.
func iterations(t *testing.T, p *testEnv, n int, args []string,
	check func(*testing.T, *runningCall),
) {
	t.Helper()
	for range n {
		c := p.begin(t.Context(), args...)
		if c.wait(t) {
			if c.err != nil {
				t.Errorf("%s: %v", args, c.err)
			}
			check(t, c)
			checkReportMatchesProc(t, c, args[0])
		}
		p.done(t, c)
		if t.Failed() {
			return
		}
	}
}

func exits(t *testing.T, c *runningCall, code int) {
	t.Helper()
	if c.result.Reason != dray.ReasonExited || *c.result.ExitCode != code {
		t.Errorf("ended as %s (%+v, %+v), want exit code %d", c.result.Reason, c.result.Signal,
			c.result.Error, code)
	}
}

// stream holds one stream of a call against what the tool wrote: so many times one letter.
func stream(t *testing.T, got dray.StreamSummary, letter string, n int64) {
	t.Helper()
	keep := min(n, kept)
	sum := sha256.Sum256([]byte(strings.Repeat(letter, int(keep))))
	if got.TotalBytes != n || got.KeptBytes != keep || got.Truncated != (n > kept) ||
		got.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%d of %q: total %d, kept %d, truncated %v, digest %s", n, letter, got.TotalBytes,
			got.KeptBytes, got.Truncated, got.SHA256)
	}
	if got.HeadBytes+got.OmittedBytes+got.TailBytes != n || len(got.Text) > 3*view {
		t.Errorf("%d of %q are shown as %d + %d + %d in a text of %d", n, letter, got.HeadBytes,
			got.OmittedBytes, got.TailBytes, len(got.Text))
	}
}

// CA-01: both streams at once, any number of bytes without one newline: the totals are exact, and
// the memory for it does not grow.
func TestFlood(t *testing.T) {
	forEachEnv(t, containerSpec{user: "vscode"}, func(t *testing.T, p *testEnv) {
		r := soakreport.Rand(t)
		counted := int64(0)
		flood := func(n int64) func() {
			return func() {
				iterations(t, p, 1, []string{"flood", strconv.FormatInt(n, 10)},
					func(t *testing.T, c *runningCall) {
						exits(t, c, 0)
						stream(t, c.result.Stdout, "o", n)
						stream(t, c.result.Stderr, "e", n)
						counted = c.result.Stdout.TotalBytes
					})
			}
		}
		for range rounds(200) {
			flood(r.Int64N(2 << 20))()
		}
		big := soakreport.Count[int64](2<<30, 64<<20)
		row := newBytesRow(t, p.name, "both streams at once", big)
		flood(big / 8)() // buffers and heap as they are in use
		row.grown, row.took = growth(t, flood(big))
		row.counted = counted
		if row.grown > 64<<20 {
			t.Errorf("%d bytes on both streams took %d bytes of memory", big, row.grown)
		}
	})
}

// Writes of a single byte are all counted (CA-01).
func TestByteWritesAreCounted(t *testing.T) {
	n := soakreport.Count[int64](10_000_000, 20_000)
	forEachEnv(t, containerSpec{user: "vscode"}, func(t *testing.T, p *testEnv) {
		row := newBytesRow(t, p.name, "writes of one byte", n)
		row.grown, row.took = growth(t, func() {
			iterations(t, p, soakreport.Count(1, 20), []string{"byte-writes", strconv.FormatInt(n, 10)},
				func(t *testing.T, c *runningCall) {
					exits(t, c, 0)
					stream(t, c.result.Stdout, "d", n)
					row.counted = c.result.Stdout.TotalBytes
				})
		})
	})
}

// A tool that closes its streams and goes on ends by its own code; so does one that opens them
// again by name, as any user.
func TestStreamsOfItsOwn(t *testing.T) {
	forEachEnv(t, containerSpec{user: "vscode"}, func(t *testing.T, p *testEnv) {
		iterations(t, p, rounds(500), []string{"mute"},
			func(t *testing.T, c *runningCall) { exits(t, c, 3) })
		iterations(t, p, rounds(500), []string{"reopen"}, func(t *testing.T, c *runningCall) {
			exits(t, c, 0)
			if c.result.Stdout.Text != "xx" || c.result.Stderr.Text != "xx" {
				t.Errorf("got %q and %q", c.result.Stdout.Text, c.result.Stderr.Text)
			}
		})
	})
}

// EX-11: what the leader leaves is ended and counted, and that it holds the streams delays the
// result no further than the grace.
func TestHoldersOfStreams(t *testing.T) {
	forEachEnv(t, containerSpec{user: "vscode", grace: 5 * time.Millisecond},
		func(t *testing.T, p *testEnv) {
			iterations(t, p, rounds(1000), []string{"leave", "5"}, func(t *testing.T, c *runningCall) {
				exits(t, c, 7)
				if k := c.result.Metadata.Kill; k == nil || k.Leftover != 5 || !k.Survivors.Proven {
					t.Errorf("got %+v", k)
				}
				if len(c.tool.processes()) > 0 {
					t.Errorf("these run on: %v", c.tool.processes())
				}
			})
		})
}

// endless is a stdin without an end.
type endless struct{ taken atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.taken.Add(int64(len(p)))
	return len(p), nil
}

// A tool that reads nothing of an endless stdin is ended in time, and no more was read of it than
// buffers hold.
func TestStdinNeverRead(t *testing.T) {
	forEachEnv(t, containerSpec{user: "vscode", grace: 5 * time.Millisecond},
		func(t *testing.T, p *testEnv) {
			for range rounds(500) {
				in := new(endless)
				c := p.beginWith(t.Context(), io.Reader(in), "unread")
				if c.settled(t) {
					c.end(t, executor.ErrTimeout)
					timedOut(t, c, "unread")
				}
				if n := in.taken.Load(); n > 16<<20 {
					t.Errorf("%d bytes were read for a tool that takes none", n)
				}
				p.done(t, c)
			}
			p.works(t)
		})
}
