package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditPrune(a *app) *cobra.Command {
	var before, keep string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove old calls from the audit log",
		Long: `prune removes the records of calls that ended before a time, and other events from
before that time, with their captured output, inputs and files. What stays of an event
is its number, kind, time, call and hashes, so that the rest of the log can still be
verified.
Without --before and --keep, audit.keep decides. The daemon does the same every hour
if audit.keep is set.

The oldest records are removed first, up to the first call that still runs or ended
later. Removed calls do not count towards budgets of plans. The file does not become
smaller: new records use the space. Only root and the daemon's user may prune.`,
		Example: "  dray audit prune --keep 90d --dry-run\n  dray audit prune --before 2026-01-01",
		Args:    noArgs,
	}
	a.jsonFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&before, "before", "", "remove calls that ended before this `time`: YYYY-MM-DD"+
		"[THH:MM:SS], in local time or with an offset")
	flags.StringVar(&keep, "keep", "", "remove calls that ended longer ago than this `duration`, "+
		"such as 36h or 90d")
	flags.BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	cmd.MarkFlagsMutuallyExclusive("before", "keep")
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		req := client.Prune{DryRun: dryRun}
		var err error
		if req.Before, err = a.pruneTime(before, keep); err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error {
			p := newProgress(a.err, progressDelay)
			reply, err := c.Prune(ctx, req, p.note)
			p.clear()
			if req.Before.IsZero() && dray.CodeOf(err) == dray.CodeInvalidRequest {
				err = dray.AsError(err).WithHint("use --keep or --before, or set audit.keep")
			}
			return printReply(a, reply, err, func(p client.Pruned) error {
				return a.printPruned(p, dryRun)
			})
		})
	})
	return cmd
}

// pruneTime returns the time that a flag names, zero if there is none.
func (a *app) pruneTime(before, keep string) (time.Time, error) {
	switch {
	case before != "":
		return a.parseTime("before", before)
	case keep == "":
		return time.Time{}, nil
	}
	ago, ok := parseAgo(keep)
	if !ok || keep == "0" { // in other programs 0 is "for ever"; here it would remove everything
		return time.Time{}, usagef("invalid duration %q for --keep", keep).
			WithHint("use a duration such as 36h or 90d")
	}
	return time.Now().Add(-ago), nil
}

func (a *app) printPruned(p client.Pruned, dryRun bool) error {
	done := "removed"
	if dryRun {
		done = "would be removed"
	}
	text := fmt.Sprintf("before %s: %d calls, %d events with %d bytes %s\n",
		localTime(p.Before), p.Calls, p.Events, p.Bytes, done)
	if !dryRun {
		text += fmt.Sprintf("%d files with %d bytes removed\n", p.Files, p.FileBytes)
	}
	if p.HeldBy != "" {
		text += fmt.Sprintf("stopped at call %s, which has not ended before that time\n",
			escapeLine(p.HeldBy))
	}
	_, err := fmt.Fprint(a.out, text)
	return outputError(err)
}
