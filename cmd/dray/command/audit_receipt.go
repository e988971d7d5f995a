package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newAuditReceipt(a *app) *cobra.Command {
	var out string
	var noBody bool
	cmd := &cobra.Command{
		Use:   "receipt ID",
		Short: "Get a receipt of a call, which proves what the audit log has of it",
		Long: `receipt prints the events of a call with the proof that the audit log includes them.
ID may be the beginning of an id, of at least 8 characters.
dray audit verify --receipt checks it on any machine with the public key alone; see
dray audit checkpoint --key. Keep the file as it is: every byte counts.`,
		Example: `  dray audit receipt 01980f2e-5b1c-7c3a-9d2e-0123456789ab --out call.receipt`,
		Args:    oneArg("the id of a call", "run dray audit list to find it"),
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this `file`")
	cmd.Flags().BoolVar(&noBody, "no-body", false,
		"only the hashes of the bodies of events: a proof without input and output")
	a.jsonFlag(cmd) // a receipt is JSON in any case
	cmd.MarkFlagsMutuallyExclusive("json", "out")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.withClient(func(c *client.Client) error {
			id, err := fullID(ctx, c, args[0])
			if err != nil {
				return err
			}
			receipt, err := c.Receipt(ctx, id, !noBody)
			if err != nil {
				return withListHint(err)
			}
			return a.writeOut(out, receipt)
		})
	})
	return cmd
}
