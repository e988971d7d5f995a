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

// TestMain lets the program stand in for dray: where a command would start a daemon in the
// background, and where one runs on a terminal.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "exec") {
		os.Exit(command.Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// Where scripts/setup puts what the tests need; the variables go before.
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

// withImages puts the names of the test images into a text.
func withImages(text string) string {
	return strings.NewReplacer("DEBIAN", debian, "BUSYBOX", busybox).Replace(text)
}

// needsEngine skips a test where only what needs no engine is asked for.
func needsEngine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine, which -short leaves out")
	}
}
