// Package assetstest finds the asset folder of Pyodide that the set-up makes for tests. It has the
// wheels of scripts/requirements-pyodide.txt.
//
// Only tests import this package.
package assetstest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/dray-dev/dray/internal/python/assets"
)

// Dir returns the asset folder: that of DRAY_TEST_PYODIDE, or else that of this checkout. A test
// fails without it: those of the sandbox are not skipped.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("DRAY_TEST_PYODIDE")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "..", "..", ".tools", "pyodide")
	}
	if _, err := os.Stat(dir); err != nil {
		tb.Fatalf("find Deno and Pyodide: %v; next: scripts/setup pyodide", err)
	}
	return dir
}

// Open returns the verified assets of Dir.
func Open(tb testing.TB) assets.Assets {
	tb.Helper()
	found, err := assets.New(assets.Options{Dir: Dir(tb)}).Open(tb.Context())
	if err != nil {
		tb.Fatalf("open Deno and Pyodide: %v; next: scripts/setup pyodide", err)
	}
	return found
}

// With returns an asset folder of the test that has other wheels besides those of Dir. The keys are
// names of files.
func With(tb testing.TB, wheels map[string][]byte) string {
	tb.Helper()
	from := tb.TempDir()
	for name, data := range wheels {
		if err := os.WriteFile(filepath.Join(from, name), data, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	dir := filepath.Join(from, "made")
	for _, source := range []string{Dir(tb), from} {
		options := assets.FetchOptions{From: source}
		if _, err := assets.New(assets.Options{Dir: dir}).Fetch(tb.Context(), options); err != nil {
			tb.Fatalf("add wheels: %v; next: scripts/setup pyodide", err)
		}
	}
	return dir
}
