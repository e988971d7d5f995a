package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newWorkspaceStop(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop [DIR]",
		Short: "Stop a workspace's container",
		Args:  atMostOne("one folder"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.onWorkspace(func(ctx context.Context, c *client.Client, folder string) error {
		reply, err := c.Stop(ctx, folder)
		if err != nil {
			return err
		}
		if a.json {
			return a.printRaw(reply.JSON)
		}
		return a.sayWorkspace(reply.Value)
	})
	return cmd
}
