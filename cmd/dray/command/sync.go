package command

import (
	"context"
	"io"
	"path/filepath"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

// syncFlags are what the command line says of a sync.
type syncFlags struct {
	workspace, container, destination string
	dryRun, skipRefused, push         bool
}

func newSync(a *app) *cobra.Command {
	var f syncFlags
	cmd := &cobra.Command{
		Use:   "sync PATH...",
		Short: "Bring files of a container home, or take some there",
		Long: `sync brings files and folders of a container home into the folder that
sandbox.root names: all of them, or none. A path is the container's own or the
host's; a relative one begins at the current folder, or at the workspace where
that lies elsewhere. With --push files of the host go to the container.

It prints a line for each file: what became of it, its mode, size and path. With
--dry-run it prints what would: + is a new file, ~ one with another content (with
both SHA-256), and what is the same is counted.

` + exitHelpOthers,
		Example: "  dray sync build/report --dry-run\n  dray sync /tmp/coverage.html --destination nightly\n  dray sync --push testdata",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("there is no path to sync").WithHint("for instance: dray sync build/report --dry-run")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&f.workspace, "workspace", "w", "", "workspace `folder` (default the nearest with a devcontainer)")
	cmd.Flags().StringVar(&f.container, "container", "", "files of this `container`, by name or id")
	cmd.Flags().StringVar(&f.destination, "destination", "", "`folder` below the sandbox root, or with --push below the container's workspace folder")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and write nothing")
	cmd.Flags().BoolVar(&f.skipRefused, "skip-refused", false, "go on without the paths that are refused")
	cmd.Flags().BoolVar(&f.push, "push", false, "take files of the host to the container")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		request, err := f.request(args)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runSync(ctx, c, request) })
	})
	return cmd
}

// request makes the body.
func (f syncFlags) request(paths []string) (client.Sync, error) {
	s := client.Sync{Container: f.container, Destination: f.destination, DryRun: f.dryRun}
	if f.skipRefused {
		s.OnRefused = "skip"
	}
	if f.push {
		s.Direction = client.ToContainer
	}
	current, err := currentFolder()
	switch {
	case err != nil:
		return s, err
	case f.workspace != "" && f.container != "":
		return s, usagef("--workspace and --container contradict each other")
	case f.container == "":
		if s.Workspace, err = workspaceFolder(current, f.workspace); err != nil {
			return s, err
		}
		s.LocalEnv = localEnv(s.Workspace)
	}
	s.Paths, err = f.paths(paths, current, s.Workspace)
	return s, err
}

// paths makes relative paths absolute. What is absolute goes out as it is: to judge it is the daemon's business.
func (f syncFlags) paths(given []string, current, workspace string) ([]string, error) {
	from := current
	if workspace != "" && !f.push && !beneath(workspace, current) {
		from = workspace
	}
	paths := make([]string, len(given))
	for i, p := range given {
		switch {
		case !utf8.ValidString(p):
			return nil, usagef("%q is not UTF-8", p).WithHint("a request is JSON, which carries UTF-8 only: name the folder around it")
		case p == "":
			return nil, usagef("a path is empty")
		case filepath.IsAbs(p):
			paths[i] = p
		case f.container != "" && !f.push:
			return nil, usagef("%q is relative, and the container has no current folder", p).WithHint("write it from / on")
		default:
			paths[i] = filepath.Join(from, p)
		}
	}
	return paths, nil
}

func (a *app) runSync(ctx context.Context, c *client.Client, request client.Sync) error {
	shown := newSyncProgress(newProgress(a.err, progressPatience))
	l := &liveCall{
		client: c, stdout: io.Discard, stderr: io.Discard, progress: shown.progress, onProgress: shown.show,
		start: func(ctx context.Context) (*client.Stream, error) { return c.Sync(ctx, request) },
	}
	end, err := l.run(ctx)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(syncedOf(end.record))
	} else {
		err = a.printSync(end.record)
	}
	if code := syncExitCode(end.record); err == nil && code != exitOK {
		return exitError(code)
	}
	return err
}

// syncExitCode gives the exit code of a sync that ended.
func syncExitCode(rec dray.Record) int {
	switch {
	case rec.Status == dray.StatusSucceeded:
		return exitOK
	case rec.Reason == dray.ReasonCancelled:
		return exitInterrupted
	case rec.Error != nil:
		return exitOfCode(rec.Error.Code)
	default:
		return exitFailed
	}
}
