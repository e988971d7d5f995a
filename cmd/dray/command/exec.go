package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newExec(a *app) *cobra.Command {
	var flags callFlags
	var tty ttyFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] -- ARGV...",
		Short: "Run a program and stream its output",
		Long: `exec runs a program in the environment chosen by the routing rules: the devcontainer
of the workspace that contains the current directory, else as configured. Arguments,
stdin, stdout and stderr are passed byte for byte, and exec exits with the program's
exit code. Ctrl-C cancels the call; a second Ctrl-C exits at once.

If stdin and stdout are terminals, the program gets a terminal too, for instance for
a shell or an editor. Then stdout and stderr are one stream, and the program receives
Ctrl-C and Ctrl-Z. Ctrl-] three times within a second cancels the call. With --rewrite
the program gets no terminal: output drawn on a terminal is not rewritten.

With --session the program runs as a command of that session's shell: in the working
directory and with the exported variables that the one before left, and cd and export
work. Programs of one session run one after the other. $DRAY_SESSION_ID does not do
that; it is only recorded.

A relative --cwd is resolved against --workspace if that is given, else against the
current directory.

` + exitHelp,
		Example: "  dray exec -- go test ./...\n  dray exec --host -- git status\n" +
			"  dray exec --timeout 5s --env DEBUG=1 -- ./run < input.bin",
		Args:        atLeastOne("program", "dray exec -- go test ./..."),
		Annotations: map[string]string{toolExitCodes: "yes"},
	}
	cmd.Flags().SetInterspersed(false) // flags after the program belong to the program
	flags.add(cmd)
	cmd.Flags().BoolVarP(&tty.wanted, "tty", "t", false, "allocate a terminal")
	cmd.Flags().BoolVarP(&tty.refused, "no-tty", "T", false, "do not allocate a terminal")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, argv []string) error {
		program := map[string]any{"argv": argv}
		if flags.session != "" {
			program["session"] = flags.session
		}
		input, err := json.Marshal(program)
		if err != nil {
			return usagef("an argument is not UTF-8").
				WithHint("requests are JSON: pass such bytes on stdin or in a file")
		}
		rewrites := flags.rewrite || flags.paths == string(dray.PathsOfHost) && !flags.noRewrite &&
			!tty.wanted
		terminal, err := tty.terminal(a, rewrites)
		if err != nil {
			return err
		}
		//nolint:contextcheck // it uses the context of cmd
		call, err := flags.call(cmd, "exec", input)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runExec(ctx, c, call, terminal) })
	})
	return cmd
}

// ttyFlags are the flags --tty and --no-tty.
type ttyFlags struct{ wanted, refused bool }

// terminal reports whether the program gets a terminal: without a flag, if we have one. Output
// drawn on a terminal is not rewritten.
func (t ttyFlags) terminal(a *app, rewrite bool) (bool, error) {
	switch {
	case t.wanted && t.refused:
		return false, usagef("--tty and --no-tty exclude each other")
	case t.wanted && rewrite:
		return false, usagef("--tty and --rewrite exclude each other").
			WithHint("omit --rewrite: rewritten text would break the layout on a terminal")
	}
	return t.wanted || !t.refused && !rewrite && isTerminal(a.in) && isTerminal(a.out), nil
}

func (a *app) runExec(ctx context.Context, c *client.Client, call client.Call,
	terminal bool,
) error {
	l := a.newLiveCall(c, call)
	l.stdin = callerStdin(a.in)
	if terminal {
		a.attachTerminal(l)
	}
	result, err := l.run(ctx)
	if err != nil {
		return err
	}
	return a.finish(result)
}

// attachTerminal gives the program a terminal with our size and TERM. If stdin is a terminal, its
// keyboard goes to the program; not with --json, which does not show the program's output.
func (a *app) attachTerminal(l *liveCall) {
	size := func() dray.TerminalSize { return sizeOf(a.out, a.in, a.err) }
	l.session = &terminalSession{client: l.client, size: size}
	initial := size()
	l.call.TTY = &initial
	if term := os.Getenv("TERM"); term != "" && utf8.ValidString(term) {
		env := map[string]string{"TERM": term}
		maps.Copy(env, l.call.Env) // --env TERM=... takes precedence
		l.call.Env = env
	}
	if isTerminal(l.stdin) && !a.json {
		l.session.file, _ = l.stdin.(*os.File)
		l.stdin = nil
	}
}

