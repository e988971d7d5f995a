package command

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

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
	return pagedList[client.ChangedFile]{
		flags: []filterFlag{
			{"plan", "plan_id", "only files changed by calls of this plan `id`", nil},
			{"call", "invocation", "only files changed by the call with this `id` or beginning", nil},
			{"path", "path", "only the file with this absolute `path`", nil},
		},
		list:  client.ChangedFiles,
		head:  []string{"TIME", "CALL", "ACTION", "BEFORE", "AFTER", "WHERE", "PATH"},
		spare: []string{"BEFORE", "AFTER", "WHERE"},
		row: func(t *table, f client.ChangedFile) {
			t.add(a.timeCell(f.At), a.idCell(f.Invocation), string(f.Action), hashCell(f.SHA256Before),
				hashCell(f.SHA256After), string(f.Environment), f.Path)
		},
	}.complete(a, cmd)
}

// shortHash returns the part of a digest that people compare.
func shortHash(digest string) string { return digest[:min(len(digest), 12)] }

// hashCell is shortHash for a table cell, which must not be empty.
func hashCell(digest string) string { return cmp.Or(shortHash(digest), "-") }
