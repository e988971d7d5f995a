package stage

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// steady is a tree of many files with the same content.
type steady struct {
	files, size int
	at          int
	rest        int
	content     []byte
}

func (s *steady) Next() (dray.TreeEntry, error) {
	if s.at == s.files {
		return dray.TreeEntry{}, io.EOF
	}
	s.at++
	s.rest = s.size
	return dray.TreeEntry{
		Name: fmt.Sprintf("tree/%02d/%05d", s.at%100, s.at), Type: "file",
		Size: int64(s.size), Mode: 0o600,
	}, nil
}

func (s *steady) Read(p []byte) (int, error) {
	if s.rest == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.content[:min(s.rest, len(s.content))])
	s.rest -= n
	return n, nil
}

func (*steady) Close() error { return nil }

func BenchmarkWriteTree(b *testing.B) {
	content := []byte(strings.Repeat("0123456789abcdef", 1<<16))
	for _, c := range []struct {
		name        string
		files, size int
	}{{"10000x4KiB", 10000, 4 << 10}, {"1x1GiB", 1, 1 << 30}} {
		for _, base := range []string{"/dev/shm", os.TempDir()} {
			for _, again := range []bool{false, true} {
				name := c.name + base + map[bool]string{false: "/new", true: "/replaced"}[again]
				b.Run(name, func(b *testing.B) {
					b.SetBytes(int64(c.files * c.size))
					for b.Loop() {
						b.StopTimer()
						dir, err := os.MkdirTemp(base, "dray-stage-bench-") //nolint:usetesting // each round has a new directory, on a chosen file system
						if err != nil {
							b.Fatal(err)
						}
						if again {
							runWriteTree(b, dir, &steady{files: c.files, size: c.size, content: content[1:]})
						}
						b.StartTimer()
						runWriteTree(b, dir, &steady{files: c.files, size: c.size, content: content[:len(content)-1]})
						b.StopTimer()
						_ = os.RemoveAll(dir)
						b.StartTimer()
					}
					b.ReportMetric(float64(c.files*b.N)/b.Elapsed().Seconds(), "files/s")
				})
			}
		}
	}
}

func runWriteTree(b *testing.B, dir string, t dray.Tree) {
	b.Helper()
	root, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if _, err := WriteTree(b.Context(), root, t, dray.WriteTreeOptions{}); err != nil {
		b.Fatal(err)
	}
}
