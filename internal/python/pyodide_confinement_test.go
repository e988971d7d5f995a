package python_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
)

// findBwrap returns the path of bubblewrap, or fails the test: those of the sandbox are not
// skipped.
func findBwrap(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatalf("find bubblewrap: %v; next: scripts/setup bwrap", err)
	}
	return path
}

// withAndWithoutBwrap runs a test with both.
func withAndWithoutBwrap(t *testing.T, test func(t *testing.T, cfg python.PyodideConfig)) {
	t.Helper()
	t.Run("in bubblewrap", func(t *testing.T) { inBwrap(t, test) })
	t.Run("without bubblewrap", func(t *testing.T) { withoutBwrap(t, test) })
}

func inBwrap(t *testing.T, test func(t *testing.T, cfg python.PyodideConfig)) {
	t.Helper()
	cfg := newPyodideConfig(t)
	c, err := python.NewConfinement(t.Context(), cfg.Start, cfg.Bwrap, denoOf(t, cfg))
	if err != nil || c.Bwrap == "" {
		t.Fatalf("bubblewrap does not work: %s, %v", c.Reason, err)
	}
	test(t, cfg)
}

func withoutBwrap(t *testing.T, test func(t *testing.T, cfg python.PyodideConfig)) {
	t.Helper()
	cfg := newPyodideConfig(t)
	cfg.Bwrap = ""
	test(t, cfg)
}

func denoOf(t *testing.T, cfg python.PyodideConfig) string {
	t.Helper()
	found, err := cfg.Assets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found.Deno
}

// processesBelow returns the names of all descendants of a process by their pids.
func processesBelow(t *testing.T, pid int) map[int]string {
	t.Helper()
	parents, names := map[int]int{}, map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var own, parent int
		_, _ = fmt.Sscan(string(text), &own)
		open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		_, _ = fmt.Sscan(string(text[end+3:]), &parent)
		parents[own], names[own] = parent, string(text[open+1:end])
	}
	below := map[int]string{}
	for own := range parents {
		for up := parents[own]; up != 0; up = parents[up] {
			if up == pid {
				below[own] = names[own]
			}
		}
	}
	return below
}

// testPyodideBwrap looks from outside at a worker in bubblewrap (PY-09).
func testPyodideBwrap(t *testing.T, h pythontest.Harness) {
	w := h.Start(t, func(s *python.WorkerSpec) { s.Memory = 320 << 20 })
	var deno int
	for pid, name := range processesBelow(t, os.Getpid()) {
		if own, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); name == "deno" {
			deno = pid
			t.Logf("Deno is process %d, %s", pid, own)
		}
	}
	proc := fmt.Sprintf("/proc/%d/", deno)
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink("/proc/self/ns/" + name)
		other, otherErr := os.Readlink(proc + "ns/" + name)
		if err := errors.Join(err, otherErr); err != nil || own == other {
			t.Errorf("namespace %s: %s, own %s, %v", name, other, own, err)
		}
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(proc + name)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	status := read("status")
	for _, want := range []string{
		"\nCapEff:\t0000000000000000\n", "\nCapBnd:\t0000000000000000\n", "\nNoNewPrivs:\t1\n",
		"\nCapPrm:\t0000000000000000\n",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q", want)
		}
	}
	for _, want := range []string{
		`Max stack size +67108864 +`, `Max data size +` + fmt.Sprint(1<<30+(320-128)<<20) + ` +`,
	} {
		if !regexp.MustCompile(want).MatchString(read("limits")) {
			t.Errorf("limits lack %s: %s", want, read("limits"))
		}
	}
	if got := strings.Count(read("net/dev"), ":"); got != 1 { // lo
		t.Errorf("network devices: %s", read("net/dev"))
	}
	if got := strings.ReplaceAll(read("environ"), "\x00", " "); got !=
		"DENO_DIR=/dev/null/none DENO_NO_UPDATE_CHECK=1 MALLOC_ARENA_MAX=1 "+
			"MALLOC_TRIM_THRESHOLD_=131072 MALLOC_TOP_PAD_=65536 PWD=/dray " {
		t.Errorf("variables: %q", got)
	}
	testBwrapMounts(t, proc, read("mountinfo"))
	w.Kill()
	<-w.Done()
}

// testBwrapMounts checks that a worker sees its own files, read-only, and nothing else.
func testBwrapMounts(t *testing.T, proc, mountinfo string) {
	t.Helper()
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); !strings.HasPrefix(fields[5], "ro,") {
			t.Errorf("a writable mount: %s", line)
		}
	}
	libraries := regexp.MustCompile(`^/(usr/)?lib(64)?(/[^/]+)*/(ld-linux-[^/]+|lib[a-z_]+)\.so[.0-9]*$`)
	known := map[string]bool{"/deno": true, "/dray/interrupts": true, "/proc/self/exe": true}
	for _, name := range []string{"pyodide", "program"} {
		entries, err := os.ReadDir(proc + "root/dray/" + name)
		if err != nil || len(entries) == 0 {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
		for _, e := range entries {
			known["/dray/"+name+"/"+e.Name()] = true
		}
	}
	err := filepath.WalkDir(proc+"root/", func(path string, e fs.DirEntry, err error) error {
		name := "/" + strings.TrimPrefix(path, proc+"root/")
		if err == nil && !e.IsDir() && !known[name] && !libraries.MatchString(name) {
			t.Errorf("it sees %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Where bubblewrap is missing or does not work, Deno runs without it, and the reason is known
// (PY-09).
func TestNewConfinement(t *testing.T) {
	cfg := newPyodideConfig(t)
	deno := denoOf(t, cfg)
	script := func(text string) string {
		name := filepath.Join(t.TempDir(), "bwrap")
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const message = "setting up uid map: Permission denied"
	for name, c := range map[string]struct{ bwrap, deno, reason string }{
		"it works":             {cfg.Bwrap, deno, ""},
		"not installed":        {"", deno, "not installed"},
		"no such file":         {"/nowhere/bwrap", deno, "no such file"},
		"namespaces forbidden": {script("echo '" + message + "' >&2; exit 1"), deno, message},
		"something else runs":  {script("echo hello"), deno, `"hello\n"`},
		"it ends by a signal":  {script("kill -9 $$"), deno, "killed"},
		"no Deno":              {cfg.Bwrap, "/nowhere/deno", "libraries of Deno"},
		"the mounts fail": {
			script("exec " + cfg.Bwrap + ` --ro-bind /nowhere /x "$@"`), deno, "/nowhere",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := python.NewConfinement(t.Context(), cfg.Start, c.bwrap, c.deno)
			if err != nil || !strings.Contains(got.Reason, c.reason) ||
				(got.Bwrap == "") != (c.reason != "") {
				t.Errorf("got %+v, %v, want %q", got, err, c.reason)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := python.NewConfinement(ctx, cfg.Start, cfg.Bwrap, deno); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A worker runs where bubblewrap is installed and does not work (PY-09).
func TestPyodideBwrapFails(t *testing.T) {
	cfg := newPyodideConfig(t)
	cfg.Bwrap = "/bin/false"
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(cfg)
	w := h.Start(t, nil)
	if got := w.Value(t, "1+1"); got != "2" {
		t.Errorf("1+1 is %s", got)
	}
}
