package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newContainer(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "container", Short: "List the containers that calls can name"}
	cmd.AddCommand(newContainerList(a))
	return group(cmd)
}

func newContainerList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the containers that calls can name", Args: noArgs}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		return a.withClient(func(c *client.Client) error {
			reply, err := c.Containers(ctx)
			return printReply(a, reply, err, a.printContainers)
		})
	})
	return cmd
}

func (a *app) printContainers(page client.Page[client.Container]) error {
	t := table{head: []string{"NAME", "STATE", "WORKSPACE", "ID"}}
	for _, c := range page.Items {
		t.add(c.Name, c.State, c.Workspace, c.ID)
	}
	return t.write(a.out)
}
