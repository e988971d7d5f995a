package command

import (
	"cmp"
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditStats(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count calls and their failures, durations and bytes",
		Long: `stats groups calls by tool, container, workspace, principal or reason, and prints for
each group the number of calls, how many failed, the median and the 99th percentile
of their durations, and the bytes of their output.`,
		Example: "  dray audit stats --by tool --since 24h\n" +
			"  dray audit stats --by workspace --reason timeout --since 7d --json",
		Args: noArgs,
	}
	filters := a.filterFlags(cmd, append(
		[]filterFlag{{"by", "by", "group by `key`: tool, container, workspace, principal, reason", nil}},
		callFilters...))
	a.jsonFlag(cmd)
	a.utcFlag(cmd)
	cmd.Flags().Lookup("by").DefValue = "tool"
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		query, err := filters()
		if err != nil {
			return err
		}
		if !query.Has("by") {
			query.Set("by", "tool")
		}
		return a.withClient(func(c *client.Client) error {
			stats, err := c.AuditStats(ctx, query)
			return printReply(a, stats, err, a.printStats)
		})
	})
	return cmd
}

func (a *app) printStats(stats client.Page[dray.Stat]) error {
	t := a.table("CALLS", "FAILED", "RATE", "P50 MS", "P99 MS", "BYTES", "KEY")
	for _, s := range stats.Items {
		rate := strconv.FormatFloat(100*float64(s.Failed)/float64(s.Calls), 'f', 1, 64) + "%"
		t.add(strconv.FormatInt(s.Calls, 10), strconv.FormatInt(s.Failed, 10), rate,
			cmp.Or(milliseconds(s.P50MS), "-"), cmp.Or(milliseconds(s.P99MS), "-"),
			strconv.FormatInt(s.Bytes, 10), cmp.Or(s.Key, "-"))
	}
	return t.write(a.out)
}
