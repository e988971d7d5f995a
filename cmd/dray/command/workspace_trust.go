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
		return dray.Errorf(dray.CodeInternal, "understanding what the trust covers: %w", err).WithHint("dray workspace trust --json shows it as it is")
	}
	if err := covered.Write(a.out); err != nil {
		return outputError(err)
	}
	_, err = fmt.Fprintf(a.out, "%s is trusted\n", escapeLine(reply.Value.Folder))
	return outputError(err)
}
