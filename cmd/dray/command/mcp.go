package command

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/mcp"
)

// maxMCPMessage is the maximum length of a message of an MCP client in bytes: that of a request to
// the daemon by default.
const maxMCPMessage = 64 << 20

func newMCP(a *app) *cobra.Command {
	var workspace, container, paths string
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Connect an MCP client on stdin and stdout to the daemon",
		Long: `mcp speaks the Model Context Protocol on stdin and stdout, for clients that start their
servers as commands. It passes the messages on to the daemon, which it starts if it is
not running. Calls run in the current directory, unless they name another one, or in
the workspace or container of the flags.

Clients that connect to a URL use /mcp of the daemon instead, if server.tcp is set.

` + exitHelpOthers,
		Example: "  dray mcp\n  dray mcp --workspace ~/project",
		Args:    noArgs,
	}
	cmd.AddCommand(newMCPInstall(a))
	addWorkspaceFlag(cmd, &workspace)
	cmd.Flags().StringVar(&container, "container", "", "run calls in this `container`, by name or id")
	addPathsFlag(cmd, &paths)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		target, err := mcpPath(ctx, workspace, container, paths)
		if err != nil {
			return err
		}
		if isTerminal(a.in) {
			fmt.Fprintln(a.err, "dray: waiting for messages of an MCP client on stdin; dray mcp install "+
				"CLIENT configures one")
		}
		return a.withClient(func(c *client.Client) error {
			bridge := &mcp.Bridge{
				Do: c.MCP, Path: target, In: a.in, Out: a.out, MaxMessage: maxMCPMessage,
			}
			return bridge.Run(ctx)
		})
	})
	return cmd
}

// mcpPath returns /mcp with the defaults of calls.
func mcpPath(ctx context.Context, workspace, container, paths string) (string, error) {
	side, err := checkPathsFlag(paths)
	if err != nil {
		return "", err
	}
	if workspace != "" && container != "" {
		return "", usagef("--workspace and --container exclude each other")
	}
	current, err := currentDir()
	if err != nil {
		return "", err
	}
	query := url.Values{}
	if side != "" {
		query.Set("paths", string(side))
	}
	if side == dray.PathsOfContainer && container == "" && workspace == "" {
		workspace = nearestWorkspace(ctx, current)
	}
	switch {
	case workspace != "":
		query.Set("workspace", absolute(current, workspace))
	case container != "":
		query.Set("container", container)
	default:
		query.Set("cwd", current)
	}
	return "/mcp?" + query.Encode(), nil
}
