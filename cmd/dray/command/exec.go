package command

import (
	"context"
	"io"
	"maps"
	"os"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newExec(a *app) *cobra.Command {
	var to callFlags
	var tty ttyFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] -- ARGV...",
		Short: "Run a program and show its output live",
		Long: `exec runs a program where the routing rules say: in the devcontainer of the
workspace that the current folder lies in, else as configured. Its arguments,
stdin, stdout and stderr pass byte for byte, and its exit code is ours.
Ctrl-C cancels the call; a second one leaves at once.

Where stdin and stdout are terminals the program gets a terminal too: it can be a
shell or an editor, stdout and stderr are one stream, and Ctrl-C and Ctrl-Z are
the program's. Ctrl-] three times within a second cancels the call. With --rewrite
it gets none: what is drawn on a terminal is not rewritten.

A relative --cwd begins at --workspace where that is given, else at the current
folder.

` + exitHelp,
		Example: "  dray exec -- go test ./...\n  dray exec --host -- git status\n  dray exec --timeout 5s --env DEBUG=1 -- ./run < input.bin",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("there is no program to run").WithHint("write it behind --, for instance: dray exec -- go test ./...")
			}
			return nil
		},
		Annotations: map[string]string{toolExitCodes: "yes"},
	}
	cmd.Flags().SetInterspersed(false) // what follows the program belongs to it
	to.flags(cmd)
	to.timeoutFlag(cmd)
	to.leftoversFlag(cmd)
	to.rewriteFlags(cmd)
	to.syncFlag(cmd)
	cmd.Flags().BoolVarP(&tty.wanted, "tty", "t", false, "give the program a terminal, whatever stdin and stdout are")
	cmd.Flags().BoolVarP(&tty.refused, "no-tty", "T", false, "give it three pipes, whatever they are")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error { return a.runExec(ctx, cmd, to, tty, args) })
	return cmd
}

// ttyFlags says whether a program gets a terminal, as the flags have it.
type ttyFlags struct{ wanted, refused bool }

// terminal decides: without a flag the program gets what we have. What is drawn on a terminal is not rewritten.
func (c ttyFlags) terminal(a *app, rewrite bool) (bool, error) {
	switch {
	case c.wanted && c.refused:
		return false, usagef("--tty and --no-tty contradict each other")
	case c.wanted && rewrite:
		return false, usagef("--tty and --rewrite contradict each other").
			WithHint("leave --rewrite out: rewritten text would not fit where a program on a terminal puts it")
	}
	return c.wanted || !c.refused && !rewrite && isTerminal(a.in) && isTerminal(a.out), nil
}

func (a *app) runExec(ctx context.Context, cmd *cobra.Command, to callFlags, tty ttyFlags, argv []string) error {
	input, err := json.Marshal(map[string][]string{"argv": argv})
	if err != nil {
		return usagef("an argument is not UTF-8").WithHint("a request is JSON, which carries UTF-8 only; pass such bytes on stdin or in a file")
	}
	terminal, err := tty.terminal(a, to.rewrite)
	if err != nil {
		return err
	}
	call, err := to.call(cmd, "exec", input)
	if err != nil {
		return err
	}
	return a.withClient(func(c *client.Client) error {
		l := a.newLiveCall(c, call)
		l.stdin = callerStdin(a.in)
		if terminal {
			a.attachTerminal(l)
		}
		end, err := l.run(ctx)
		if err != nil {
			return err
		}
		return a.finish(end)
	})
}

// attachTerminal prepares a call whose program gets a terminal: of our size, of our kind, and, where our stdin is one, with our keyboard. With --json nothing of
// what is typed would be seen, so our terminal stays as it is.
func (a *app) attachTerminal(l *liveCall) {
	size := func() dray.TerminalSize { return sizeOf(a.out, a.in, a.err) }
	l.session = &terminalSession{client: l.client, size: size}
	shown := size()
	l.call.TTY = &shown
	if kind := os.Getenv("TERM"); kind != "" && utf8.ValidString(kind) {
		env := map[string]string{"TERM": kind}
		maps.Copy(env, l.call.Env) // the flag goes before
		l.call.Env = env
	}
	if isTerminal(l.stdin) && !a.json {
		l.session.file, _ = l.stdin.(*os.File)
		l.stdin = nil
	}
}

// newLiveCall prepares a call. With --json the output is not shown: it stands in the record.
func (a *app) newLiveCall(c *client.Client, call client.Call) *liveCall {
	l := &liveCall{client: c, call: call, stdout: a.out, stderr: a.err, progress: newProgress(a.err, progressPatience)}
	if a.json {
		l.stdout, l.stderr = io.Discard, io.Discard
	}
	return l
}
