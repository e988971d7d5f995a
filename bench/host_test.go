package main

import (
	"context"
	"errors"
	"os"
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

// TestTool runs what the bench runs: the program that it compiles says, prints and leaves behind
// what the parts count on.
func TestTool(t *testing.T) {
	r := &testbed{workspace: t.TempDir()}
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
	r := &testbed{workspace: t.TempDir()}
	for want, argv := range map[string][]string{
		"and should have": {"echo", "no"},
		"said so":         {"sh", "-c", "echo said so >&2; exit 3"},
	} {
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

// What passes is what the table says: documents with paths in them, of about the size that is
// named.
func TestPassages(t *testing.T) {
	all, err := pathRuns()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all[:4] { // a text of 1 GB takes too long here
		if err := p.once(); err != nil || p.count() != 1 || p.bytes < documentBytes ||
			p.bytes > documentBytes+1000 {
			t.Errorf("%s: %v, %d bytes", p.name, err, p.bytes)
		}
	}
	if _, ok := passageRate(passageSchema)(&measurements{passages: all}); !ok {
		t.Error("what was measured counts as not measured")
	}
}

// A haul that brings too little is an error.
func TestHaulsAreCounted(t *testing.T) {
	dir, err := memoryFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	from, to := dir+"/from", dir+"/to"
	if err := errors.Join(fill(from, false), os.Mkdir(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	h := &syncRun{
		site: storage{name: inMemory, to: to}, load: loadFiles,
		run: func(_ context.Context, to string) error {
			return os.CopyFS(to, os.DirFS(from+"/"+loadFiles))
		},
	}
	if err := h.once(t.Context(), 0); err != nil || h.count() != 1 {
		t.Errorf("%v", err)
	}
	if err := os.Remove(from + "/" + loadFiles + "/7/707"); err != nil {
		t.Fatal(err)
	}
	if err := h.once(t.Context(), 1); err == nil {
		t.Error("a file is missing, and nobody says so")
	}
}
