package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAudit(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Query the audit log"}
	cmd.AddCommand(newAuditList(a), newAuditShow(a), newAuditFiles(a))
	return group(cmd)
}

// filterFlag is a flag of a list command and the query parameter that it sets.
type filterFlag struct{ flag, parameter, usage string }

var cursorFlag = filterFlag{"cursor", "cursor", "continue after the given `next_cursor`"}

// pagedList makes a command list what fetch returns for the values of its flags. show writes the
// table of a page.
func pagedList[T any](a *app, cmd *cobra.Command, what string, flags []filterFlag,
	fetch func(*client.Client, context.Context, url.Values) (client.Reply[client.Page[T]], error),
	show func(client.Page[T]) error,
) *cobra.Command {
	query := filterFlags(cmd, what, flags)
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		filters, err := query()
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			page, err := fetch(c, ctx, filters)
			return printReply(a, page, err, show)
		})
	})
	return cmd
}

// filterFlags adds the flags of a list, and returns a function that turns them into query
// parameters.
func filterFlags(cmd *cobra.Command, what string, flags []filterFlag) func() (url.Values, error) {
	for _, f := range flags {
		cmd.Flags().String(f.flag, "", f.usage)
	}
	limit := cmd.Flags().Int("limit", 50, "maximum `number` of "+what+", 1 to 1000")
	return func() (url.Values, error) {
		if *limit < 1 || *limit > 1000 {
			return nil, usagef("--limit %d is not between 1 and 1000", *limit)
		}
		query := url.Values{"limit": {strconv.Itoa(*limit)}}
		for _, f := range flags {
			if cmd.Flags().Changed(f.flag) {
				query.Set(f.parameter, cmd.Flags().Lookup(f.flag).Value.String())
			}
		}
		if label := query.Get("label"); label != "" {
			name, value, ok := strings.Cut(label, "=")
			if !ok || name == "" {
				return nil, usagef("invalid value %q for --label", label).WithHint("use the form K=V")
			}
			query.Set("label", name+":"+value)
		}
		for _, name := range []string{"since", "until"} {
			if !query.Has(name) {
				continue
			}
			at, err := parseTime(name, query.Get(name))
			if err != nil {
				return nil, err
			}
			query.Set(name, at)
		}
		return query, nil
	}
}

// printPage prints one page of a list, and on stderr how to get the next one.
func (a *app) printPage(t table, nextCursor string) error {
	if err := t.write(a.out); err != nil {
		return err
	}
	if nextCursor != "" {
		fmt.Fprintf(a.err, "more results: --cursor %s\n", escapeLine(nextCursor))
	}
	return nil
}

func newAuditFiles(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "files",
		Short: "List the files changed by dray, newest first",
		Long: `files lists the files that file tools and syncs changed, on the host and in
containers, with their SHA-256 before and after. Changes made by other tools are
not recorded.`,
		Example: "  dray audit files --plan nightly\n" +
			"  dray audit files --path /home/me/src/app/go.mod --json",
		Args: noArgs,
	}
	return pagedList(a, cmd, "files", []filterFlag{
		{"plan", "plan_id", "only files changed by calls of this plan `id`"},
		{"call", "invocation", "only files changed by the call with this `id`"},
		{"path", "path", "only the file with this absolute `path`"},
		cursorFlag,
	}, (*client.Client).ChangedFiles, a.printChangedFiles)
}

func (a *app) printChangedFiles(page client.Page[client.ChangedFile]) error {
	t := table{head: []string{"TIME", "CALL", "ACTION", "BEFORE", "AFTER", "WHERE", "PATH"}}
	for _, f := range page.Items {
		t.add(localTime(f.At), f.Invocation, string(f.Action), hashCell(f.SHA256Before),
			hashCell(f.SHA256After), string(f.Environment), f.Path)
	}
	return a.printPage(t, page.NextCursor)
}

// shortHash returns the part of a digest that people compare.
func shortHash(digest string) string { return digest[:min(len(digest), 12)] }

// hashCell is shortHash for a table cell, which must not be empty.
func hashCell(digest string) string { return cmp.Or(shortHash(digest), "-") }

