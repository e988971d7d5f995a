package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestParts(t *testing.T) {
	for list, want := range map[string]int{"": len(partNames), "kill": 1, "latency,stream": 2} {
		if got, err := parseParts(list); err != nil || len(got) != want {
			t.Errorf("%q is %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"speed", "latency,", " kill"} {
		if _, err := parseParts(list); err == nil {
			t.Errorf("%q is taken", list)
		}
	}
}

// TestTool runs what the bench runs: the program that it compiles says, prints and leaves behind what the parts count on.
func TestTool(t *testing.T) {
	r := &rig{workspace: t.TempDir()}
	if err := compileTool(t.Context(), r.workspace); err != nil {
		t.Fatal(err)
	}
	for _, c := range []command{runTrue, runTool, runSleep} {
		if err := r.program()(t.Context(), c); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := r.hostPipe(t.Context(), 1_000_001); err != nil {
		t.Error(err)
	}
	argv := bothOf(70_000)
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.workspace, argv[0]), argv[1:]...)
	var stdout, stderr counter
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stdout != 70_000 || stderr != 70_000 {
		t.Errorf("%d and %d bytes, %v", stdout, stderr, err)
	}
}

func TestProgramTellsWhatWentWrong(t *testing.T) {
	r := &rig{workspace: t.TempDir()}
	for want, argv := range map[string][]string{"and should have": {"echo", "no"}, "said so": {"sh", "-c", "echo said so >&2; exit 3"}} {
		err := r.program()(context.Background(), command{argv: argv, stdout: "hi\n"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", argv, err, want)
		}
	}
}

func TestStatusField(t *testing.T) {
	const status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"
	if got, err := statusField(status, "VmHWM"); err != nil || got != 2<<20 {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := statusField(status, "VmSwap"); err == nil {
		t.Error("what is not there was read")
	}
}

func TestIsTree(t *testing.T) {
	for stat, want := range map[string]bool{
		"7 (benchtool) S 1 7 7 0":    true,
		"7 (benchtool) Z 1 7 7 0":    false,
		"7 (sleep) S 1 7 7 0":        false,
		"7 (x) (benchtool) S 1 7":    false,
		"7 (benchtool":               false,
		"":                           false,
		"7 (benchtool) ":             false,
		"7 (benchtoolbox) S 1 7 7 0": false,
	} {
		if got := isTree([]byte(stat)); got != want {
			t.Errorf("%q is a tree: %t", stat, got)
		}
	}
}
