package features

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray/cmd/dray/command"
)

// TestMain runs the test binary as dray if a test starts it with a command. Else a test that starts
// it would run all tests again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(command.Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// Paths of what scripts/setup installs; variables override them.
func devcontainerCLI(t testing.TB) string {
	t.Helper()
	if cli := os.Getenv("DRAY_DEVCONTAINER_CLI"); cli != "" {
		return cli
	}
	cli, err := filepath.Abs("../.tools/node_modules/.bin/devcontainer")
	if err != nil {
		t.Fatal(err)
	}
	return cli
}

func image(variable, otherwise string) string {
	if name := os.Getenv(variable); name != "" {
		return name
	}
	return otherwise
}

var (
	debian  = image("DRAY_TEST_DEBIAN", "dray-test/debian:latest")
	busybox = image("DRAY_TEST_BUSYBOX", "dray-test/busybox:latest")
)

// withImages replaces the names of the test images in a text.
func withImages(text string) string {
	return strings.NewReplacer("DEBIAN", debian, "BUSYBOX", busybox).Replace(text)
}

// needsEngine skips a test with -short.
func needsEngine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine, which -short leaves out")
	}
}
