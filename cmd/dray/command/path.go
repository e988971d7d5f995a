package command

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newPath(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "path", Short: "Map paths between host and container"}
	cmd.AddCommand(
		newPathMap(a, client.ToHost, "to-host", "Map container paths to host paths",
			"dray path to-host /workspaces/app/main.go"),
		newPathMap(a, client.ToContainer, "to-container", "Map host paths to container paths",
			"dray path to-container main.go ../lib"),
	)
	return group(cmd)
}

func newPathMap(a *app, direction client.Direction, name, short, example string) *cobra.Command {
	req := client.MapPathsRequest{Direction: direction}
	cmd := &cobra.Command{
		Use:   name + " PATH...",
		Short: short,
		Long: short + `, one per line. A path without a mapping is printed
unchanged and reported on stderr.`,
		Example: "  " + example,
		Args:    atLeastOne("path", example),
	}
	addWorkspaceFlag(cmd, &req.Workspace)
	cmd.Flags().StringVar(&req.Container, "container", "", "use the mappings of this `container`")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		req.Paths = args
		req, err := completePathRequest(ctx, req)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runPath(ctx, c, req) })
	})
	return cmd
}

// completePathRequest resolves the workspace and relative host paths. Absolute paths are sent
// unchanged: the daemon validates them.
func completePathRequest(ctx context.Context, req client.MapPathsRequest,
) (client.MapPathsRequest, error) {
	current, err := currentDir()
	if err != nil {
		return req, err
	}
	req.Paths = slices.Clone(req.Paths)
	for i, p := range req.Paths {
		if !utf8.ValidString(p) {
			return req, notUTF8(p)
		}
		if req.Direction == client.ToContainer && !filepath.IsAbs(p) {
			req.Paths[i] = filepath.Join(current, p)
		}
	}
	switch {
	case req.Workspace != "" && req.Container != "":
		return req, usagef("--workspace and --container exclude each other")
	case req.Container == "":
		req.Workspace, err = workspaceFolder(ctx, current, req.Workspace)
	}
	return req, err
}

func (a *app) runPath(ctx context.Context, c *client.Client, req client.MapPathsRequest) error {
	reply, err := c.MapPaths(ctx, req)
	return printReply(a, reply, err, func(mapped client.MapPathsReply) error {
		var out strings.Builder
		for i, p := range mapped.Paths {
			line := p
			if isTerminal(a.out) {
				line = escapeLine(p)
			}
			out.WriteString(line + "\n")
			if slices.Contains(mapped.Unmapped, p) && i < len(req.Paths) && p == req.Paths[i] {
				fmt.Fprintf(a.err, "dray: %s is not mapped\n", escapeLine(p))
			}
		}
		_, err := fmt.Fprint(a.out, out.String())
		return outputError(err)
	})
}
