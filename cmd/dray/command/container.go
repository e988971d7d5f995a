package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newContainer(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "container", Short: "List containers, and name those that dray did not make",
	}
	cmd.AddCommand(newContainerList(a), newContainerAdd(a), newContainerRemove(a))
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
	t := a.table("NAME", "STATE", "BREAKER", "WORKSPACE", "ID")
	for _, c := range page.Items {
		t.add(c.Name, c.State, c.Breaker, c.Workspace, c.ID)
	}
	return t.write(a.out)
}

func newContainerAdd(a *app) *cobra.Command {
	var reg client.Registration
	var mappings []string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Give a container that dray did not make a name",
		Long: `add gives a container a name that calls use, while the daemon runs and after a
restart. The container need not exist yet. Either --id or --label is required.`,
		Example: "  dray container add db --id postgres-1 --mapping /srv/dumps:/var/lib/dumps",
		Args:    oneArg("one name", "dray container ls lists the names"),
	}
	flags := cmd.Flags()
	flags.StringVar(&reg.ID, "id", "", "full `id` or name of the container")
	flags.StringVar(&reg.Label, "label", "", "`key=value` of a label that only this container has")
	flags.StringArrayVar(&mappings, "mapping", nil,
		"`host:container` directories that precede those of its mounts; may be repeated")
	flags.StringVar(&reg.User, "user", "", "`user` of calls (default: the container's)")
	flags.StringVar(&reg.Folder, "folder", "", "working `directory` of calls in the container")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		for _, m := range mappings {
			host, container, ok := strings.Cut(m, ":")
			if !ok {
				return dray.Errorf(dray.CodeInvalidRequest, "invalid value %q for --mapping", m).
					WithHint("use HOST:CONTAINER, two absolute directories")
			}
			reg.Mappings = append(reg.Mappings, client.Mapping{Host: host, Container: container})
		}
		return a.withClient(func(c *client.Client) error {
			reply, err := c.Register(ctx, args[0], reg)
			return printReply(a, reply, err, func(c client.Container) error {
				_, err := fmt.Fprintf(a.out, "%s is %s\n", escapeLine(c.Name), escapeLine(c.State))
				return outputError(err)
			})
		})
	})
	return cmd
}

func newContainerRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Remove a name that add gave; the container stays",
		Args: oneArg("one name", "dray container ls lists the names"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.withClient(func(c *client.Client) error {
			reply, err := c.Unregister(ctx, args[0])
			return printReply(a, reply, err, func(struct{}) error { return nil })
		})
	})
	return cmd
}
