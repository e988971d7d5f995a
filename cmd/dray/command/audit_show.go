package command

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditShow(a *app) *cobra.Command {
	var stream string
	var raw bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show the record of a call, or its output",
		Long: `show prints the record of one call, by its id or the beginning of it, of at least
8 characters. With --output it prints the captured stdout or
stderr of the call instead, byte for byte, also while the call runs. On a terminal,
control codes are shown as escapes. If paths in the output were rewritten, it prints
the rewritten text; with --raw it prints the original text.`,
		Example: `  dray audit show 01980f2e-5b1c-7c3a-9d2e-0123456789ab
  dray audit show 01980f2e-5b1c-7c3a-9d2e-0123456789ab --output stdout >log`,
		Args: oneArg("the id of a call", "run dray audit list to find it"),
	}
	a.jsonFlag(cmd)
	a.utcFlag(cmd)
	cmd.Flags().StringVar(&stream, "output", "", "print the captured `stream`: stdout or stderr")
	cmd.Flags().BoolVar(&raw, "raw", false,
		"with --output, print the text before paths were rewritten")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		switch {
		case raw && stream == "":
			return usagef("--raw requires --output").WithHint("use --output stdout --raw")
		case stream == "":
			return a.withClient(func(c *client.Client) error { return a.runAuditShow(ctx, c, args[0]) })
		case a.json:
			return usagef("--output and --json exclude each other").WithHint("omit one of them")
		case stream != "stdout" && stream != "stderr":
			return usagef("invalid value %q for --output", stream).WithHint("use stdout or stderr")
		}
		text := client.TextAuto
		if raw {
			text = client.TextRaw
		}
		return a.withClient(func(c *client.Client) error {
			return a.runAuditOutput(ctx, c, args[0], stream, text)
		})
	})
	return cmd
}

func (a *app) runAuditShow(ctx context.Context, c *client.Client, id string) error {
	id, err := fullID(ctx, c, id)
	if err != nil {
		return err
	}
	reply, err := c.Invocation(ctx, id)
	return printReply(a, reply, withListHint(err), func(rec dray.Record) error {
		return writeSections(a.out, recordSections(rec, a.zone()))
	})
}

// withListHint replaces the hint of not_found for users of the command line.
func withListHint(err error) error {
	if dray.CodeOf(err) == dray.CodeNotFound {
		return dray.AsError(err).WithHint("run dray audit list to find the id")
	}
	return err
}

// The length of an id, and the shortest beginning of one that stands for it.
const idLength, minIDPrefix = 36, 8

// fullID returns the id of the one call whose id begins with text.
func fullID(ctx context.Context, c *client.Client, text string) (string, error) {
	switch {
	case len(text) >= idLength, strings.Trim(text, "0123456789abcdef-") != "":
		return text, nil // a complete id, or a text that the daemon reports as unknown
	case len(text) < minIDPrefix:
		return "", usagef("%q is too short for the beginning of an id", text).
			WithHint("give at least %d characters: the calls of a minute have the same first ones",
				minIDPrefix)
	}
	page, err := c.Invocations(ctx, url.Values{"id": {text}, "limit": {"10"}})
	if err != nil {
		return "", err
	}
	var ids []string
	for _, rec := range page.Items {
		ids = append(ids, rec.ID)
	}
	switch len(ids) {
	case 0:
		return text, nil
	case 1:
		return ids[0], nil
	default:
		return "", usagef("%q is the beginning of several ids: %s", text, strings.Join(ids, ", ")).
			WithHint("give more of the id")
	}
}

// runAuditOutput prints the captured output of a stream.
func (a *app) runAuditOutput(ctx context.Context, c *client.Client, id, stream, text string) error {
	id, err := fullID(ctx, c, id)
	if err != nil {
		return err
	}
	output, err := c.Output(ctx, id, stream, text)
	if err != nil {
		return err
	}
	defer output.Close()
	if isTerminal(a.out) {
		return copyEscaped(a.out, output)
	}
	_, err = io.Copy(a.out, output)
	return outputError(err)
}

// copyEscaped copies text line by line with escapeText.
func copyEscaped(to io.Writer, from io.Reader) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadSlice('\n') // a longer line arrives in parts
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
