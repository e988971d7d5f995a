package command

import (
	"context"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newExec(a *app) *cobra.Command {
	var to target
	cmd := &cobra.Command{
		Use:   "exec [flags] -- ARGV...",
		Short: "Run a program and show its output live",
		Long: `exec runs a program where the routing rules say: in the devcontainer of the
workspace that the current folder lies in, else as configured. Its arguments,
stdin, stdout and stderr pass byte for byte, and its exit code is ours.
Ctrl-C cancels the call; a second one leaves at once.

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
		Annotations: map[string]string{exitsLikeTool: "yes"},
	}
	cmd.Flags().SetInterspersed(false) // what follows the program belongs to it
	to.flags(cmd)
	to.timeoutFlag(cmd)
	to.leftoversFlag(cmd)
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error { return a.runExec(ctx, cmd, to, args) })
	return cmd
}

func (a *app) runExec(ctx context.Context, cmd *cobra.Command, to target, argv []string) error {
	input, err := json.Marshal(map[string][]string{"argv": argv})
	if err != nil {
		return usagef("an argument is not UTF-8").WithHint("a request is JSON, which carries UTF-8 only; pass such bytes on stdin or in a file")
	}
	call, err := to.call(cmd, "exec", input)
	if err != nil {
		return err
	}
	return a.with(func(c *client.Client) error {
		l := a.live(c, call)
		l.stdin = callerStdin(a.in)
		end, err := l.run(ctx)
		if err != nil {
			return err
		}
		return a.finish(end)
	})
}

// live prepares a call. With --json the output is not shown: it stands in the record.
func (a *app) live(c *client.Client, call client.Call) *live {
	l := &live{client: c, call: call, stdout: a.out, stderr: a.err, progress: newProgress(a.err, progressPatience)}
	if a.json {
		l.stdout, l.stderr = io.Discard, io.Discard
	}
	return l
}
