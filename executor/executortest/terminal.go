package executortest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// terminal is a process with a terminal, and its pending output.
type terminal struct {
	dray.Process
	shown bytes.Buffer
}

// startTerminal starts a shell script on a terminal.
func (h Harness) startTerminal(t *testing.T, script string) *terminal {
	t.Helper()
	spec := dray.ProcessSpec{
		Argv:     []string{"/bin/sh", "-c", script},
		Terminal: &dray.TerminalSize{Columns: 81, Rows: 25},
	}
	return &terminal{Process: h.start(t, spec)}
}

// waitFor reads until the terminal shows a text, and drops the output before it.
func (s *terminal) waitFor(t *testing.T, text string) {
	t.Helper()
	_ = withTimeout(t, 20*time.Second, func() error {
		b := make([]byte, 4096)
		for !strings.Contains(s.shown.String(), text) {
			n, err := s.Output(dray.Stdout).Read(b)
			s.shown.Write(b[:n])
			if err != nil {
				t.Errorf("the terminal shows %q and then: %v; want %q", s.shown.String(), err, text)
				return err
			}
		}
		_, after, _ := strings.Cut(s.shown.String(), text)
		s.shown.Reset()
		s.shown.WriteString(after)
		return nil
	})
}

func (s *terminal) typeLine(t *testing.T, text string) {
	t.Helper()
	if _, err := s.Stdin().Write([]byte(text)); err != nil {
		t.Errorf("typing %q: %v", text, err)
	}
}

// All three streams are the controlling terminal of a new session; its output is one stream
// (EX-19).
func testTerminal(t *testing.T, h Harness) {
	for range h.rounds() {
		p := h.startTerminal(t, `for fd in 0 1 2; do test -t $fd || exit 9; done
			echo out; echo err >&2; echo own >/dev/tty; again=$(readlink /proc/self/fd/0); echo named >$again; echo "$TERM" >&2; exit 3`)
		got := collect(p)
		want := "out\r\nerr\r\nown\r\nnamed\r\nxterm\r\n"
		if got.err != nil || got.stdout != want || got.stderr != "" || got.exit.Code != 3 {
			t.Fatalf("got %+v, want %q", got, want)
		}
	}
}

// The size is set from the start, and a change sends SIGWINCH (EX-19).
func testTerminalSize(t *testing.T, h Harness) {
	if !h.terminals(t) {
		return
	}
	p := h.startTerminal(t, `trap 'stty size; exit 4' WINCH; stty size; while :; do sleep 0.02; done`)
	p.waitFor(t, "25 81\r\n")
	if err := p.Resize(dray.TerminalSize{Columns: 132, Rows: 50}); err != nil {
		t.Error(err)
	}
	p.waitFor(t, "50 132\r\n")
	if got := collect(p); got.err != nil || got.exit.Code != 4 {
		t.Errorf("got %+v", got)
	}
	if err := p.Resize(dray.TerminalSize{Columns: 1, Rows: 1}); err != nil {
		t.Logf("a size after the end: %v", err)
	}
}

// Ctrl-C reaches the foreground job alone, Ctrl-Z stops it, and the shell continues (EX-19).
func testTerminalJobs(t *testing.T, h Harness) {
	p := h.startTerminal(t, `PS1='ready> ' PS2= ENV= HISTFILE= exec /bin/bash --norc --noprofile --noediting -i`)
	p.waitFor(t, "ready> ")
	p.typeLine(t, "sleep 600; echo \"code $?\"\n")
	p.waitFor(t, "\r\n")
	p.foreground(t, h)
	p.typeLine(t, "\x03")
	p.waitFor(t, "ready> ")
	p.typeLine(t, "sleep 601\n")
	p.waitFor(t, "\r\n")
	p.foreground(t, h)
	p.typeLine(t, "\x1a")
	p.waitFor(t, "Stopped")
	p.waitFor(t, "ready> ")
	p.typeLine(t, "kill -9 %1; wait; echo \"still $((40+2))\"\n")
	p.waitFor(t, "still 42\r\n")
	p.waitFor(t, "ready> ")
	// bash repeats the prompt if it has not reaped the killed job yet
	p.typeLine(t, "exit 7\nexit 7\n")
	if got := withTimeout(t, 20*time.Second,
		func() processResult { return collect(p) }); got.err != nil || got.exit.Code != 7 {
		t.Errorf("got %+v", got)
	}
}

