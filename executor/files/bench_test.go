package files_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// BenchmarkReadAll walks through 5,000 files of 4 KiB and reads each, as a search does.
func BenchmarkReadAll(b *testing.B) {
	dir, content := b.TempDir(), make([]byte, 4<<10)
	for i := range 5000 {
		folder := fmt.Sprintf("%s/%02d", dir, i%50)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf("%s/%04d", folder, i), content, 0o600); err != nil {
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
