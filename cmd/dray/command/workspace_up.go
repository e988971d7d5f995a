package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newWorkspaceUp(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up [DIR]",
		Short: "Bring a workspace's container up",
		Long: `up builds and starts the container of a workspace, by default that of the current
folder. The workspace has to be trusted.`,
		Example: "  dray workspace trust && dray workspace up",
		Args:    atMostOne("one folder"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.onWorkspace(a.runWorkspaceUp)
	return cmd
}

func (a *app) runWorkspaceUp(ctx context.Context, c *client.Client, folder string) error {
	p := newProgress(a.err, 0)
	defer p.clear()
	reply, err := c.Up(ctx, folder, p.show)
	if err != nil {
		return err
	}
	p.clear()
	if a.json {
		return a.printRaw(reply.JSON)
	}
	return a.sayWorkspace(reply.Value)
}

// sayWorkspace says in a line what a workspace is now.
func (a *app) sayWorkspace(w client.Workspace) error {
	line := fmt.Sprintf("%s is %s", escapeLine(w.Folder), escapeLine(w.State))
	if w.Container != "" {
		line += " (container " + escapeLine(w.Container) + ")"
	}
	_, err := fmt.Fprintln(a.out, line)
	return outputError(err)
}