// foreground waits until sleep is the foreground job: the shell sets that after the start.
func (s *terminal) foreground(t *testing.T, h Harness) {
	t.Helper()
	script := `for p in /proc/[0-9]*; do
			read -r stat <$p/stat || continue
			name=${stat#*\(}; name=${name%\)*}; set -- ${stat##*) }
			test "$name" = sleep -a "$3" = "$6" && exit 0
		done 2>/dev/null; exit 1`
	_ = withTimeout(t, 20*time.Second, func() error {
		for h.sh(t, script).exit.Code != 0 {
			if t.Failed() {
				return nil
			}
		}
		return nil
	})
}

// Closing stdin is the terminal's end of file, at the start of a line and within one (EX-19,
// EX-20).
func testTerminalEndOfFile(t *testing.T, h Harness) {
	if !h.terminals(t) {
		return
	}
	for _, typed := range []string{"", "a line\n", "no line", "one\ntwo"} {
		p := h.startTerminal(t, `stty -echo; echo ready; cat; echo; echo end; exit 6`)
		p.waitFor(t, "ready\r\n")
		p.typeLine(t, typed)
		if err := p.Stdin().Close(); err != nil {
			t.Errorf("%q: %v", typed, err)
		}
		got := withTimeout(t, 20*time.Second, func() processResult { return collect(p) })
		want := strings.ReplaceAll(typed, "\n", "\r\n") + "\r\nend\r\n"
		if all := p.shown.String() + got.stdout; got.err != nil || all != want || got.exit.Code != 6 {
			t.Errorf("%q: got %q, %+v, want %q", typed, all, got.exit, want)
		}
		if _, err := p.Stdin().Write([]byte("more")); err == nil {
			t.Error("a terminal with closed stdin accepts more")
		}
	}
}

// The last output is complete even if a process keeps the terminal open; Stop ends all processes,
// in other sessions too (EX-09, EX-19).
func testTerminalEnds(t *testing.T, h Harness) {
	if !h.terminals(t) {
		return
	}
	for range h.rounds() {
		p := h.startTerminal(t, `(trap '' HUP; setsid sleep 600) & head -c 3000 /dev/zero | tr '\0' x; exit 5`)
		got := withTimeout(t, 20*time.Second, func() processResult { return collect(p) })
		if got.err != nil || got.exit.Code != 5 || len(got.stdout) != 3000 ||
			len(got.exit.Survivors.PIDs) != 0 {
			t.Fatalf("got %d bytes, %+v, %v", len(got.stdout), got.exit, got.err)
		}
		p = h.startTerminal(t, `trap '' HUP TERM; setsid sleep 600 & echo $!; while :; do sleep 600; done`)
		p.waitFor(t, "\r\n")
		p.Stop(time.Millisecond)
		if got := collect(p); got.err != nil || got.exit.Signal != syscall.SIGKILL ||
			len(got.exit.Survivors.PIDs) != 0 {
			t.Fatalf("got %+v", got)
		}
	}
}

// Without a terminal there is no size and no controlling terminal.
func testNoTerminal(t *testing.T, h Harness) {
	p := h.shell(t, `test -t 0 || test -t 1 || test -t 2 || (: >/dev/tty) 2>/dev/null || { read line; exit 8; }`)
	if err := p.Resize(dray.TerminalSize{Columns: 80, Rows: 24}); !errors.Is(err, dray.ErrNoTerminal) {
		t.Errorf("got %v", err)
	}
	_, _ = io.WriteString(p.Stdin(), "\n")
	h.ok(t, collect(p), 8)
}
