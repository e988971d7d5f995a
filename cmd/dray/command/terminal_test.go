package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo terminal: we hold one end, a command gets the other.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// onTerminal starts a command whose stdin, stdout and stderr are a terminal of its own.
func onTerminal(t *testing.T, cmd *exec.Cmd) (*runningCommand, *os.File) {
	t.Helper()
	ours, theirs := openTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &runningCommand{Cmd: cmd}, ours
}

// readUntil reads what a terminal shows until it has shown a text; without one, until nobody holds the other end.
func readUntil(t *testing.T, terminal io.Reader, text string) string {
	t.Helper()
	var got bytes.Buffer
	buf := make([]byte, 1024)
	for text == "" || !strings.Contains(got.String(), text) {
		n, err := terminal.Read(buf)
		got.Write(buf[:n])
		if err != nil && text != "" {
			t.Fatalf("the terminal shows %q, not %q: %v", got.String(), text, err)
		}
		if err != nil {
			break
		}
	}
	return got.String()
}

func TestCtrlCOnATerminal(t *testing.T) {
	t.Parallel()
	r, terminal := onTerminal(t, newHome(t).dray(t, "exec", "--", "sh", "-c", "echo ready; exec sleep 600"))
	readUntil(t, terminal, "ready")
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, terminal, "")
	if code := r.exit(t); code != 130 {
		t.Errorf("exit code %d", code)
	}
}

func TestTypedInput(t *testing.T) {
	t.Parallel()
	r, terminal := onTerminal(t, newHome(t).dray(t, "exec", "--", "sh", "-c", "read line; echo got $line"))
	if _, err := terminal.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if shown := readUntil(t, terminal, ""); !strings.Contains(shown, "got hello") {
		t.Errorf("the terminal shows %q", shown)
	}
	if code := r.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A job in the background that reads its terminal is stopped by the kernel: then it would never end.
func TestInTheBackgroundOfATerminal(t *testing.T) {
	t.Parallel()
	cmd := newHome(t).dray(t, "exec", "--", "echo", "done")
	cmd.Args = []string{"sh", "-c", "set -m; dray exec -- echo done & wait $!"}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = sh
	r, terminal := onTerminal(t, cmd)
	if shown := readUntil(t, terminal, ""); !strings.Contains(shown, "done") {
		t.Errorf("the terminal shows %q", shown)
	}
	if code := r.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestProgressIsGoneFromTheTerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := os.WriteFile(h.dir+"/.devcontainer.json", []byte(`{"image":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, terminal := onTerminal(t, h.dray(t, "workspace", "up"))
	shown := readUntil(t, terminal, "")
	if !strings.Contains(shown, `dray: build: step 1/2 \x1b[2J`+"\r\x1b[K") || strings.Contains(shown, "\x1b[2J") {
		t.Errorf("the terminal shows %q", shown)
	}
	if code := r.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
