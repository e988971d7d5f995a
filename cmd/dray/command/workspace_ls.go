package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newWorkspaceList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the workspaces that dray knows", Args: noArgs}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		return a.withClient(func(c *client.Client) error { return a.runWorkspaceList(ctx, c) })
	})
	return cmd
}

func (a *app) runWorkspaceList(ctx context.Context, c *client.Client) error {
	reply, err := c.Workspaces(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(reply.JSON)
	}
	t := table{head: []string{"ID", "FOLDER", "STATE", "TRUSTED"}}
	for _, w := range reply.Value.Items {
		t.add(w.ID, w.Folder, w.State, yesNo(w.Trusted))
	}
	return t.write(a.out)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
