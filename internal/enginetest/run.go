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

// StartAgain starts an engine that was stopped or killed, and waits until it answers.
func (e *Engine) StartAgain(tb testing.TB) {
	tb.Helper()
	log, err := os.OpenFile(e.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	args := e.command()
	e.cmd = exec.Command(args[0], args[1:]...) //nolint:noctx,gosec // Stop and Kill end it
	e.cmd.Stdout, e.cmd.Stderr = log, log
	// a terminal's Ctrl-C is not for it: the test ends it
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

// command starts dockerd. Where the system has a containerd, engines share it, and are told apart
// by these names, which have to be flags.
func (e *Engine) command() []string {
	name := filepath.Base(e.dir)
	args := []string{
		"dockerd", "--config-file", e.path("config.json"), "--containerd-namespace", name,
		"--containerd-plugins-namespace", name + "-plugins",
	}
	if !e.opts.RemapUsers {
		return args
	}
	// In a mount namespace of its own, where /etc/subuid can be another without anybody's noticing.
	script := `mount --bind "$0/subuid" /etc/subuid && mount --bind "$0/subgid" /etc/subgid && exec "$@"`
	return append([]string{"unshare", "--mount", "sh", "-c", script, e.dir}, args...)
}

// ready waits until the engine answers.
func (e *Engine) ready(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for e.ping(ctx) != nil {
		select {
		case <-tick.C:
		case <-e.exited:
			tb.Fatalf("the engine of the test ended at once:\n%s", e.logTail())
		case <-ctx.Done():
			tb.Fatalf("the engine of the test does not answer:\n%s", e.logTail())
		}
	}
}

// logTail is the end of what the engine complained of: what it does in the ordinary way would bury
// the test's own words.
func (e *Engine) logTail() string {
	text, err := os.ReadFile(e.path("log"))
	if err != nil {
		return err.Error()
	}
	complaints := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
		_, rest, _ := strings.Cut(line, " ")
		return strings.HasPrefix(rest, "level=info ") || strings.HasPrefix(rest, "level=debug ")
	})
	said := strings.Join(complaints, "")
	return said[max(0, len(said)-2<<10):]
}

// Restart stops the engine and starts it again.
func (e *Engine) Restart(tb testing.TB) {
	tb.Helper()
	e.Stop(tb)
	e.StartAgain(tb)
}

// Stop ends the engine as an operator would, and waits for it. Without Options.LiveRestore its
// containers are stopped.
func (e *Engine) Stop(tb testing.TB) {
	tb.Helper()
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Fatal(err)
	}
	if !e.waitExit(patience) {
		tb.Fatalf("the engine of the test does not end:\n%s", e.logTail())
	}
}

// Kill ends the engine with SIGKILL, and its containerd with it. Containers go on; Resume finds
// them.
func (e *Engine) Kill(tb testing.TB) {
	tb.Helper()
	if err := e.cmd.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
	if !e.waitExit(patience) {
		tb.Fatal("the engine of the test outlives a KILL")
	}
	for _, p := range processesOf(e.dir) {
		if p.name == "containerd" {
			p.kill()
		}
	}
	removePIDFiles(e.dir)
}

// waitExit waits for the end of the engine's process.
func (e *Engine) waitExit(limit time.Duration) bool {
	select {
	case <-e.exited:
		return true
	case <-time.After(limit):
		return false
	}
}

// Docker runs the docker command with this engine and gives what it prints, without space around
// it.
func (e *Engine) Docker(tb testing.TB, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "docker", args...) //nolint:gosec // a test's own words
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.Host(), "DOCKER_CONTEXT=")
	out, err := cmd.Output()
	if err != nil {
		if failed, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output gives no other
			out = failed.Stderr
		}
		tb.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// removePIDFiles removes what would make the next engine wait for a stranger who got the number.
func removePIDFiles(dir string) {
	for _, name := range []string{"docker.pid", "exec/containerd/containerd.pid"} {
		_ = os.Remove(filepath.Join(dir, name))
	}
}
