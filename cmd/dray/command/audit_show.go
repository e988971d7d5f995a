package command

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditShow(a *app) *cobra.Command {
	var stream string
	var raw bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one call in full, or what it printed",
		Long: `show prints what the trail says of one call. With --output it prints instead
what is kept of the call's stdout or stderr, byte for byte, also while the call
runs; on a terminal control codes are shown as escapes. Where the paths in it
were rewritten that is the rewritten text, and with --raw what the tool printed.`,
		Example: `  dray audit show 01980f2e-5b1c-7c3a-9d2e-0123456789ab
  dray audit show 01980f2e-5b1c-7c3a-9d2e-0123456789ab --output stdout >log`,
		Args: exactArgs(1, "the id of a call", "dray audit list shows them"),
	}
	a.jsonFlag(cmd)
	cmd.Flags().StringVar(&stream, "output", "", "print the kept `stream`: stdout or stderr")
	cmd.Flags().BoolVar(&raw, "raw", false, "with --output, print it with the paths that the tool printed")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		switch {
		case raw && stream == "":
			return usagef("--raw is about --output").WithHint("write --output stdout --raw")
		case stream == "":
			return a.withClient(func(c *client.Client) error { return a.runAuditShow(ctx, c, args[0]) })
		case a.json:
			return usagef("--output and --json exclude each other").WithHint("leave one of them out")
		case stream != "stdout" && stream != "stderr":
			return usagef("--output is %q", stream).WithHint("write stdout or stderr")
		}
		text := client.TextAuto
		if raw {
			text = client.TextRaw
		}
		return a.withClient(func(c *client.Client) error { return a.runAuditOutput(ctx, c, args[0], stream, text) })
	})
	return cmd
}

func (a *app) runAuditShow(ctx context.Context, c *client.Client, id string) error {
	reply, err := c.Invocation(ctx, id)
	if err != nil && dray.CodeOf(err) == dray.CodeNotFound {
		return dray.AsError(err).WithHint("dray audit list shows the calls that there are")
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(reply.JSON)
	}
	return writeSections(a.out, recordSections(reply.Value))
}

// runAuditOutput copies what is kept of a stream.
func (a *app) runAuditOutput(ctx context.Context, c *client.Client, id, stream, text string) error {
	kept, err := c.Output(ctx, id, stream, text)
	if err != nil {
		return err
	}
	defer kept.Close()
	if !isTerminal(a.out) {
		_, err := io.Copy(a.out, kept)
		return outputError(err)
	}
	return copySafely(a.out, kept)
}

// copySafely copies text line by line, so that none of it acts on a terminal.
func copySafely(to io.Writer, from io.Reader) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadSlice('\n') // one that is longer comes in parts
		if _, err := io.WriteString(to, escapeText(string(line))); err != nil {
			return outputError(err)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
