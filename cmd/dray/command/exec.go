package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
				return usagef("there is no program to run").
					WithHint("write it behind --, for instance: dray exec -- go test ./...")
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
	cmd.Flags().BoolVarP(&tty.wanted, "tty", "t", false,
		"give the program a terminal, whatever stdin and stdout are")
	cmd.Flags().BoolVarP(&tty.refused, "no-tty", "T", false, "give it three pipes, whatever they are")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context,
		args []string,
	) error {
		return a.runExec(ctx, cmd, to, tty, args)
	})
	return cmd
}

// ttyFlags says whether a program gets a terminal, as the flags have it.
type ttyFlags struct{ wanted, refused bool }

// terminal decides: without a flag the program gets what we have. What is drawn on a terminal is
// not rewritten.
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

func (a *app) runExec(ctx context.Context, cmd *cobra.Command, to callFlags, tty ttyFlags,
	argv []string,
) error {
	input, err := json.Marshal(map[string][]string{"argv": argv})
	if err != nil {
		return usagef("an argument is not UTF-8").
			WithHint("a request is JSON, which carries UTF-8 only; pass such bytes on stdin or in a file")
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

// attachTerminal prepares a call whose program gets a terminal: of our size, of our kind, and,
// where our stdin is one, with our keyboard. With --json nothing of what is typed would be seen, so
// our terminal stays as it is.
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
	l := &liveCall{
		client: c, call: call, stdout: a.out, stderr: a.err,
		progress: newProgress(a.err, progressPatience),
	}
	if a.json {
		l.stdout, l.stderr = io.Discard, io.Discard
	}
	return l
}

// finish says what has to be said of a call that ended, and ends the command with its exit code.
func (a *app) finish(end callResult) error {
	code := recordExitCode(end.record)
	if a.json {
		if err := a.printRaw(end.json); err != nil {
			return err
		}
	} else {
		a.printEndReason(end.record)
		a.printOutputs(end.record)
	}
	if code == exitOK {
		return nil
	}
	return exitError(code)
}

// printEndReason tells what the tool's own output does not: nothing of an exit or a signal, which
// speak by their codes.
func (a *app) printEndReason(rec dray.Record) {
	a.warn(rec.Metadata.Warnings)
	switch {
	case rec.Error != nil && rec.Error.Code != "":
		a.printError(rec.Error)
	case rec.Reason == dray.ReasonTimeout:
		a.printError((&dray.Error{Message: messageOrDefault(rec, "the call timed out")}).
			WithHint("give it more time with --timeout, at most limits.max_timeout"))
	case rec.Reason == dray.ReasonIdleTimeout:
		a.printError((&dray.Error{Message: messageOrDefault(rec,
			"the tool printed nothing for too long")}).
			WithHint("limits.idle_timeout says how long a tool may be silent"))
	case rec.Reason == dray.ReasonCancelled:
		a.printError(&dray.Error{Message: messageOrDefault(rec, "the call was cancelled")})
	case rec.Reason != dray.ReasonExited && rec.Reason != dray.ReasonSignalled:
		fmt.Fprintf(a.err, "dray: the call ended: %s\n", escapeLine(string(rec.Reason)))
	}
}

// messageOrDefault is what the daemon says of the end, such as which timeout was meant or that the
// daemon ended; else what the reason alone says.
func messageOrDefault(rec dray.Record, otherwise string) string {
	if rec.Error == nil || rec.Error.Message == "" {
		return otherwise
	}
	return rec.Error.Message
}

// warn shows warnings to people. A program that reads stderr wants the tool's bytes alone; it finds
// the warnings in the record.
func (a *app) warn(warnings []string) {
	if !isTerminal(a.err) {
		return
	}
	for _, w := range warnings {
		fmt.Fprintln(a.err, "dray: warning: "+escapeLine(w))
	}
}

// formatMillis writes a span of time, to be read by people.
func formatMillis(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond).String()
}

// duration is how long a call took, to be read by people.
func duration(rec dray.Record) string {
	if rec.DurationMS == nil {
		return "an unknown time"
	}
	return formatMillis(*rec.DurationMS)
}

// maxInput is the longest input of a tool (EX-03), in bytes.
const maxInput = 64 << 20

