package command

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testState is a state directory and a working directory with the daemon that commands start there.
type testState struct{ dir, state string }

func newHome(t *testing.T) testState {
	t.Helper()
	dir := t.TempDir()
	h := testState{dir: dir, state: filepath.Join(dir, "state")}
	t.Cleanup(func() { stopDaemon(h.state) })
	return h
}

// dray returns a dray command.
func (h testState) dray(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("dray", args...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "DRAY_STATE="+h.state, "DRAY_HOST_ROOTS="+h.dir, "HOME="+h.dir)
	return cmd
}

// runningCommand is a running command.
type runningCommand struct {
	*exec.Cmd
	out    *bufio.Reader
	stdout io.Closer
	stdin  io.WriteCloser
	err    bytes.Buffer
}

func start(t *testing.T, cmd *exec.Cmd) *runningCommand {
	t.Helper()
	r := &runningCommand{Cmd: cmd}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &r.err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r.out, r.stdout = bufio.NewReader(stdout), stdout
	return r
}

func (r *runningCommand) line(t *testing.T) string {
	t.Helper()
	line, err := r.out.ReadString('\n')
	if err != nil {
		t.Fatalf("read a line: %v; stderr: %s", err, r.err.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// exit waits for the command and returns its exit code, 128+N for signal N.
func (r *runningCommand) exit(t *testing.T) int {
	t.Helper()
	err := r.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	status, _ := r.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// waitGone waits until a process has exited.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if !waitForExit(fd, 20*time.Second) {
		t.Errorf("process %d still runs", pid)
	}
}

// sleeper prints its pid and then sleeps.
const sleeper = `echo $$; exec sleep 600`

func (r *runningCommand) pid(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(r.line(t))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestExecStreamsOutput(t *testing.T) {
	t.Parallel()
	r := start(t, newHome(t).dray(t, "exec", "--", "sh", "-c", `echo ready; read line; echo "got $line"; cat`))
	if got := r.line(t); got != "ready" { // the tool still waits
		t.Errorf("got %q", got)
	}
	if _, err := io.WriteString(r.stdin, "one\n"); err != nil {
		t.Fatal(err)
	}
	if got := r.line(t); got != "got one" {
		t.Errorf("got %q", got)
	}
	_, _ = io.WriteString(r.stdin, "rest")
	_ = r.stdin.Close()
	rest, err := io.ReadAll(r.out)
	if err != nil || string(rest) != "rest" {
		t.Errorf("got %q, %v", rest, err)
	}
	if code := r.exit(t); code != 0 {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
}

func TestExecDoesNotWaitForStdin(t *testing.T) {
	t.Parallel()
	r := start(t, newHome(t).dray(t, "exec", "--", "echo", "done")) // stdin stays open
	if got := r.line(t); got != "done" {
		t.Errorf("got %q", got)
	}
	if code := r.exit(t); code != 0 {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
}

func TestInterruptCancelsTheCall(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			r := start(t, newHome(t).dray(t, "exec", "--", "sh", "-c", sleeper))
			pid := r.pid(t)
			if err := r.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if code := r.exit(t); code != 130 {
				t.Errorf("exit code %d: %s", code, r.err.String())
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the tool still runs after the command: %v", err)
			}
		})
	}
}

func TestSecondInterruptExitsAtOnce(t *testing.T) {
	t.Parallel()
	cmd := newHome(t).dray(t, "exec", "--", "sh", "-c", `trap '' TERM; trap 'echo stubborn' TERM; echo $$; while :; do sleep 0.1; done`)
	cmd.Env = append(cmd.Env, "DRAY_LIMITS_GRACE=3s", "DRAY_LIMITS_DRAIN=0s")
	r := start(t, cmd)
	pid := r.pid(t)
	for i := range 2 {
		if err := r.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if i == 0 && r.line(t) != "stubborn" {
			t.Error("the first one did not reach the tool")
		}
	}
	if code := r.exit(t); code != 130 {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the command waited for the tool: %v", err)
	}
	waitGone(t, pid)
}

func TestExec_StdoutClosed(t *testing.T) {
	t.Parallel()
	r := start(t, newHome(t).dray(t, "exec", "--", "sh", "-c", `echo $$; exec yes`))
	pid := r.pid(t)
	_ = r.stdout.Close()
	if code := r.exit(t); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
	waitGone(t, pid)
}

func TestExec_CommandKilledCancelsTheCall(t *testing.T) {
	t.Parallel()
	r := start(t, newHome(t).dray(t, "exec", "--", "sh", "-c", sleeper))
	pid := r.pid(t)
	_ = r.Process.Kill()
	_ = r.exit(t)
	waitGone(t, pid)
}

func TestExec_DaemonKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	r := start(t, h.dray(t, "exec", "--", "sh", "-c", sleeper))
	pid := r.pid(t)
	pids := daemonPIDs(h.state)
	_ = syscall.Kill(pids[len(pids)-1], syscall.SIGKILL)
	if code := r.exit(t); code != 125 ||
		!strings.Contains(r.err.String(), "the connection to the daemon was lost") {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
	waitGone(t, pid)
}

// Output that was neither read in time nor captured is lost. A part of it must not look complete.
func TestExec_OutputReadTooSlowly(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cmd := h.dray(t, "exec", "--", "sh", "-c", "head -c 30000000 /dev/urandom; touch done")
	cmd.Env = append(cmd.Env, "DRAY_LIMITS_CAPTURE=1KiB")
	r := start(t, cmd)
	waitForFile(t, filepath.Join(h.dir, "done"))
	got, err := io.Copy(io.Discard, r.out)
	if err != nil || got >= 30000000 {
		t.Errorf("got %d bytes, %v", got, err)
	}
	if code := r.exit(t); code != 125 ||
		!strings.Contains(r.err.String(), "output was dropped because it was read too slowly") {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
}

// waitForFile waits until a tool has created a file.
func waitForFile(t *testing.T, name string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", `until test -e "$0"; do :; done`, name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
