package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAudit(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read the trail of calls"}
	cmd.AddCommand(newAuditList(a), newAuditShow(a), newAuditFiles(a))
	return group(cmd)
}

// changeFilters are the flags of audit files by the parameters of the HTTP interface that they set.
var changeFilters = []struct{ flag, parameter, usage string }{
	{"plan", "plan_id", "only files that calls of this plan `id` changed"},
	{"call", "invocation", "only files that the call of this `id` changed"},
	{"path", "path", "only the file of this absolute `path`"},
	{"cursor", "cursor", "go on where the page before ended: its next_cursor"},
}

func newAuditFiles(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "files",
		Short: "List the files that dray changed, newest first",
		Long: `files lists what file tools and syncs did to files, on the host and in
containers, with the SHA-256 before and after. What other tools change is not
known to dray.`,
		Example: "  dray audit files --plan nightly\n  dray audit files --path /home/me/src/app/go.mod --json",
		Args:    noArgs,
	}
	for _, f := range changeFilters {
		cmd.Flags().String(f.flag, "", f.usage)
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this `number` of files, 1 to 1000")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		if limit < 1 || limit > 1000 {
			return usagef("--limit %d is not between 1 and 1000", limit)
		}
		filters := url.Values{"limit": {strconv.Itoa(limit)}}
		for _, f := range changeFilters {
			if value := cmd.Flags().Lookup(f.flag).Value.String(); value != "" {
				filters.Set(f.parameter, value)
			}
		}
		return a.withClient(func(c *client.Client) error { return a.runAuditFiles(ctx, c, filters) })
	})
	return cmd
}

func (a *app) runAuditFiles(ctx context.Context, c *client.Client, filters url.Values) error {
	page, err := c.ChangedFiles(ctx, filters)
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(page.JSON)
	}
	t := table{head: []string{"TIME", "CALL", "ACTION", "BEFORE", "AFTER", "WHERE", "PATH"}}
	for _, f := range page.Value.Items {
		t.add(localTime(f.At), f.Invocation, string(f.Action), orDash(shortHash(f.SHA256Before)),
			orDash(shortHash(f.SHA256After)), string(f.Environment), f.Path)
	}
	if err := t.write(a.out); err != nil {
		return err
	}
	if page.Value.NextCursor != "" {
		fmt.Fprintf(a.err, "there is more: --cursor %s\n", escapeLine(page.Value.NextCursor))
	}
	return nil
}

// shortHash is as much of a digest as people compare.
func shortHash(digest string) string { return digest[:min(len(digest), 12)] }

// orDash fills a cell, so that columns can be cut.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// auditFilters are the flags of audit list by the parameters of the HTTP interface that they set.
var auditFilters = []struct{ flag, parameter, usage string }{
	{"tool", "tool", "only calls of this `tool`"},
	{"status", "status", "only calls of this `status`: queued, running, succeeded, failed"},
	{"reason", "reason", "only calls that ended for this `reason`: exited, timeout, cancelled, denied, ..."},
	{"environment", "environment", "only calls that ran there: `host` or container"},
	{"container", "container", "only calls in this `container`"},
	{"plan", "plan_id", "only calls of this plan `id`"},
	{"since", "since", "only calls since this `time`: RFC 3339, or a duration such as 2h before now"},
	{"until", "until", "only calls until this `time`"},
	{"q", "q", "only calls whose text has these `words`"},
	{"cursor", "cursor", "go on where the page before ended: its next_cursor"},
}

func newAuditList(a *app) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List calls, newest first",
		Example: "  dray audit list --limit 5\n  dray audit list --status failed --since 24h\n  dray audit list --tool exec --json",
		Args:    noArgs,
	}
	for _, f := range auditFilters {
		cmd.Flags().String(f.flag, "", f.usage)
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this `number` of calls, 1 to 1000")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		filters, err := auditQuery(cmd, limit)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runAuditList(ctx, c, filters) })
	})
	return cmd
}

// auditQuery makes the parameters of the flags that were given.
func auditQuery(cmd *cobra.Command, limit int) (url.Values, error) {
	if limit < 1 || limit > 1000 {
		return nil, usagef("--limit %d is not between 1 and 1000", limit)
	}
	filters := url.Values{"limit": {strconv.Itoa(limit)}}
	for _, f := range auditFilters {
		flag := cmd.Flags().Lookup(f.flag)
		if !flag.Changed {
			continue
		}
		value := flag.Value.String()
		if f.flag == "since" || f.flag == "until" {
			var err error
			if value, err = parseTime(f.flag, value); err != nil {
				return nil, err
			}
		}
		filters.Set(f.parameter, value)
	}
	return filters, nil
}

func (a *app) runAuditList(ctx context.Context, c *client.Client, filters url.Values) error {
	page, err := c.Invocations(ctx, filters)
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(page.JSON)
	}
	t := table{head: []string{"TIME", "ID", "TOOL", "WHERE", "END", "MS"}}
	for _, rec := range page.Value.Items {
		t.add(localTime(rec.StartedAt), rec.ID, rec.Tool, where(rec), endOf(rec), milliseconds(rec))
	}
	if err := t.write(a.out); err != nil {
		return err
	}
	if page.Value.NextCursor != "" {
		fmt.Fprintf(a.err, "there is more: --cursor %s\n", escapeLine(page.Value.NextCursor))
	}
	return nil
}

// where is the place of a call: host, or the container by the name that people know it by.
func where(rec dray.Record) string {
	switch m := rec.Metadata.Container; {
	case m != nil && m.Name != "":
		return m.Name
	case rec.Route.Container != "":
		return rec.Route.Container
	default:
		return string(rec.Route.Environment)
	}
}

// endOf says in a word how a call ended.
func endOf(rec dray.Record) string {
	switch {
	case rec.Reason == "":
		return string(rec.Status)
	case rec.Reason == dray.ReasonExited && rec.ExitCode != nil && rec.Status == dray.StatusSucceeded:
		return string(rec.Status)
	case rec.Reason == dray.ReasonExited && rec.ExitCode != nil && *rec.ExitCode != 0:
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
	cmd.Flags().BoolVar(&raw, "raw", false,
		"with --output, print it with the paths that the tool printed")
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
