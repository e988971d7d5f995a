package command

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/devcontainer"
)

func newWorkspace(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "workspace", Short: "See, start, stop and trust workspaces"}
	cmd.AddCommand(newWorkspaceList(a), newWorkspaceUp(a), newWorkspaceStop(a), newWorkspaceTrust(a))
	return group(cmd)
}

// onWorkspace makes the RunE of a command about one workspace: the given folder's, else the nearest
// one's.
func (a *app) onWorkspace(do func(ctx context.Context, c *client.Client,
	folder string) error,
) func(*cobra.Command, []string) error {
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

func newWorkspaceTrust(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust [DIR]",
		Short: "Trust a workspace's devcontainer configuration",
		Long: `trust lets dray build and start the container of a workspace, and shows what that
covers: the files as they are now, the commands that run on the host, and the
variables of yours that reach the container. It asks nothing. Once one of the
files changes, the workspace has to be trusted again.`,
		Example: "  dray workspace trust ~/src/app",
		Args:    atMostOne("one folder"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.onWorkspace(a.runWorkspaceTrust)
	return cmd
}

func (a *app) runWorkspaceTrust(ctx context.Context, c *client.Client, folder string) error {
	reply, err := c.Trust(ctx, folder)
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(reply.JSON)
	}
	var covered devcontainer.Summary
	if err := json.Unmarshal(reply.Value.Trust, &covered); err != nil {
		return dray.Errorf(dray.CodeInternal, "understanding what the trust covers: %w", err).
			WithHint("dray workspace trust --json shows it as it is")
	}
	if err := covered.Write(a.out); err != nil {
		return outputError(err)
	}
	_, err = fmt.Fprintf(a.out, "%s is trusted\n", escapeLine(reply.Value.Folder))
	return outputError(err)
}

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
