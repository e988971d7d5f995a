package command

import (
	"cmp"
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/workspace"
)

func newWorkspace(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "workspace", Short: "List, start, stop, rebuild, remove and trust workspaces",
	}
	cmd.AddCommand(newWorkspaceList(a), newWorkspaceUp(a), newWorkspaceStop(a), newWorkspaceRebuild(a),
		newWorkspaceRemove(a), newWorkspaceTrust(a))
	return group(cmd)
}

// onWorkspace completes a command that takes one workspace: the directory given as its argument,
// else the nearest workspace.
func (a *app) onWorkspace(cmd *cobra.Command,
	do func(ctx context.Context, c *client.Client, folder string) error,
) *cobra.Command {
	cmd.Args = atMostOne("one directory")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		current, err := currentDir()
		if err != nil {
			return err
		}
		given := ""
		if len(args) == 1 {
			given = args[0]
		}
		folder, err := workspaceFolder(ctx, current, given)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return do(ctx, c, folder) })
	})
	return cmd
}

func newWorkspaceList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the known workspaces", Args: noArgs}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		return a.withClient(func(c *client.Client) error {
			reply, err := c.Workspaces(ctx)
			return printReply(a, reply, err, a.printWorkspaces)
		})
	})
	return cmd
}

func (a *app) printWorkspaces(page client.Page[client.Workspace]) error {
	t := a.table("ID", "FOLDER", "STATE", "TRUSTED")
	for _, w := range page.Items {
		trusted := "no"
		if w.Trusted {
			trusted = "yes"
		}
		state := w.State
		if w.Outdated {
			state += " (outdated)"
		}
		t.add(w.ID, w.Folder, state, trusted)
	}
	return t.write(a.out)
}

// workspaceAction completes a command that changes the containers of a workspace. It shows the
// progress on stderr.
func (a *app) workspaceAction(action string, cmd *cobra.Command) *cobra.Command {
	return a.onWorkspace(cmd, func(ctx context.Context, c *client.Client, folder string) error {
		p := newProgress(a.err, 0)
		reply, err := c.Change(ctx, folder, action, p.show)
		p.clear()
		return printReply(a, reply, err, a.printWorkspace)
	})
}

func newWorkspaceUp(a *app) *cobra.Command {
	return a.workspaceAction("up", &cobra.Command{
		Use:   "up [DIR]",
		Short: "Build and start a workspace's container",
		Long: `up builds and starts the container of a workspace, by default of the workspace
that contains the current directory; with several containers.NAME.config, those of
all. The workspace must be trusted. Calls do this by themselves, but do not repeat an
up that failed: up does.`,
		Example: "  dray workspace trust && dray workspace up",
	})
}

func newWorkspaceStop(a *app) *cobra.Command {
	return a.workspaceAction("stop", &cobra.Command{
		Use:   "stop [DIR]",
		Short: "Stop a workspace's containers, with their compose projects",
		Long: `stop stops the containers of a workspace, and all services of its compose project.
An up that is running is cancelled.`,
	})
}

func newWorkspaceRebuild(a *app) *cobra.Command {
	return a.workspaceAction("rebuild", &cobra.Command{
		Use:   "rebuild [DIR]",
		Short: "Replace a workspace's container by a new one",
		Long: `rebuild removes the container of a workspace and brings up a new one from the
current configuration. Files outside of mounts are lost.`,
	})
}

func newWorkspaceRemove(a *app) *cobra.Command {
	return a.workspaceAction("rm", &cobra.Command{
		Use:   "rm [DIR]",
		Short: "Remove a workspace's containers, not its directory",
		Long: `rm stops and removes the containers of a workspace, all services of its compose
project with its networks, and their anonymous volumes. The directory stays; it may
be gone already.`,
	})
}

// trustFlags are the flags of `dray workspace trust`. At most one of the first three is set.
type trustFlags struct {
	show, revoke bool
	hash         string
	container    string
}

func newWorkspaceTrust(a *app) *cobra.Command {
	var flags trustFlags
	cmd := a.onWorkspace(&cobra.Command{
		Use:   "trust [DIR]",
		Short: "Look at, trust or no longer trust a workspace's configuration",
		Long: `trust allows dray to build and start the container of a workspace. It prints what
the trust covers: the files with their current content, the commands that run on
the host, your variables that reach the container, and what has changed since the
workspace was trusted. It does not ask for confirmation: --show only prints that,
and --hash trusts it only if it is still what was printed. When one of the files
changes, trust the workspace again. Each containers.NAME.config is trusted by itself,
with --container NAME.`,
		Example: "  dray workspace trust --show ~/src/app\n" +
			"  dray workspace trust --hash sha256:5f1c... ~/src/app\n" +
			"  dray workspace trust --revoke ~/src/app",
	}, func(ctx context.Context, c *client.Client, folder string) error {
		return a.trust(ctx, c, cmp.Or(flags.container, folder), flags)
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if flags.container != "" {
			return noArgs(cmd, args)
		}
		return atMostOne("one directory")(cmd, args)
	}
	cmd.Flags().StringVar(&flags.container, "container", "",
		"the configuration of this configured container")
	cmd.Flags().BoolVar(&flags.show, "show", false,
		"print what a trust would cover, and trust nothing")
	cmd.Flags().BoolVar(&flags.revoke, "revoke", false, "end the trust; containers go on")
	cmd.Flags().StringVar(&flags.hash, "hash", "",
		"trust only what has this hash, as --show prints it")
	cmd.MarkFlagsMutuallyExclusive("show", "revoke", "hash")
	return cmd
}

// trust trusts what it prints, or with a hash what the caller has looked at.
func (a *app) trust(ctx context.Context, c *client.Client, id string, flags trustFlags) error {
	if flags.revoke {
		reply, err := c.RevokeTrust(ctx, id)
		return printReply(a, reply, err, func(w client.Workspace) error {
			_, err := fmt.Fprintf(a.out, "%s is not trusted any more\n", escapeLine(w.Folder))
			return outputError(err)
		})
	}
	review, err := c.ReviewTrust(ctx, id)
	if flags.show {
		return printReply(a, review, err, func(client.TrustReview) error {
			return a.printReview(review, false)
		})
	}
	if err != nil {
		return err
	}
	reply, err := c.Trust(ctx, id, cmp.Or(flags.hash, review.Value.Hash))
	return printReply(a, reply, err, func(w client.Workspace) error {
		if err := a.printReview(review, true); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.out, "%s is trusted\n", escapeLine(w.Folder))
		return outputError(err)
	})
}

// printReview prints what a trust covers. trusted is set if it was trusted after the review.
func (a *app) printReview(reply client.Reply[client.TrustReview], trusted bool) error {
	var review trust.Review
	if err := json.Unmarshal(reply.JSON, &review); err != nil {
		return dray.Errorf(dray.CodeInternal, "decode what would be trusted: %w", err).
			WithHint("run dray workspace trust --show --json to see it unformatted")
	}
	review.Trusted = review.Trusted || trusted
	return outputError(review.Write(a.out))
}

// printWorkspace prints the state of a workspace on one line.
func (a *app) printWorkspace(w client.Workspace) error {
	line := fmt.Sprintf("%s is %s", escapeLine(w.Folder), escapeLine(w.State))
	if w.State == string(workspace.Discovered) {
		line = escapeLine(w.Folder) + " has no container"
	}
	if w.Container != "" {
		line += " (container " + escapeLine(w.Container) + ")"
	}
	if w.Outdated {
		line += "; its configuration has changed since it was created"
	}
	_, err := fmt.Fprintln(a.out, line)
	return outputError(err)
}
