package enginetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// StartAgain starts an engine that was stopped or killed, and waits until it responds.
func (e *Engine) StartAgain(tb testing.TB) {
	tb.Helper()
	log, err := os.OpenFile(e.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	args, env := e.command()
	e.cmd = exec.Command(args[0], args[1:]...) //nolint:noctx,gosec // Stop and Kill end it
	e.cmd.Env = env
	e.cmd.Stdout, e.cmd.Stderr = log, log
	// Ctrl-C in a terminal must not end it before the test does
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := e.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	exited := make(chan struct{})
	e.exited = exited
	go func(cmd *exec.Cmd) { // ends with the process, which close kills at the latest
		_ = cmd.Wait()
		close(exited)
	}(e.cmd)
	e.ready(tb)
}

// command returns the engine's command line and environment; nil is that of the test. The dockerds
// share the system's containerd if there is one, and these names keep them apart. They must be
// flags.
func (e *Engine) command() (args, env []string) {
	if e.opts.Podman {
		return e.podmanCommand()
	}
	name := filepath.Base(e.dir)
	args = []string{
		"dockerd", "--config-file", e.path("config.json"), "--containerd-namespace", name,
		"--containerd-plugins-namespace", name + "-plugins",
	}
	if !e.opts.RemapUsers {
		return args, nil
	}
	// In its own mount namespace, where only the engine sees another /etc/subuid.
	script := `mount --bind "$0/subuid" /etc/subuid &&
		mount --bind "$0/subgid" /etc/subgid && exec "$@"`
	return append([]string{"unshare", "--mount", "sh", "-c", script, e.dir}, args...), nil
}

// ready waits until the engine responds.
func (e *Engine) ready(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for e.ping(ctx) != nil {
		select {
		case <-tick.C:
		case <-e.exited:
			tb.Fatalf("the engine exited at once:\n%s", e.logTail())
		case <-ctx.Done():
			tb.Fatalf("the engine does not respond:\n%s", e.logTail())
		}
	}
}

// logTail returns the last warnings and errors of the engine's log.
func (e *Engine) logTail() string {
	text, err := os.ReadFile(e.path("log"))
	if err != nil {
		return err.Error()
	}
	warnings := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
		_, rest, _ := strings.Cut(line, " ")
		return strings.HasPrefix(rest, "level=info ") || strings.HasPrefix(rest, "level=debug ")
	})
	tail := strings.Join(warnings, "")
	return tail[max(0, len(tail)-2<<10):]
}

// Restart stops the engine and starts it again.
func (e *Engine) Restart(tb testing.TB) {
	tb.Helper()
	e.Stop(tb)
	e.StartAgain(tb)
}

// Stop stops the engine with SIGTERM and waits for its exit. Without Options.LiveRestore its
// containers are stopped.
func (e *Engine) Stop(tb testing.TB) {
	tb.Helper()
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Fatal(err)
	}
	if !e.waitExit(startTimeout) {
		tb.Fatalf("the engine does not exit:\n%s", e.logTail())
	}
}

// Kill kills the engine and its containerd. Containers keep running, and StartAgain finds them.
func (e *Engine) Kill(tb testing.TB) {
	tb.Helper()
	if err := e.cmd.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
	if !e.waitExit(startTimeout) {
		tb.Fatal("the engine did not exit after KILL")
	}
	for _, p := range processesOf(e.dir) {
		if p.name == "containerd" {
			p.kill()
		}
	}
	removePIDFiles(e.dir)
}

// waitExit waits for the exit of the engine, and reports whether it came within the limit.
func (e *Engine) waitExit(limit time.Duration) bool {
	select {
	case <-e.exited:
		return true
	case <-time.After(limit):
		return false
	}
}

// Docker runs the docker command with this engine and returns its output, without space around it.
func (e *Engine) Docker(tb testing.TB, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "docker", args...) //nolint:gosec // a command of the test
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.Host(), "DOCKER_CONTEXT=")
	out, err := cmd.Output()
	if err != nil {
		if failed, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns no other
			out = failed.Stderr
		}
		tb.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// removePIDFiles removes files that would make the next engine wait for another process with that
// pid.
func removePIDFiles(dir string) {
	for _, name := range []string{"docker.pid", "exec/containerd/containerd.pid"} {
		_ = os.Remove(filepath.Join(dir, name))
	}
}
