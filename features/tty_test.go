package features

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ttyTimeout bounds the wait for output on a terminal, and for the end of its command.
const ttyTimeout = 30 * time.Second

// ttyUser is the user of a terminal on which a command runs.
type ttyUser struct {
	t *testing.T
	// screen is the user's end of the terminal, line the command's.
	screen, line *os.File
	// unread is the output after the last awaited text.
	unread []byte
	cmd    *exec.Cmd
}

func newTTYUser(t *testing.T, columns, rows uint16) *ttyUser {
	t.Helper()
	p := &ttyUser{t: t, screen: openFile(t, "/dev/ptmx")}
	var number int
	control(t, p.screen, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	p.line = openFile(t, fmt.Sprintf("/dev/pts/%d", number))
	p.resize(columns, rows)
	return p
}

func openFile(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// control calls a function with the fd of a file. Fd would disable the deadlines of the file.
func control(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failure := raw.Control(func(fd uintptr) { err = do(int(fd)) }); failure != nil || err != nil {
		t.Fatal(failure, err)
	}
}

// start starts a command in the foreground of the terminal, as a shell would. Streams that are
// already set stay unchanged.
func (p *ttyUser) start(cmd *exec.Cmd) {
	p.t.Helper()
	// the command has the same open file
	control(p.t, p.line, func(fd int) error { return unix.SetNonblock(fd, false) })
	if cmd.Stdin == nil {
		cmd.Stdin = p.line
	}
	if cmd.Stdout == nil {
		cmd.Stdout = p.line
	}
	cmd.Stderr = p.line
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
	p.cmd = cmd
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	late := time.AfterFunc(ttyTimeout, func() { _ = cmd.Process.Kill() })
	p.t.Cleanup(func() {
		late.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// types types without reading the screen.
func (p *ttyUser) types(text string) {
	p.t.Helper()
	if err := p.screen.SetWriteDeadline(time.Now().Add(ttyTimeout)); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.screen.WriteString(text); err != nil {
		p.t.Fatalf("typing %q: %v", text, err)
	}
}

// sees waits until the screen shows a text after the last awaited one.
func (p *ttyUser) sees(text string) {
	p.t.Helper()
	if err := p.screen.SetReadDeadline(time.Now().Add(ttyTimeout)); err != nil {
		p.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		if i := bytes.Index(p.unread, []byte(text)); i >= 0 {
			p.unread = p.unread[i+len(text):]
			return
		}
		n, err := p.screen.Read(buf)
		p.unread = append(p.unread, buf[:n]...)
		if err != nil {
			p.t.Fatalf("the terminal shows %q, not %q: %v", p.unread, text, err)
		}
	}
}

// resize changes the size of the terminal.
func (p *ttyUser) resize(columns, rows uint16) {
	p.t.Helper()
	control(p.t, p.screen, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// modes are the input and output modes of the terminal.
func (p *ttyUser) modes() (modes unix.Termios) {
	p.t.Helper()
	control(p.t, p.line, func(fd int) error {
		now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			modes = *now
		}
		return err
	})
	return modes
}

// exits waits for the end of the command and compares its exit code.
func (p *ttyUser) exits(want int) {
	p.t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want { // -1: killed, e.g. after ttyTimeout
		p.t.Errorf("exit code %d, want %d; the terminal shows %q", got, want, p.unread)
	}
}
