package executortest

import (
	"os"
	"testing"
)

// DeepDir creates a chain of directories with the same name below dir and opens the last one. Its
// path may be longer than the kernel accepts in one call.
func DeepDir(tb testing.TB, dir, name string, depth int) *os.Root {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for range depth {
		if err := root.Mkdir(name, 0o755); err != nil {
			tb.Fatal(err)
		}
		below, err := root.OpenRoot(name)
		if err != nil {
			tb.Fatal(err)
		}
		_ = root.Close()
		root = below
	}
	tb.Cleanup(func() { _ = root.Close() })
	return root
}
