package python_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
)

// newEngineHarness returns the runtime container in a real container: its root file system is
// read-only, the user is not root, there is no /tmp to write to, and at most 64 processes.
// More arguments go to docker run.
func newEngineHarness(t testing.TB, image string, transport docker.Transport, args ...string,
) pythontest.Harness {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine")
	}
	engine, err := docker.NewEngine(docker.EndpointConfig{}, docker.Options{
		Lease: 30 * time.Second, RunDir: t.TempDir(), Version: "test", Transport: transport,
		Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	args = append([]string{
		"run", "-d", "--init", "--network", "none", "--read-only", "--pids-limit", "64",
		"--tmpfs", "/ws:mode=0777,size=64m",
	}, args...)
	args = append(args, image, "sleep", "1000000")
	out, err := exec.CommandContext(t.Context(), "docker", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", "-v", id).Run() })
	c, err := engine.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	env, err := engine.Environment(t.Context(), c,
		agent.Spec{User: cmp.Or(userOf[image], "vscode"), WorkspaceFolder: "/ws"})
	if err != nil {
		t.Fatal(err)
	}
	containers.Store(env, id)
	return pythontest.Harness{Runtime: newContainer(t), Environment: env, Dir: "/ws"}
}

// containers has the ids of the containers of environments.
var containers sync.Map

// namespaceOf returns the pid namespace of the container of a harness, as /proc of the host shows
// it. Empty is the host.
func namespaceOf(t *testing.T, h pythontest.Harness) string {
	t.Helper()
	id, ok := containers.Load(h.Environment)
	if !ok {
		return ""
	}
	pid, err := exec.CommandContext(t.Context(), "docker", "inspect", "-f", "{{.State.Pid}}",
		fmt.Sprint(id)).Output()
	if err != nil {
		t.Fatal(err)
	}
	link, err := os.Readlink("/proc/" + strings.TrimSpace(string(pid)) + "/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// filesInContainer returns how many files are in the directories of a container that its user may
// write to.
func filesInContainer(t *testing.T, h pythontest.Harness) int {
	t.Helper()
	id, _ := containers.Load(h.Environment)
	out, err := exec.CommandContext(t.Context(), "docker", "exec", fmt.Sprint(id), "find", "/ws",
		"/dev/shm", "-mindepth", "1").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(out), "\n")
}

var (
	debian  = cmp.Or(os.Getenv("DRAY_TEST_DEBIAN"), "dray-test/debian:latest")
	busybox = cmp.Or(os.Getenv("DRAY_TEST_BUSYBOX"), "dray-test/busybox:latest")
	userOf  = map[string]string{busybox: "root"}
)

// The runtime container passes the contract suite in a container that nothing can be written to, as
// a user who is not root (PY-02).
func TestContract_Container(t *testing.T) {
	pythontest.Run(t, newEngineHarness(t, debian, docker.TransportAuto))
}

// It runs over the engine's exec too, where the agent cannot be placed.
func TestContainerByExec(t *testing.T) {
	w := newEngineHarness(t, debian, docker.TransportEngine).Start(t, nil)
	for range 3 {
		if got := w.Value(t, "1+1"); got != "2" {
			t.Errorf("got %s", got)
		}
	}
}

// A user who is not root cannot reach the keeper, which has the frames (PY-08).
func TestContainerKeeper(t *testing.T) {
	h := newEngineHarness(t, debian, docker.TransportAuto)
	w := h.Start(t, nil)
	for _, code := range []string{
		"import os\nos.listdir('/proc/%d/fd' % os.getppid())",
		"import os\nopen('/proc/%d/mem' % os.getppid(), 'rb').read(1)",
		"import os\nopen('/proc/%d/environ' % os.getppid()).read()",
		"import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.ptrace(16, os.getppid(), 0, 0) < 0: raise PermissionError(ctypes.get_errno())",
	} {
		if got := w.Code(t, code); !strings.HasPrefix(got.Message(), "PermissionError") {
			t.Errorf("%q: got %s", code, got.Describe())
		}
	}
}

// A user ends all of his processes, and with them his session, which is reported. Other sessions of
// other workers can be started (PY-06).
func TestContainerKillAll(t *testing.T) {
	h := newEngineHarness(t, debian, docker.TransportAuto)
	w := h.Start(t, nil)
	got := w.Run(t, python.Request{Code: "import os\nprint('go', flush=True)\nos.kill(-1, 9)"})
	<-w.Done()
	if exit, err := w.Exit(); got.Err == nil || err != nil || exit.Signal == 0 {
		t.Errorf("got %s, %v; %+v, %v", got.Describe(), got.Err, exit, err)
	}
	if got := h.Start(t, nil).Value(t, "1+1"); got != "2" {
		t.Errorf("the next session returned %s", got)
	}
}

// A fork bomb meets the limit of processes, and ends with its worker (PY-06).
func TestContainerForkBomb(t *testing.T) {
	h := newEngineHarness(t, debian, docker.TransportAuto)
	w := h.Start(t, nil)
	r := w.Begin(t, python.Request{Code: "import os, time\nprint('go', flush=True)\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(0.01)"})
	r.Until(t, "go\n")
	w.Kill()
	if got := r.End(t); got.Err == nil {
		t.Errorf("got %s", got.Describe())
	}
	<-w.Done()
	if exit, err := w.Exit(); err != nil || len(exit.Survivors.PIDs) > 0 {
		t.Errorf("got %+v, %v", exit, err)
	}
	if got := h.Start(t, nil).Value(t, "1+1"); got != "2" {
		t.Errorf("the next session returned %s", got)
	}
}

// Nothing is left in the container when a worker has ended.
func TestContainerLeavesNothing(t *testing.T) {
	h := newEngineHarness(t, debian, docker.TransportAuto)
	for range 5 {
		w := h.Start(t, nil)
		w.Code(t, "import subprocess\np = subprocess.Popen(['sleep', '1000'])")
		w.Kill()
		<-w.Done()
		if exit, err := w.Exit(); err != nil || len(exit.Survivors.PIDs) > 0 {
			t.Errorf("got %+v, %v", exit, err)
		}
	}
	w := h.Start(t, nil)
	const count = "import os\nsum(1 for p in os.listdir('/proc') if p.isdigit() and b'sleep\\x001000\\x00' in open('/proc/' + p + '/cmdline', 'rb').read())"
	if got := w.Value(t, count); got != "0" {
		t.Errorf("%s processes are left", got)
	}
	if got := w.Value(t, "os.listdir('/ws')"); got != "[]" {
		t.Errorf("files are left: %s", got)
	}
}

// An image without Python is helper_missing with a hint (PY-02).
func TestContainerWithoutPython(t *testing.T) {
	h := newEngineHarness(t, busybox, docker.TransportAuto)
	_, err := h.Runtime.Start(t.Context(), python.WorkerSpec{Environment: h.Environment, Generation: 1})
	wantHelperMissing(t, err, "python3 cannot be started")
	if dray.CodeOf(err) != dray.CodeHelperMissing {
		t.Error(err)
	}
}
