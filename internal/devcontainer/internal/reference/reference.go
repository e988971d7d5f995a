// Package reference finds the devcontainer reference CLI for tests that compare dray with it.
package reference

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// CLI returns the absolute path of the reference CLI: the project's own copy in .tools, else the
// one on PATH. Without either the test fails, or skips under -short; scripts/setup installs it.
func CLI(tb testing.TB) string {
	tb.Helper()
	if path, ok := tool(tb, "node_modules/.bin/devcontainer"); ok {
		return path
	}
	path, err := exec.LookPath("devcontainer")
	switch {
	case err != nil && testing.Short():
		tb.Skip("needs the devcontainer CLI")
	case err != nil:
		tb.Fatal("the devcontainer CLI is not installed: run scripts/setup")
	}
	return path
}

// tool returns the path of a file in the project's .tools.
func tool(tb testing.TB, name string) (path string, ok bool) {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".tools", name)
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
		if dir == filepath.Dir(dir) {
			return "", false
		}
	}
}

// Bundle returns the path of the file that contains the whole program of the CLI.
func Bundle(tb testing.TB) string {
	tb.Helper()
	script, err := filepath.EvalSymlinks(CLI(tb))
	if err != nil {
		tb.Fatal(err)
	}
	bundle := filepath.Join(filepath.Dir(script), "dist", "spec-node", "devContainersSpecCLI.js")
	if _, err := os.Stat(bundle); err != nil {
		tb.Fatal("this devcontainer CLI is not laid out as the npm package is: " + bundle)
	}
	return bundle
}
