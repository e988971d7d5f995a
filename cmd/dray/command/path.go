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
	cmd := &cobra.Command{Use: "path", Short: "Translate paths between the host and the container"}
	cmd.AddCommand(
		newPathMap(a, client.ToHost, "to-host", "Translate a container's paths to the host's",
			"dray path to-host /workspaces/app/main.go"),
		newPathMap(a, client.ToContainer, "to-container", "Translate host paths to the container's",
			"dray path to-container main.go ../lib"),
	)
	return group(cmd)
}

// newPathMap makes one of the two directions.
func newPathMap(a *app, direction client.Direction, name, short, example string) *cobra.Command {
	var to pathTarget
	cmd := &cobra.Command{
		Use:   name + " PATH...",
		Short: short,
		Long: short +
			", one per line.\nA path that has no other name is printed unchanged, and said so on stderr.",
		Example: "  " + example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("there is no path to translate").WithHint("for instance: %s", example)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&to.workspace, "workspace", "w", "", "workspace `folder` (default the nearest with a devcontainer)")
	cmd.Flags().StringVar(&to.container, "container", "", "take the mappings of this `container`")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		m, err := to.mapping(direction, args)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runPath(ctx, c, m) })
	})
	return cmd
}

// pathTarget is whose mappings are meant.
type pathTarget struct{ workspace, container string }

// mapping makes the request. Relative host paths mean what they mean to a shell; absolute ones go
// out as they are, since the daemon judges them.
func (t pathTarget) mapping(direction client.Direction, paths []string) (client.MapPathsRequest,
	error,
) {
	m := client.MapPathsRequest{
		Container: t.container, Direction: direction,
		Paths: slices.Clone(paths),
	}
	current, err := currentFolder()
	if err != nil {
		return m, err
	}
	for i, p := range paths {
		if !utf8.ValidString(p) {
			return m, usagef("%q is not UTF-8", p).WithHint("a request is JSON, which carries UTF-8 only")
		}
		if direction == client.ToContainer && !filepath.IsAbs(p) {
			m.Paths[i] = filepath.Join(current, p)
		}
	}
	switch {
	case t.workspace != "" && t.container != "":
		return m, usagef("--workspace and --container contradict each other")
	case t.container == "":
		m.Workspace, err = workspaceFolder(current, t.workspace)
	}
	return m, err
}

func (a *app) runPath(ctx context.Context, c *client.Client, m client.MapPathsRequest) error {
	reply, err := c.MapPaths(ctx, m)
	if err != nil {
		return err
	}
	if a.json {
		return a.printRaw(reply.JSON)
	}
	var out strings.Builder
	for i, p := range reply.Value.Paths {
		out.WriteString(a.shownPath(p) + "\n")
		if slices.Contains(reply.Value.Unmapped, p) && i < len(m.Paths) && p == m.Paths[i] {
			fmt.Fprintf(a.err, "dray: %s is not mapped\n", escapeLine(p))
		}
	}
	_, err = fmt.Fprint(a.out, out.String())
	return outputError(err)
}

// shownPath is the path itself for programs, and harmless for a terminal.
func (a *app) shownPath(p string) string {
	if isTerminal(a.out) {
		return escapeLine(p)
	}
	return p
}
