package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// Options are the options of Run.
type Options struct {
	// CLI is the absolute path of the reference CLI.
	CLI string
	// State is the daemon's state directory. Run stores pinned configurations and attempts there.
	State string
	// Approval is required, from trust.Store.Approve.
	Approval trust.Approval
	// Container is the workspace's container from Location.Match, or zero.
	Container devcontainer.ContainerInfo
	// Rebuild replaces Container, also if it is complete.
	Rebuild bool
	// Hash is that of the configuration, from trust.Store.Hash.
	Hash string
	// ExtraArgs follow dray's own arguments.
	ExtraArgs []string
	// Env is the environment of the CLI and of initializeCommand, see helper.Env. ${localEnv:NAME} is
	// replaced by its values, on which mounts can depend: it must not contain values of a caller. Run
	// adds a TMPDIR, which it removes at its end.
	Env   []string
	Start helper.StartFunc
	// Redact replaces the secrets in a text of the log; nil replaces none.
	Redact func(string) string
}

// Result is what the CLI reports of the running container.
type Result struct {
	ContainerID           string
	RemoteUser            string
	RemoteWorkspaceFolder string
}

// Run brings a workspace's container up by the reference CLI, which builds, creates or starts it as
// needed and runs the lifecycle commands. It reports progress: phase is a word, message a line.
// When ctx is done the CLI and its descendants are ended.
//
// A failed lifecycle command leaves a running container, and the CLI's next `up` would never run
// that command again. So Run records each attempt; if the last one left an incomplete container,
// Run replaces that container. A container that was complete before is removed only by Rebuild.
//
// It fails with workspace_untrusted, helper_missing (no CLI) or container_failed.
func Run(ctx context.Context, o Options, progress func(phase, message string)) (Result, error) {
	if err := o.check(ctx); err != nil {
		return Result{}, err
	}
	a, err := beginAttempt(ctx, o)
	if err != nil {
		return Result{}, err
	}
	switch {
	case a.replace && o.Rebuild:
		progress("remove", "replacing the container")
	case a.replace:
		progress("remove", "the last attempt left the container incomplete: replacing it")
	}
	result, err := o.run(ctx, a, progress)
	if noteErr := a.end(ctx, result, err); noteErr != nil {
		return Result{}, errors.Join(err, noteErr)
	}
	return result, err
}

func (o Options) check(ctx context.Context) error {
	if o.Approval.IsZero() {
		return dray.Errorf(dray.CodeWorkspaceUntrusted, "the workspace is not trusted").
			WithHint("run: dray workspace trust DIR")
	}
	if folder := o.Approval.Location().Workspace; strings.Contains(folder, "=") {
		return dray.Errorf(dray.CodeContainerFailed,
			"the devcontainer CLI hangs on paths that contain \"=\": %s", folder).
			WithHint("rename the folder")
	}
	if file := o.Approval.HardLinked(); file != "" {
		return dray.Errorf(dray.CodeContainerUnavailable, "%s has another name (a hard link), by which "+
			"a container could change it before it is used", file).
			WithHint("replace it by a copy of itself")
	}
	return o.checkCLI(ctx)
}

func (o Options) checkCLI(ctx context.Context) error {
	var what string
	info, err := os.Stat(o.CLI)
	switch {
	case o.CLI == "":
		what = "was not found"
	case err != nil:
		what = fmt.Sprintf("%q was not found", o.CLI)
	case !filepath.IsAbs(o.CLI) || info.IsDir() || info.Mode().Perm()&0o111 == 0:
		what = fmt.Sprintf("%q is not the absolute path of a program", o.CLI)
	default:
		return o.checkCLIPlace(ctx)
	}
	return dray.Errorf(dray.CodeHelperMissing, "the devcontainer CLI %s", what).
		WithHint("run npm install --global @devcontainers/cli, or set devcontainer.cli to its path")
}

// checkCLIPlace fails for a CLI in the workspace, or one that a symlink in it leads to: a tool
// could replace it, and trust does not cover it.
func (o Options) checkCLIPlace(ctx context.Context) error {
	loc, err := o.Approval.Location().Canonical(ctx)
	if err != nil {
		return err
	}
	for _, path := range lexical.FollowSymlinks(os.Readlink, o.CLI) {
		if lexical.Contains(loc.Workspace, path) || lexical.Contains(o.Approval.Root(), path) {
			return dray.Errorf(dray.CodeWorkspaceUntrusted,
				"the devcontainer CLI %s is in the workspace, where tools can change it", o.CLI).
				WithHint("install it elsewhere with npm install --global @devcontainers/cli, or set " +
					"devcontainer.cli to another path")
		}
	}
	return nil
}

func (o Options) run(
	ctx context.Context, a *attempt, progress func(phase, message string),
) (Result, error) {
	dirs, err := o.makeDirs(a.replace)
	defer func() { _ = os.RemoveAll(dirs.run) }() // if it fails, the next start of the daemon does it
	if err == nil {
		err = o.checkComposeFiles()
	}
	if err != nil {
		return Result{}, err
	}
	running, err := o.Start(ctx, o.command(dirs, a.replace))
	if err != nil {
		return Result{}, fmt.Errorf("start the devcontainer CLI: %w", err)
	}
	log := logReader{progress: progress, phase: "up", redact: o.Redact}
	m := monitor{loc: o.Approval.Location(), before: a.note.Before, log: log}
	return m.follow(ctx, running)
}

// command returns the CLI's command. The CLI derives labels from --config and reads the
// configuration from --override-config. It must not create a lock file, which is a trust input.
func (o Options) command(dirs runDirs, replace bool) helper.Command {
	loc := o.Approval.Location()
	argv := []string{
		o.CLI, "up", "--log-format", "json", "--workspace-folder", loc.Workspace,
		"--config", loc.Config, "--override-config", dirs.pinned,
	}
	if !slices.ContainsFunc(o.ExtraArgs, func(arg string) bool {
		return strings.HasPrefix(arg, "--user-data-folder")
	}) {
		argv = append(argv, "--user-data-folder", dirs.data)
	}
	if _, err := os.Stat(loc.FeatureLock()); linux.IsAbsent(err) {
		argv = append(argv, "--no-lockfile")
	}
	if replace {
		argv = append(argv, "--remove-existing-container")
	}
	return helper.Command{Argv: append(argv, o.ExtraArgs...), Env: dirs.env(o.Env), Dir: loc.Workspace}
}
