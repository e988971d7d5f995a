package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newWorkspace(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "workspace", Short: "See, start, stop and trust workspaces"}
	cmd.AddCommand(newWorkspaceList(a), newWorkspaceUp(a), newWorkspaceStop(a), newWorkspaceTrust(a))
	return group(cmd)
}

// onWorkspace makes the RunE of a command about one workspace: the given folder's, else the nearest one's.
func (a *app) onWorkspace(do func(ctx context.Context, c *client.Client, folder string) error) func(*cobra.Command, []string) error {
	return a.run(func(ctx context.Context, args []string) error {
		current, err := currentFolder()
		if err != nil {
			return err
		}
		given := ""
		if len(args) == 1 {
			given = args[0]
		}
		folder, err := workspaceFolder(current, given)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return do(ctx, c, folder) })
	})
}