// newLiveCall prepares a call. With --json the output is in the record and is not streamed.
func (a *app) newLiveCall(c *client.Client, call client.Call) *liveCall {
	l := &liveCall{
		client: c, call: call, stdout: a.out, stderr: a.err,
		progress: newProgress(a.err, progressDelay),
	}
	if a.json {
		l.stdout, l.stderr = io.Discard, io.Discard
	}
	return l
}

// finish reports how a call ended, and returns the command's exit code as an error.
func (a *app) finish(result callResult) error {
	if a.json {
		if err := a.printRaw(result.json); err != nil {
			return err
		}
	} else {
		a.printEndReason(result.record)
		a.printOutputs(result.record)
	}
	if code := recordExitCode(result.record); code != exitOK {
		return exitError(code)
	}
	return nil
}

// printEndReason reports what the tool's own output and exit code do not show.
func (a *app) printEndReason(rec dray.Record) {
	a.warnOfCall(rec)
	switch {
	case rec.Error != nil && rec.Error.Code != "":
		a.printError(rec.Error)
	case rec.Reason == dray.ReasonTimeout:
		a.printError(endError(rec, "the call timed out").
			WithHint("raise --timeout, at most to limits.max_timeout"))
	case rec.Reason == dray.ReasonIdleTimeout:
		a.printError(endError(rec, "the tool produced no output for too long").
			WithHint("raise limits.idle_timeout"))
	case rec.Reason == dray.ReasonCancelled:
		a.printError(endError(rec, "the call was cancelled"))
	case rec.Reason != dray.ReasonExited && rec.Reason != dray.ReasonSignalled:
		fmt.Fprintf(a.err, "dray: the call ended: %s\n", escapeLine(string(rec.Reason)))
	}
}

// endError returns an error with the daemon's message about the end of a call, else a default one.
func endError(rec dray.Record, message string) *dray.Error {
	if rec.Error != nil && rec.Error.Message != "" {
		message = rec.Error.Message
	}
	return &dray.Error{Message: message}
}

// warnOfCall prints the warnings about a call. That the state of a session was lost is printed
// wherever stderr goes: the next command would run in another directory than its caller believes
// (SS-01).
func (a *app) warnOfCall(rec dray.Record) {
	if s := rec.Metadata.Session; s != nil && s.Lost != "" && !isTerminal(a.err) {
		fmt.Fprintln(a.err, "dray: warning: "+escapeLine("session "+s.Name+": "+s.Lost))
	}
	a.warn(rec.Metadata.Warnings)
}

// warn prints warnings if stderr is a terminal. Elsewhere stderr carries the tool's bytes only; the
// warnings are in the record.
func (a *app) warn(warnings []string) {
	if !isTerminal(a.err) {
		return
	}
	for _, w := range warnings {
		fmt.Fprintln(a.err, "dray: warning: "+escapeLine(w))
	}
}

// maxInput is the maximum size of a tool's input in bytes (EX-03).
const maxInput = 64 << 20

func newCall(a *app) *cobra.Command {
	var flags callFlags
	var input string
	cmd := &cobra.Command{
		Use:   "call TOOL [flags]",
		Short: "Call a tool and print its result",
		Long: `call passes a JSON object to a tool. It prints the tool's structured output as JSON,
or its stdout if it has no structured output. It streams stderr, and stdout of exec
and shell. With --session these two run as commands of that session's shell, as with
dray exec --session; for other tools it is only recorded.

` + exitHelp,
		Example: "  dray call read_file --input '{\"path\": \"README.md\"}'\n" +
			"  dray call shell --input '{\"command\": \"ls | wc -l\"}'\n" +
			"  dray call lint --input - < input.json",
		Args: oneArg("the name of one tool",
			"run dray tools to list them; pass the input as --input JSON"),
		Annotations: map[string]string{toolExitCodes: "yes"},
	}
	flags.add(cmd)
	cmd.Flags().StringVarP(&input, "input", "i", "{}",
		"the input, a `JSON` object; - reads it from stdin")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		value, err := a.readInput(input)
		if err != nil {
			return err
		}
		value = inShellSession(args[0], value, flags.session)
		//nolint:contextcheck // it uses the context of cmd
		call, err := flags.call(cmd, args[0], value)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runCall(ctx, c, call) })
	})
	return cmd
}

