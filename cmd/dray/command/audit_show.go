package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one call in full",
		Example: "  dray audit show 01980f2e-5b1c-7c3a-9d2e-0123456789ab",
		Args:    exactArgs(1, "the id of a call", "dray audit list shows them"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.with(func(c *client.Client) error { return a.runAuditShow(ctx, c, args[0]) })
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
	return writeSections(a.out, sectionsOf(reply.Value))
}
