package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// setUpScript gives a script its own home and state directory, and stops its daemon afterwards.
func setUpScript(env *testscript.Env) error {
	state := filepath.Join(env.WorkDir, "state")
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("DRAY_STATE", state)
	env.Setenv("DRAY_HOST_ROOTS", env.WorkDir)
	docs, err := filepath.Abs(filepath.FromSlash("../../../docs"))
	if err != nil {
		return err
	}
	env.Setenv("DOCS", docs)
	env.Defer(func() { stopDaemon(state) })
	return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o700)
}

// scriptCommands are the additional commands of scripts.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// exits CODE PROGRAM ARG... runs a program that must exit with this code.
	"exits": func(ts *testscript.TestScript, _ bool, args []string) {
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		got := 0
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				ts.Fatalf("%v", err)
			}
			got = exit.ExitCode()
		}
		if got != want {
			ts.Fatalf("exit code %d, want %d", got, want)
		}
	},
	// stop-daemon [KILL] stops the daemon of the script's state directory, and waits for it.
	"stop-daemon": func(ts *testscript.TestScript, _ bool, args []string) {
		signal := syscall.SIGTERM
		if len(args) == 1 && args[0] == "KILL" {
			signal = syscall.SIGKILL
		}
		if !endDaemon(ts.Getenv("DRAY_STATE"), signal) {
			ts.Fatalf("no daemon runs")
		}
	},
	// daemons N checks the number of daemons started so far on the script's state directory.
	"daemons": func(ts *testscript.TestScript, _ bool, args []string) {
		if got := strconv.Itoa(len(daemonPIDs(ts.Getenv("DRAY_STATE")))); got != args[0] {
			ts.Fatalf("%s daemons were started, want %s", got, args[0])
		}
	},
}

// daemonPIDs returns the pids of all daemons from their log, the latest last.
func daemonPIDs(state string) []int {
	log, err := os.ReadFile(filepath.Join(state, logName))
	if err != nil {
		return nil
	}
	var pids []int
	lines := bufio.NewScanner(bytes.NewReader(log))
	for lines.Scan() {
		var line struct {
			Event string
			PID   int
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "ready" {
			pids = append(pids, line.PID)
		}
	}
	return pids
}

// stopDaemon stops the daemon of a state directory, if one runs.
func stopDaemon(state string) { endDaemon(state, syscall.SIGTERM) }

// endDaemon sends a signal to the daemon of a state directory and waits for it. It reports whether
// one was running.
func endDaemon(state string, signal syscall.Signal) bool {
	if held, err := locked(filepath.Join(state, daemonLock)); err != nil || !held {
		return false
	}
	pids := daemonPIDs(state)
	if len(pids) == 0 {
		return false
	}
	end(pids[len(pids)-1], signal)
	return true
}

// end sends a signal to a process, which need not be a child, and waits up to 20 s for its exit.
func end(pid int, signal syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = syscall.Kill(pid, signal)
	waitForExit(fd, 20*time.Second)
}

// waitForExit reports whether the process of a pidfd exited in time.
func waitForExit(fd int, within time.Duration) bool {
	for deadline := time.Now().Add(within); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(time.Until(deadline).Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n == 1
		}
	}
}
