package executor_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/pathmapper"
)

// rewriter returns the filter for a container whose workspace is /workspace.
func rewriter(t testing.TB) func(io.Writer) dray.TextFilter {
	t.Helper()
	m, err := pathmapper.New([]pathmapper.Mapping{{Host: "/home/me/app", Container: "/workspace"}})
	if err != nil {
		t.Fatal(err)
	}
	return func(to io.Writer) dray.TextFilter { return m.Rewriter(pathmapper.ToHost, to) }
}

// recordingSink records the output.
type recordingSink struct {
	dray.Sink
	mu   sync.Mutex
	seen map[dray.Stream]string
	news func(stream dray.Stream, all string)
}

func (g *recordingSink) Output(s dray.Stream, p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[s] += string(p)
	if g.news != nil {
		g.news(s, g.seen[s])
	}
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Raw and rewritten output are both captured with their own figures; text and sink get the
// rewritten one (PM-10).
func TestRewrittenOutput(t *testing.T) {
	b := newFixture(t)
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct{ name, script, out, rewritten string }{
		{
			"a path", "echo /workspace/a.go:1:2: bad", "/workspace/a.go:1:2: bad\n",
			"/home/me/app/a.go:1:2: bad\n",
		},
		{"one at the end", "printf 'in /workspace'", "in /workspace", "in /home/me/app"},
		{"none", "echo fine", "fine\n", "fine\n"},
		{"nothing", "true", "", ""},
		{
			"much", "head -c 100000 /dev/zero | tr '\\0' x; echo ' /workspace/a'", long + " /workspace/a\n",
			long + " /home/me/app/a\n",
		},
		{"much of nothing", "head -c 100000 /dev/zero | tr '\\0' x", long, long},
		{"in pieces", "printf /work; printf space/; printf 'a '", "/workspace/a ", "/home/me/app/a "},
	} {
		for _, stream := range []dray.Stream{dray.Stdout, dray.Stderr} {
			t.Run(fmt.Sprint(c.name, stream), func(t *testing.T) {
				r := newRunner(t, capture.Options{Limit: 1 << 20, SummaryBytes: 16 << 10})
				sink := &recordingSink{Sink: dray.Discard, seen: map[dray.Stream]string{}}
				id, script := rand.Text(), c.script
				if stream == dray.Stderr {
					script = "{ " + script + "; } >&2"
				}
				out, err := r.Run(t.Context(), b.env,
					dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", script}, Dir: b.dir},
					executor.Options{ID: id, Rewrite: rewriter(t)}, sink)
				if err != nil {
					t.Fatal(err)
				}
				got, other := out.Result.Stdout, out.Result.Stderr
				if stream == dray.Stderr {
					got, other = other, got
				}
				paths := int64(strings.Count(c.out, "/workspace"))
				want := dray.RewrittenSummary{
					Paths: paths, TotalBytes: int64(len(c.rewritten)),
					KeptBytes: int64(len(c.rewritten)), SHA256: digest(c.rewritten),
				}
				if got.Rewritten == nil || *got.Rewritten != want {
					t.Errorf("rewritten: %+v, want %+v", got.Rewritten, want)
				}
				if got.TotalBytes != int64(len(c.out)) || got.KeptBytes != got.TotalBytes ||
					got.SHA256 != digest(c.out) {
					t.Errorf("printed: %+v", got)
				}
				if sink.seen[stream] != c.rewritten || len(c.out) < 1000 && got.Text != c.rewritten {
					t.Errorf("seen %.200q, text %.200q", sink.seen[stream], got.Text)
				}
				if other.Rewritten == nil || other.Rewritten.TotalBytes != 0 || other.TotalBytes != 0 {
					t.Errorf("the other stream: %+v", other)
				}
				checkCaptured(t, r.Captures, id, stream, c.out, c.rewritten, got)
				out.Release()
				checkCaptured(t, r.Captures, id, stream, c.out, c.rewritten, got)
			})
		}
	}
}

// starRedaction replaces each "secret" by a mark, when it has all of it.
type starRedaction struct {
	to   dray.RedactedWriter
	held []byte
	n    int64
}

const starMark = "***"

func (r *starRedaction) Write(p []byte) (int, error) {
	r.held = append(r.held, p...)
	const secret = "secret"
	for {
		before, after, found := bytes.Cut(r.held, []byte(secret))
		if !found {
			return len(p), nil
		}
		_, _ = r.to.Write(before)
		_ = r.to.WriteMark([]byte(starMark), int64(len(secret)))
		r.held = after
		r.n++
	}
}

func (r *starRedaction) Buffered() int   { return len(r.held) }
func (r *starRedaction) Replaced() int64 { return r.n }
func (r *starRedaction) Close() error    { return r.Flush() }

func (r *starRedaction) Flush() error {
	_, err := r.to.Write(r.held)
	r.held = nil
	return err
}

// Secrets are replaced before anything is captured, rewritten or shown; the totals count what the
// tool wrote (CA-02, CA-05, AU-07).
func TestRedactedOutput(t *testing.T) {
	b := newFixture(t)
	const script = "printf sec; printf 'ret in /workspace, a '; { echo secret; exit 3; } >&2"
	r := newRunner(t, capture.Options{Limit: 1 << 20, SummaryBytes: 16 << 10})
	sink := &recordingSink{Sink: dray.Discard, seen: map[dray.Stream]string{}}
	out, err := r.Run(t.Context(), b.env,
		dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", script}, Dir: b.dir}, executor.Options{
			ID: t.Name(), Rewrite: rewriter(t),
			Redact: func(to dray.RedactedWriter) dray.TextFilter { return &starRedaction{to: to} },
		}, sink)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Release()
	const redacted, shown = starMark + " in /workspace, a ", starMark + " in /home/me/app, a "
	got := out.Result.Stdout
	if got.TotalBytes != int64(len(redacted))+3 || got.HeadBytes != got.TotalBytes ||
		got.KeptBytes != int64(len(redacted)) || got.SHA256 != digest(redacted) || got.Truncated {
		t.Errorf("stdout %+v", got)
	}
	checkCaptured(t, r.Captures, t.Name(), dray.Stdout, redacted, shown, got)
	if got.Text != shown || sink.seen[dray.Stdout] != shown || sink.seen[dray.Stderr] != starMark+"\n" {
		t.Errorf("seen %q, text %q", sink.seen, got.Text)
	}
	if e := out.Result.Error; e == nil || e.Message != starMark {
		t.Errorf("error %v", e)
	}
}

