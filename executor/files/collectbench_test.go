package files_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// BenchmarkCollect collects 10,000 files of 4 KiB, and one of 256 MiB, with their SHA-256, from
// this process and through a helper's stream.
func BenchmarkCollect(b *testing.B) {
	dir := benchFolder(b)
	for i := range 100 {
		fill(b, fmt.Sprintf("%s/small/%d", dir, i), 100, 4<<10)
	}
	fill(b, dir+"/large", 1, 256<<20)
	for _, source := range []string{"small", "large"} {
		b.Run(source+"/local", func(b *testing.B) {
			f, err := files.Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			collectHashed(b, f, source)
		})
		b.Run(source+"/helper", func(b *testing.B) { collectHashed(b, helper(b, dir), source) })
	}
}

// helper serves a folder through pipes of the kernel, as large as dray makes them.
func helper(b *testing.B, dir string) *files.Client {
	b.Helper()
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, ourIn.Fd(), 1031, 1<<20) // F_SETPIPE_SZ
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = files.Serve(dir, theirIn, theirOut)
	}()
	c := files.NewClient(ourOut, ourIn, func() error {
		_, _ = ourOut.Close(), ourIn.Close()
		<-served
		return errors.Join(theirIn.Close(), theirOut.Close())
	})
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// benchFolder is a folder in memory, where there is one.
func benchFolder(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dray-bench-") //nolint:usetesting // in memory
	if err != nil {
		dir = b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func fill(b *testing.B, dir string, count, size int) {
	b.Helper()
	err := os.MkdirAll(dir, 0o700)
	content := make([]byte, size)
	for i := 0; err == nil && i < count; i++ {
		err = os.WriteFile(fmt.Sprintf("%s/%d", dir, i), content, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func collectHashed(b *testing.B, f dray.Files, source string) {
	buf := make([]byte, 256<<10)
	var count, size int64
	for b.Loop() {
		t, err := f.ReadTree(b.Context(), dray.ReadTreeOptions{Names: []string{source}})
		for err == nil {
			var e dray.TreeEntry
			if e, err = t.Next(); err == nil && e.Type == "file" {
				hash := sha256.New()
				var n int64
				n, err = io.CopyBuffer(hash, onlyReader{t}, buf)
				size, count = size+n, count+1
			}
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		_ = t.Close()
	}
	b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "files/s")
	b.ReportMetric(float64(size)/b.Elapsed().Seconds()/1e6, "MB/s")
}

type onlyReader struct{ io.Reader }
