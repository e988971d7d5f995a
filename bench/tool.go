package main

import (
	"context"
	_ "embed" // the tool's source
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// toolName is also what the kernel shows as the name of its processes: nothing else on a machine is called so.
const toolName = "benchtool"

//go:embed tool/tool.c
var toolSource string

// compileTool puts the bench's own program into a folder. It needs the C compiler that dray itself is built with, and none of its
// libraries.
func compileTool(ctx context.Context, folder string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	argv := append(strings.Fields(compiler),
		"-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-pie", "-no-pie", "-O2",
		"-x", "c", "-o", filepath.Join(folder, toolName), "-")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the compiler that the operator names
	cmd.Stdin = strings.NewReader(toolSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the bench's own program: %w: %s (run `scripts/setup compiler`)", err, out)
	}
	return os.Chmod(filepath.Join(folder, toolName), 0o755) //nolint:gosec // the container's user runs it
}