// checkCaptured compares the captures with the output. One without a file is in the record, or
// equal to the raw one.
func checkCaptured(t *testing.T, store *capture.Store, id string, stream dray.Stream, printed,
	rewritten string, got dray.StreamSummary,
) {
	t.Helper()
	for _, c := range []struct {
		name string
		open func(string, dray.Stream) (io.ReadSeekCloser, error)
		want string
		may  bool // be in no file
	}{
		{"printed", store.Open, printed, got.Text == printed},
		{"rewritten", store.OpenRewritten, rewritten, got.Text == rewritten && rewritten == printed},
		{"shown", store.OpenAuto, rewritten, got.Text == rewritten && rewritten == printed},
	} {
		kept, err := c.open(id, stream)
		if errors.Is(err, fs.ErrNotExist) && c.may {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		b, err := io.ReadAll(kept)
		if err != nil || string(b) != c.want {
			t.Errorf("%s: %.200q, %v", c.name, b, err)
		}
		_ = kept.Close()
	}
}

// A prompt that could be the start of a path is flushed although nothing follows it (PM-10).
func TestRewrittenOutput_Flushed(t *testing.T) {
	b := newFixture(t)
	r := newRunner(t, capture.Options{Limit: 1 << 20, SummaryBytes: 1 << 10})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, typed := io.Pipe()
	sink := &recordingSink{
		Sink: dray.Discard, seen: map[dray.Stream]string{},
		news: func(_ dray.Stream, all string) {
			if all == "go to /work" {
				// ends when the tool reads or the call is over
				go func() { _, _ = io.WriteString(typed, "there\n") }()
			}
		},
	}
	out, err := r.Run(ctx, b.env, dray.ProcessSpec{Argv: []string{
		"/bin/sh", "-c",
		"printf 'go to /work'; read x; echo space $x /workspace",
	}, Dir: b.dir},
		executor.Options{ID: rand.Text(), Stdin: answer, Rewrite: rewriter(t)}, sink)
	defer out.Release()
	if err != nil || out.Result.Stdout.Text != "go to /workspace there /home/me/app\n" ||
		out.Result.Stdout.Rewritten.Paths != 1 {
		t.Errorf("%s: %+v, %v", out.Result.Reason, out.Result.Stdout, err)
	}
}

// Rewriting a flood takes constant memory, and both streams are captured up to the limit (CA-01,
// PM-10).
func TestRewrittenFlood(t *testing.T) {
	const limit = 10 << 20
	dir := t.TempDir()
	r, b := newRunner(t, capture.Options{
		Dir: dir, Limit: limit, SummaryBytes: 16 << 10,
		MaxDiskBytes: 1 << 30,
	}), newFixture(t)
	const line = "/workspace/a.go:12:3: x\n"
	lines := floodSize() / int64(len(line))
	before := inUse()
	watch := &memoryWatch{Sink: dray.Discard}
	out, err := r.Run(t.Context(), b.env,
		dray.ProcessSpec{Argv: []string{
			"/bin/sh", "-c",
			fmt.Sprintf("yes '%s' | head -n %d", strings.TrimSpace(line), lines),
		}, Dir: b.dir},
		executor.Options{ID: "flood", Rewrite: rewriter(t)}, watch)
	defer out.Release()
	c := out.Result.Stdout
	if err != nil || c.TotalBytes != lines*int64(len(line)) || c.Rewritten.Paths != lines ||
		c.Rewritten.TotalBytes != lines*int64(len(line)+2) {
		t.Fatalf("%d bytes, %+v, %v", c.TotalBytes, c.Rewritten, err)
	}
	for name, unit := range map[string]string{
		"flood.stdout":           line,
		"flood.rewritten.stdout": strings.Replace(line, "/workspace", "/home/me/app", 1),
	} {
		kept, err := os.ReadFile(dir + "/" + name)
		if want := bytes.Repeat([]byte(unit), limit/len(unit)+1)[:limit]; err != nil ||
			!bytes.Equal(kept, want) {
			t.Errorf("%s: %d bytes, %v", name, len(kept), err)
		}
	}
	if grown := int64(watch.peak.Load()) - int64(before); watch.peak.Load() == 0 || grown > 16<<20 {
		t.Errorf("%d bytes more were in use", grown)
	}
}

// Rewritten streams count for the disk limit (CA-01).
func TestRewrittenOutput_DiskLimit(t *testing.T) {
	b := newFixture(t)
	r := newRunner(t, capture.Options{Limit: 1 << 30, SummaryBytes: 20, MaxDiskBytes: 300_000})
	out, err := r.Run(t.Context(), b.env,
		dray.ProcessSpec{
			Argv: []string{"/bin/sh", "-c", "head -c 200000 /dev/zero; sleep 600"},
			Dir:  b.dir,
		},
		executor.Options{ID: rand.Text(), Rewrite: rewriter(t)}, dray.Discard)
	defer out.Release()
	if err != nil || out.Result.Reason != dray.ReasonOutputLimit {
		t.Errorf("%s, %v", out.Result.Reason, err)
	}
}

// A panic of the sink while text is rewritten ends the tool and leaves nothing behind (EX-18).
func TestRewrittenOutput_SinkPanics(t *testing.T) {
	b := newFixture(t)
	r := newRunner(t, capture.Options{Limit: 1 << 20, SummaryBytes: 20})
	for name, script := range map[string]string{
		"at once": "echo /workspace; sleep 600",
		"late":    "printf /work; sleep 600", "at the end": "printf /workspace",
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); !strings.Contains(fmt.Sprint(p), "seen enough") {
					t.Errorf("%v", p)
				}
			}()
			sink := &recordingSink{
				Sink: dray.Discard, seen: map[dray.Stream]string{},
				news: func(dray.Stream, string) { panic("seen enough") },
			}
			out, err := r.Run(t.Context(), b.env,
				dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", script}, Dir: b.dir},
				executor.Options{ID: rand.Text(), Rewrite: rewriter(t)}, sink)
			t.Errorf("no panic: %+v, %v", out.Result, err)
		})
	}
}

// BenchmarkRewrittenFlood compares a raw and a rewritten stream.
func BenchmarkRewrittenFlood(b *testing.B) {
	const size = 256 << 20
	host := newFixture(b)
	r := newRunner(b, capture.Options{Limit: 1 << 20, SummaryBytes: 16 << 10})
	for name, rewrite := range map[string]func(io.Writer) dray.TextFilter{"raw": nil, "rewritten": rewriter(b)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				out, err := r.Run(context.Background(), host.env,
					dray.ProcessSpec{Argv: []string{
						"/bin/sh", "-c",
						fmt.Sprintf("yes 'one line/of some text' | head -c %d", size),
					}, Dir: host.dir},
					executor.Options{ID: rand.Text(), Rewrite: rewrite}, dray.Discard)
				out.Release()
				if err != nil || out.Result.Stdout.TotalBytes != size {
					b.Fatal(out.Result.Stdout.TotalBytes, err)
				}
			}
		})
	}
}
