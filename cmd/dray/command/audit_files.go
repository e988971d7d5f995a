package command

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

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
		t.add(localTime(f.At), f.Invocation, string(f.Action), orDash(shortHash(f.SHA256Before)), orDash(shortHash(f.SHA256After)), string(f.Environment), f.Path)
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