func newAuditList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List calls, newest first",
		Example: "  dray audit list --limit 5\n  dray audit list --status failed --since 24h\n" +
			"  dray audit list --tool exec --json",
		Args: noArgs,
	}
	return pagedList(a, cmd, "calls", []filterFlag{
		{"tool", "tool", "only calls of this `tool`"},
		{"status", "status", "only calls with this `status`: queued, running, succeeded, failed"},
		{"reason", "reason", "only calls that ended for this `reason`: exited, timeout, cancelled, ..."},
		{"environment", "environment", "only calls that ran in this `kind`: host or container"},
		{"container", "container", "only calls in this `container`"},
		{"plan", "plan_id", "only calls of this plan `id`"},
		{"session", "session_id", "only calls of this session `id`"},
		{"label", "label", "only calls with the label `K=V`"},
		{
			"since", "since", "only calls since this `time`: a duration such as 2h or 1d, or " +
				"YYYY-MM-DD[THH:MM:SS], in local time or with an offset",
		},
		{"until", "until", "only calls until this `time`, as for --since"},
		{"q", "q", "only calls whose text contains these `words`"},
		cursorFlag,
	}, (*client.Client).Invocations, a.printInvocations)
}

func (a *app) printInvocations(page client.Page[dray.Record]) error {
	t := table{head: []string{"TIME", "ID", "TOOL", "WHERE", "END", "MS"}}
	for _, rec := range page.Items {
		t.add(localTime(rec.StartedAt), rec.ID, rec.Tool, where(rec), endOf(rec), milliseconds(rec))
	}
	return a.printPage(t, page.NextCursor)
}

// where returns "host", or the name of the container that a call ran in. If the record has no name,
// because no container was found or the call was interrupted, it returns the workspace.
func where(rec dray.Record) string {
	name, route := "", rec.Route
	if m := rec.Metadata.Container; m != nil {
		name = m.Name
	}
	if route.Environment == dray.KindContainer {
		name = cmp.Or(name, route.Container, route.Workspace)
	}
	return cmp.Or(name, string(route.Environment))
}

// endOf returns how a call ended, in one word or two.
func endOf(rec dray.Record) string {
	exited := rec.Reason == dray.ReasonExited && rec.ExitCode != nil
	switch {
	case rec.Reason == "", exited && rec.Status == dray.StatusSucceeded:
		return string(rec.Status)
	case rec.Reason == dray.ReasonInterrupted:
		return string(rec.Reason)
	case exited && *rec.ExitCode != 0:
		return "exit " + strconv.Itoa(*rec.ExitCode)
	case rec.Reason == dray.ReasonSignalled && rec.Signal != nil:
		return rec.Signal.Name
	case rec.Error != nil && rec.Error.Code != "":
		return string(rec.Error.Code)
	default:
		return string(rec.Reason)
	}
}

func milliseconds(rec dray.Record) string {
	if rec.DurationMS == nil {
		return ""
	}
	return strconv.FormatFloat(*rec.DurationMS, 'f', 1, 64)
}

func newAuditShow(a *app) *cobra.Command {
	var stream string
	var raw bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show the record of a call, or its output",
		Long: `show prints the record of one call. With --output it prints the captured stdout or
stderr of the call instead, byte for byte, also while the call runs. On a terminal,
control codes are shown as escapes. If paths in the output were rewritten, it prints
the rewritten text; with --raw it prints the original text.`,
		Example: `  dray audit show 01980f2e-5b1c-7c3a-9d2e-0123456789ab
  dray audit show 01980f2e-5b1c-7c3a-9d2e-0123456789ab --output stdout >log`,
		Args: oneArg("the id of a call", "run dray audit list to find it"),
	}
	a.jsonFlag(cmd)
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
	reply, err := c.Invocation(ctx, id)
	if dray.CodeOf(err) == dray.CodeNotFound {
		err = dray.AsError(err).WithHint("run dray audit list to find the id")
	}
	return printReply(a, reply, err, func(rec dray.Record) error {
		return writeSections(a.out, recordSections(rec))
	})
}

// runAuditOutput prints the captured output of a stream.
func (a *app) runAuditOutput(ctx context.Context, c *client.Client, id, stream, text string) error {
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