// inShellSession adds the session of the flag to the input of exec and shell, as dray exec does,
// unless the input names one itself.
func inShellSession(tool string, input jsontext.Value, session string) jsontext.Value {
	if session == "" || tool != "exec" && tool != "shell" {
		return input
	}
	name, err := json.Marshal(session)
	if err != nil {
		return input // the flags are checked later
	}
	if _, found, err := jsonMember(input, "session"); err != nil || found {
		return input // the daemon says what is wrong with it
	}
	with, err := setJSONMember(input, name, "session")
	if err != nil {
		return input
	}
	return with
}

func (a *app) runCall(ctx context.Context, c *client.Client, call client.Call) error {
	l := a.newLiveCall(c, call)
	stdout := &deferredWriter{w: l.stdout, limit: maxInput}
	if call.Tool != "exec" && call.Tool != "shell" { // these have no structured output
		l.stdout = stdout
	}
	result, err := l.run(ctx)
	if err != nil {
		return err
	}
	if err := a.printOutput(result.record, stdout); err != nil {
		return err
	}
	return a.finish(result)
}

// printOutput prints the structured output of a tool, or else its stdout.
func (a *app) printOutput(rec dray.Record, stdout *deferredWriter) error {
	switch {
	case a.json:
		return nil
	case len(rec.Output) > 0 && string(rec.Output) != "null" && !stdout.passing:
		return a.printRaw(rec.Output)
	default:
		lineEnds := stdout.passing || stdout.buffered.Len() == 0 ||
			bytes.HasSuffix(stdout.buffered.Bytes(), []byte{'\n'})
		if err := stdout.flush(); err != nil || lineEnds || !isTerminal(a.out) {
			return err
		}
		_, err := io.WriteString(a.out, "\n") // so that the prompt begins a line
		return outputError(err)
	}
}

// readInput returns the input given by the flag, or read from stdin.
func (a *app) readInput(input string) (jsontext.Value, error) {
	value := jsontext.Value(input)
	if input == "-" {
		read, err := io.ReadAll(io.LimitReader(a.in, maxInput+1))
		if err != nil {
			return nil, fmt.Errorf("read the input from stdin: %w", err)
		}
		value = read
	}
	return value, checkInput(value)
}

// checkInput returns an error for an input that cannot be part of a request. The daemon validates
// it against the tool's schema.
func checkInput(value jsontext.Value) error {
	if len(value) > maxInput {
		return dray.Errorf(dray.CodeTooLarge, "the input is longer than %d MiB", maxInput>>20)
	}
	if !value.IsValid() {
		return dray.Errorf(dray.CodeInvalidInput, "the input is not a JSON value").
			WithHint(`quote the object for the shell, for example --input '{"path": "README.md"}'`)
	}
	return nil
}

// deferredWriter buffers what is written until flush. It passes everything on once the buffer
// exceeds its limit.
type deferredWriter struct {
	w        io.Writer
	limit    int
	buffered bytes.Buffer
	passing  bool
}

func (d *deferredWriter) Write(p []byte) (int, error) {
	if d.passing {
		return d.w.Write(p)
	}
	d.buffered.Write(p)
	if d.buffered.Len() <= d.limit {
		return len(p), nil
	}
	return len(p), d.flush()
}

// flush writes the buffered bytes; later writes are passed on at once.
func (d *deferredWriter) flush() error {
	d.passing = true
	_, err := d.buffered.WriteTo(d.w)
	return outputError(err)
}
