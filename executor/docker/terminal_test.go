package docker_test

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// A terminal by each transport: its size, a resize, one output stream, Ctrl-C, and its end by
// Ctrl-D (EX-19).
func TestTerminal(t *testing.T) {
	for _, transport := range []docker.Transport{
		docker.TransportSocket, docker.TransportStdio,
		docker.TransportEngine,
	} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			env := environment(t, e, runContainer(t, e, debian, nil), agent.Spec{User: "vscode"})
			p, err := env.Start(t.Context(), dray.ProcessSpec{
				Argv: []string{"sh", "-c", `trap : INT; test -t 0 && test -t 1 && test -t 2 && echo $TERM; while read -r line; do
					case $line in size) stty size;; nap) sh -c 'echo napping; exec sleep 600'; echo woken;; *) echo "got $line";; esac; done; echo eof >&2; exit 6`},
				Dir: "/", Terminal: &dray.TerminalSize{Columns: 91, Rows: 33},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Stop(0)
			out := bufio.NewScanner(p.Output(dray.Stdout))
			expect := func(typed, want string) {
				t.Helper()
				if typed != "" {
					if _, err := p.Stdin().Write([]byte(typed)); err != nil {
						t.Fatal(err)
					}
				}
				timer := time.AfterFunc(20*time.Second, func() { p.Stop(0) })
				defer timer.Stop()
				for out.Scan() {
					if strings.HasSuffix(strings.TrimSpace(out.Text()), want) {
						return
					}
				}
				t.Fatalf("after %q there is no %q", typed, want)
			}
			expect("", "xterm")
			expect("size\n", "33 91")
			if err := p.Resize(dray.TerminalSize{Columns: 120, Rows: 40}); err != nil {
				t.Error(err)
			}
			expect("size\n", "40 120")
			expect("nap\n", "napping")
			expect("\x03", "woken")
			expect("more\n", "got more")
			_ = p.Stdin().Close()
			expect("", "eof")
			if exit, err := p.Wait(); err != nil || exit.Code != 6 {
				t.Errorf("got %+v, %v", exit, err)
			}
		})
	}
}

// Resize fails for a process without a terminal.
func TestResize_NoTerminal(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportEngine} {
		e := newEngine(t, transport)
		p := begin(t, environment(t, e, runContainer(t, e, busybox,
			nil), agent.Spec{}), "echo ready; sleep 600")
		err := p.Resize(dray.TerminalSize{Columns: 80, Rows: 24})
		if err != dray.ErrNoTerminal { //nolint:errorlint // it is not wrapped
			t.Errorf("%s: got %v", transport, err)
		}
		p.Stop(0)
		_, _ = p.Wait()
	}
}