func newCall(a *app) *cobra.Command {
	var to callFlags
	var input string
	cmd := &cobra.Command{
		Use:   "call TOOL [flags]",
		Short: "Call a tool and print its result",
		Long: `call gives a tool its input, a JSON object, and prints its structured output as
JSON or, where it has none, what it printed. stderr is shown live, and so is
stdout of exec and shell.

` + exitHelp,
		Example:     "  dray call read_file --input '{\"path\": \"README.md\"}'\n  dray call shell --input '{\"command\": \"ls | wc -l\"}'\n  dray call lint --input - < input.json",
		Args:        exactArgs(1, "the name of one tool", "dray tools lists them"),
		Annotations: map[string]string{toolExitCodes: "yes"},
	}
	to.flags(cmd)
	to.timeoutFlag(cmd)
	to.leftoversFlag(cmd)
	to.rewriteFlags(cmd)
	to.syncFlag(cmd)
	cmd.Flags().StringVarP(&input, "input", "i", "{}", "the input, a `JSON` object (- reads it from stdin)")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context,
		args []string,
	) error {
		return a.runCall(ctx, cmd, to, args[0], input)
	})
	return cmd
}

func (a *app) runCall(ctx context.Context, cmd *cobra.Command, to callFlags, tool,
	input string,
) error {
	value, err := a.readInput(input)
	if err != nil {
		return err
	}
	call, err := to.call(cmd, tool, value)
	if err != nil {
		return err
	}
	return a.withClient(func(c *client.Client) error {
		l := a.newLiveCall(c, call)
		held := &deferredWriter{w: l.stdout, limit: maxInput}
		if !hasNoStructuredOutput(tool) {
			l.stdout = held
		}
		end, err := l.run(ctx)
		if err != nil {
			return err
		}
		if err := a.printOutput(end.record, held); err != nil {
			return err
		}
		return a.finish(end)
	})
}

// hasNoStructuredOutput says of a tool that it never has a structured output, so that what it
// prints is its result.
func hasNoStructuredOutput(tool string) bool {
	return slices.Contains([]string{"exec", "shell"},
		tool)
}

// printOutput prints the output of a tool, in the caller's paths, or else what it has printed
// itself.
func (a *app) printOutput(rec dray.Record, held *deferredWriter) error {
	switch {
	case a.json:
		return nil
	case len(rec.Output) > 0 && string(rec.Output) != "null" && !held.passing:
		return a.printRaw(rec.Output)
	default:
		return held.flush()
	}
}

// readInput gives the input from the flag or from stdin.
func (a *app) readInput(input string) (jsontext.Value, error) {
	value := jsontext.Value(input)
	if input == "-" {
		read, err := io.ReadAll(io.LimitReader(a.in, maxInput+1))
		if err != nil {
			return nil, fmt.Errorf("reading the input from stdin: %w", err)
		}
		value = read
	}
	return value, checkInput(value)
}

// checkInput refuses what could not be embedded in a request. Whether it fits the tool is for the
// daemon to say.
func checkInput(value jsontext.Value) error {
	if len(value) > maxInput {
		return dray.Errorf(dray.CodeTooLarge, "the input is longer than %d MiB", maxInput>>20)
	}
	if !value.IsValid() {
		return dray.Errorf(dray.CodeInvalidInput, "the input is not one JSON value").
			WithHint("it has to be an object in quotes of the shell, for instance --input '{\"path\": \"README.md\"}'")
	}
	return nil
}

// deferredWriter keeps what is written until it is known whether it is wanted. Beyond the limit it
// passes everything on.
type deferredWriter struct {
	w       io.Writer
	limit   int
	held    bytes.Buffer
	passing bool
}

func (h *deferredWriter) Write(p []byte) (int, error) {
	if h.passing {
		return h.w.Write(p)
	}
	h.held.Write(p)
	if h.held.Len() <= h.limit {
		return len(p), nil
	}
	return len(p), h.flush()
}

// flush gives out what is held, and all that follows at once.
func (h *deferredWriter) flush() error {
	h.passing = true
	_, err := h.held.WriteTo(h.w)
	return outputError(err)
}
