package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

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
	cmd.RunE = a.run(func(ctx context.Context, args []string) error { return a.runCall(ctx, cmd, to, args[0], input) })
	return cmd
}

func (a *app) runCall(ctx context.Context, cmd *cobra.Command, to callFlags, tool, input string) error {
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

// hasNoStructuredOutput says of a tool that it never has a structured output, so that what it prints is its result.
func hasNoStructuredOutput(tool string) bool { return slices.Contains([]string{"exec", "shell"}, tool) }

// printOutput prints the output of a tool, in the caller's paths, or else what it has printed itself.
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

// checkInput refuses what could not be embedded in a request. Whether it fits the tool is for the daemon to say.
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

// deferredWriter keeps what is written until it is known whether it is wanted. Beyond the limit it passes everything on.
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
