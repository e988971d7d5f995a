package executor_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/internal/soakreport"
)

// floodSize is the size of the output of flooding tools, on each stream.
func floodSize() int64 {
	return soakreport.Size(2<<30, 128<<20)
}

// memoryWatch is a sink that records the peak of used memory.
type memoryWatch struct {
	dray.Sink
	calls atomic.Int64
	peak  atomic.Uint64
}

func (w *memoryWatch) Output(dray.Stream, []byte) {
	if w.calls.Add(1)%64 != 0 {
		return
	}
	now := inUse()
	for peak := w.peak.Load(); now > peak && !w.peak.CompareAndSwap(peak, now); peak = w.peak.Load() {
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// A flood on both streams takes constant memory, the totals are exact, and the files end at the
// limit (CA-01).
func TestFlood(t *testing.T) {
	const limit = 10 << 20
	dir := t.TempDir()
	r, b := newRunner(t, capture.Options{
		Dir: dir, Limit: limit, SummaryBytes: 16 << 10,
		MaxDiskBytes: 1 << 30,
	}), newFixture(t)
	size := floodSize()
	script := fmt.Sprintf("head -c %d /dev/zero >&2 & head -c %[1]d /dev/zero; wait", size)
	before := inUse()
	watch := &memoryWatch{Sink: dray.Discard}
	out, err := r.Run(t.Context(), b.env,
		dray.ProcessSpec{
			Argv: []string{"/bin/sh", "-c", script},
			Dir:  b.dir,
		}, executor.Options{ID: "flood"}, watch)
	defer out.Release()
	if err != nil || out.Result.Reason != dray.ReasonExited || *out.Result.ExitCode != 0 {
		t.Fatalf("%+v, %v", out.Result, err)
	}
	sum := sha256.Sum256(make([]byte, limit))
	for name, c := range map[string]dray.StreamSummary{
		"stdout": out.Result.Stdout,
		"stderr": out.Result.Stderr,
	} {
		info, err := os.Stat(dir + "/flood." + name)
		if c.TotalBytes != size || c.KeptBytes != limit || !c.Truncated ||
			c.SHA256 != hex.EncodeToString(sum[:]) || err != nil || info.Size() != limit {
			t.Errorf("%s: %d of %d bytes kept, %d in the file (%v)", name, c.KeptBytes, c.TotalBytes,
				info.Size(), err)
		}
	}
	if grown := int64(watch.peak.Load()) - int64(before); watch.peak.Load() == 0 || grown > 16<<20 {
		t.Errorf("%d bytes more were in use", grown)
	}
}

// Single bytes are captured exactly (CA-01).
func TestManySmallWrites(t *testing.T) {
	r, b := newRunner(t, capture.Options{Limit: 1 << 20, SummaryBytes: 1 << 10}), newFixture(t)
	out, err := r.Run(t.Context(), b.env,
		dray.ProcessSpec{
			Argv: []string{"dd", "if=/dev/zero", "bs=1", "count=200000", "status=none"},
			Dir:  b.dir,
		},
		executor.Options{ID: rand.Text()}, dray.Discard)
	defer out.Release()
	kept, readErr := io.ReadAll(out.Stdout().Open())
	if err != nil || readErr != nil || out.Result.Stdout.TotalBytes != 200_000 ||
		!bytes.Equal(kept, make([]byte, 200_000)) {
		t.Errorf("%+v, %d kept, %v, %v", out.Result.Stdout, len(kept), err, readErr)
	}
}

// BenchmarkFlood compares a capture with a pipe that is read and discarded.
func BenchmarkFlood(b *testing.B) {
	const size = 1 << 30
	argv := []string{"dd", "if=/dev/zero", "bs=1M", fmt.Sprint("count=", size>>20), "status=none"}
	b.Run("captured", func(b *testing.B) {
		host, r := newFixture(b), newRunner(b,
			capture.Options{Limit: 50 << 20, SummaryBytes: 16 << 10, MaxDiskBytes: 10 << 30})
		b.SetBytes(size)
		for b.Loop() {
			out, err := r.Run(context.Background(), host.env, dray.ProcessSpec{Argv: argv, Dir: host.dir},
				executor.Options{ID: rand.Text()}, dray.Discard)
			out.Release()
			if err != nil || out.Result.Stdout.TotalBytes != size {
				b.Fatal(out.Result.Stdout.TotalBytes, err)
			}
		}
	})
	b.Run("pipe", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				b.Fatal(err)
			}
			n, _ := io.CopyBuffer(onlyWriter{}, out, make([]byte, 64<<10))
			if err := cmd.Wait(); err != nil || n != size {
				b.Fatal(n, err)
			}
		}
	})
}

// onlyWriter discards all bytes, and is no io.ReaderFrom.
type onlyWriter struct{}

func (onlyWriter) Write(p []byte) (int, error) { return len(p), nil }
