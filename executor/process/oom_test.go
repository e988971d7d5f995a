package process_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
)

// memoryGroup creates a cgroup v1 with a memory limit, and returns its cgroup.procs.
func memoryGroup(t *testing.T, limit string) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	_, group, ok := strings.Cut(string(own), ":memory:")
	if !ok {
		t.Skip("memory is not held by version 1 here; the test in a container covers version 2")
	}
	group, _, _ = strings.Cut(group, "\n")
	dir := filepath.Join("/sys/fs/cgroup/memory"+group, "draytest-"+strings.ToLower(t.Name()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skipf("no group can be made: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Rmdir(dir) })
	if err := os.WriteFile(dir+"/memory.limit_in_bytes", []byte(limit), 0); err != nil {
		t.Fatal(err)
	}
	return dir + "/cgroup.procs"
}

// A KILL by the kernel because memory ran out is distinguished from others by its counter (EX-12).
func TestOOM(t *testing.T) {
	needRoot(t)
	procs := memoryGroup(t, "128M")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]dray.OOM{
		"exec tail /dev/zero":           dray.OOMCertain,
		"tail /dev/zero; kill -9 $$":    dray.OOMLikely,
		"kill -9 $$":                    dray.OOMNo,
		"exec head -c 1000 /dev/zero":   dray.OOMNo,
		"tail /dev/zero; kill -15 $$":   dray.OOMNo,
		"tail /dev/zero; exit 137":      dray.OOMNo,
		"tail /dev/zero & wait; exit 0": dray.OOMNo,
	} {
		cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$1" && exec "$2" "$3" "$4"`, "sh", procs, self, aloneArg, script)
		cmd.Env, cmd.Stderr = supervisorEnv(), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", script, err)
		}
		var r lostReport
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatal(err)
		}
		if got := r.Exit.OOM; got != want && (want != dray.OOMLikely || got != dray.OOMCertain) {
			t.Errorf("%q: got %v with %+v, want %v", script, got, r.Exit, want)
		}
	}
}
