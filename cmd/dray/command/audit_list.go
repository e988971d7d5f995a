package command

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

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
