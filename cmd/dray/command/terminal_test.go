package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo terminal: the test has one end, a command the other.
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

// onTerminal starts a command with a terminal as stdin, stdout and stderr.
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

// readUntil reads from a terminal until a text; for an empty text, until the other end is closed.
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

func TestExec_CtrlCOnTerminal(t *testing.T) {
	t.Parallel()
	r, terminal := onTerminal(t, newHome(t).
		dray(t, "exec", "--", "sh", "-c", "echo ready; exec sleep 600"))
	readUntil(t, terminal, "ready")
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, terminal, "")
	if code := r.exit(t); code != 130 {
		t.Errorf("exit code %d", code)
	}
}

func TestExec_TypedInput(t *testing.T) {
	t.Parallel()
	r, terminal := onTerminal(t, newHome(t).
		dray(t, "exec", "--", "sh", "-c", "read line; echo got $line"))
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

// A background job that reads its terminal is stopped by the kernel, and would never end.
func TestExec_BackgroundOfTerminal(t *testing.T) {
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

func TestProgressIsRemovedFromTheTerminal(t *testing.T) {
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

func TestEscapeDetector(t *testing.T) {
	const key = "\x1d"
	for name, c := range map[string]struct {
		typed []string
		gaps  time.Duration
		want  int
	}{
		"three times":             {[]string{key, key, key}, 300 * time.Millisecond, 1},
		"in one read":             {[]string{"ab" + key + key + key + "c"}, 0, 1},
		"too slow":                {[]string{key, key, key, key, key}, 600 * time.Millisecond, 0},
		"twice":                   {[]string{key, key}, 0, 0},
		"with something between":  {[]string{key, key, "x", key, key}, 0, 0},
		"six times":               {[]string{key + key + key + key + key + key}, 0, 2},
		"five times":              {[]string{key + key + key + key + key}, 0, 1},
		"slow, then fast":         {[]string{key + "", key, key, key + key}, 600 * time.Millisecond, 1},
		"nothing that looks like": {[]string{"^]^]^]", "\x1b\x1b\x1b"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now, escaped := time.Unix(0, 0), 0
			readers := make([]io.Reader, 0, len(c.typed))
			for _, text := range c.typed {
				readers = append(readers, strings.NewReader(text))
			}
			e := &escapeDetector{
				r:   io.MultiReader(readers...),
				now: func() time.Time { now = now.Add(c.gaps); return now }, onEscape: func() { escaped++ },
			}
			got, err := io.ReadAll(iotest.DataErrReader(e))
			if err != nil || string(got) != strings.Join(c.typed, "") { // no byte is withheld
				t.Errorf("read %q, %v", got, err)
			}
			if escaped != c.want {
				t.Errorf("escaped %d times, want %d", escaped, c.want)
			}
		})
	}
}

// Input typed after Close is read by the next reader.
func TestTTYReader(t *testing.T) {
	ours, theirs := openTerminal(t)
	k, err := newTTYReader(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer k.free()
	buf := make([]byte, 64)
	if _, err := ours.WriteString("one\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Read(buf); err != nil || string(buf[:n]) != "one\n" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	read := make(chan error, 1)
	go func() { _, err := k.Read(buf); read <- err }()
	_, _ = k.Close(), k.Close()
	if err := <-read; !errors.Is(err, errReaderClosed) {
		t.Errorf("the blocked read returned %v", err)
	}
	if _, err := ours.WriteString("two\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Read(buf); !errors.Is(err, errReaderClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if n, err := theirs.Read(buf); err != nil || string(buf[:n]) != "two\n" {
		t.Errorf("the next reader gets %q, %v", buf[:n], err)
	}
}

func TestTTYReader_TerminalClosed(t *testing.T) {
	ours, theirs := openTerminal(t)
	k, err := newTTYReader(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer k.free()
	_ = ours.Close()
	if n, err := k.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// A terminal does not get the control codes of a tool from a receipt.
func TestReceiptOnTerminal(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	out, err := h.dray(t, "exec", "--json", "--", "printf", `\302\2332J`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var call struct{ ID string }
	if err := json.Unmarshal(out, &call); err != nil {
		t.Fatal(err)
	}
	_, terminal := onTerminal(t, h.dray(t, "audit", "receipt", call.ID))
	shown := readUntil(t, terminal, "")
	if !strings.Contains(shown, `\x9b2J`) || strings.Contains(shown, "\u009b") {
		t.Errorf("the terminal shows %q", shown)
	}
}
