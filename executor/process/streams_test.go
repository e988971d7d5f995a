package process_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
)

// The streams of StartWith belong to the tool and its user and end with the tool. The Process has
// none.
func TestStartWith(t *testing.T) {
	pool := newPool(t)
	spec := process.Spec{Argv: []string{"/bin/sh", "-c", `cat; echo err >&2; echo named >/dev/stdout`}, Env: os.Environ(), Dir: "/"}
	if os.Getuid() == 0 {
		spec.User = &process.Credential{UID: 4711, GID: 4712}
	}
	for range 20 {
		pipes, err := process.NewPipes()
		if err != nil {
			t.Fatal(err)
		}
		p, err := pool.StartWith(t.Context(), spec, pipes.Child)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = pipes.Stdin.WriteString("typed\n")
		_ = pipes.Stdin.Close()
		out, _ := io.ReadAll(pipes.Stdout)
		errOut, _ := io.ReadAll(pipes.Stderr)
		got := collect(p)
		pipes.Finish()
		if string(out) != "typed\nnamed\n" || string(errOut) != "err\n" || got.stdout != "" ||
			got.stderr != "" || got.exit.Code != 0 || got.err != nil {
			t.Fatalf("got %q, %q, %+v", out, errOut, got)
		}
		if _, err := p.Stdin().Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("write to the stdin of a process without streams: %v", err)
		}
	}
}

// StartWith closes the files of a failed start, so that their readers do not block.
func TestStartWith_Failure(t *testing.T) {
	pool := newPool(t)
	for _, spec := range []process.Spec{
		{Argv: []string{"no-such-program"}, Dir: "/"},
		{Dir: "/"},
		{Argv: []string{"/bin/true"}, Dir: "/", Terminal: &dray.TerminalSize{Columns: 80, Rows: 24}},
	} {
		pipes, err := process.NewPipes()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pool.StartWith(t.Context(), spec, pipes.Child); err == nil {
			t.Errorf("%+v started", spec)
		}
		if out, err := io.ReadAll(pipes.Stdout); err != nil || len(out) != 0 {
			t.Errorf("got %q, %v", out, err)
		}
		pipes.Close()
	}
}
