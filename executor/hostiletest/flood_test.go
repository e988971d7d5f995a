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

// kept is the number of bytes that are captured of each stream, view the size of head and tail.
const kept, view = 1 << 20, 16 << 10

// forEachEnv runs a test on the host and in a container by each channel.
func forEachEnv(t *testing.T, s containerSpec, test func(*testing.T, *testEnv)) {
	t.Run("host", func(t *testing.T) { test(t, newHost(t, s.copies, s.grace)) })
	for _, mode := range channelModes {
		t.Run(mode.name, func(t *testing.T) {
			s := s
			mode.choose(&s)
			test(t, newTestContainer(t, mode.name, s))
		})
	}
}

// iterations makes n calls, and checks the end of each.
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

// stream checks the summary of a stream to which the tool wrote one letter n times.
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

// Output on both streams at once, of any size and without a newline, is counted exactly and in
// bounded memory (CA-01).
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
		big := soakreport.Size(2<<30, 64<<20)
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
	n := soakreport.Size(10_000_000, 20_000)
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

// A tool that closes its streams, or opens them by name, ends with its own exit code.
func TestClosedAndReopenedStreams(t *testing.T) {
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

// Leftover processes that have the streams open are ended and counted (EX-11).
func TestLeftoversWithStreams(t *testing.T) {
	forEachEnv(t, containerSpec{user: "vscode", grace: 5 * time.Millisecond},
		func(t *testing.T, p *testEnv) {
			iterations(t, p, rounds(1000), []string{"leave", "5"}, func(t *testing.T, c *runningCall) {
				exits(t, c, 7)
				if k := c.result.Metadata.Kill; k == nil || k.Leftover != 5 || !k.Survivors.Proven {
					t.Errorf("got %+v", k)
				}
				if len(c.tool.processes()) > 0 {
					t.Errorf("these processes still run: %v", c.tool.processes())
				}
			})
		})
}

// endless is an endless stdin.
type endless struct{ taken atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.taken.Add(int64(len(p)))
	return len(p), nil
}

// A tool that does not read an endless stdin ends in time, and only as much is read from it as
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
					t.Errorf("%d bytes were read for a tool that reads none", n)
				}
				p.done(t, c)
			}
			p.works(t)
		})
}
