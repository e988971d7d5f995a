package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Calls that look at a growing file at the same time do not see it cut short.
func TestFilesGrowWhileTheyAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "grows")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	all, err := identifyFiles(path)
	must(t, err)
	grown := make(chan struct{})
	var checks sync.WaitGroup
	for range 8 {
		checks.Go(func() {
			for {
				if err := all.check(); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-grown:
					return
				default:
				}
			}
		})
	}
	for range 20_000 {
		if _, err := f.Write(bytes.Repeat([]byte("x"), 64)); err != nil {
			t.Fatal(err)
		}
	}
	close(grown)
	checks.Wait()
	if err := f.Truncate(1); err != nil {
		t.Fatal(err)
	}
	if err := all.check(); !isDisplaced(err) {
		t.Errorf("a file that was cut short: %v", err)
	}
}
