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

// BenchmarkReadTree reads 10,000 files of 4 KiB, and one of 256 MiB, with their SHA-256, in this
// process and through a helper.
func BenchmarkReadTree(b *testing.B) {
	dir := benchDir(b)
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
			readTreeHashed(b, f, source)
		})
		b.Run(source+"/helper", func(b *testing.B) { readTreeHashed(b, helper(b, dir), source) })
	}
}

// helper serves a directory through pipes of the size that dray uses.
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

// benchDir returns a directory, on a tmpfs if possible.
func benchDir(b *testing.B) string {
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

func readTreeHashed(b *testing.B, f dray.Files, source string) {
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

// BenchmarkReadAll walks through 5,000 files of 4 KiB and reads each, as a search does.
func BenchmarkReadAll(b *testing.B) {
	dir, content := b.TempDir(), make([]byte, 4<<10)
	for i := range 5000 {
		sub := fmt.Sprintf("%s/%02d", dir, i%50)
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf("%s/%04d", sub, i), content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	local, err := files.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]dray.Files{"local": local, "helper": helper(b, dir)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				readAll(b, f)
			}
		})
		_ = f.Close()
	}
}

func readAll(b *testing.B, f dray.Files) {
	err := f.Walk(b.Context(), "", func(name string, info dray.FileInfo) error {
		if info.Type != "file" {
			return nil
		}
		r, _, err := f.Open(name, 0)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		_ = r.Close()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}
