package devcontainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
)

// Command is a program to start on the host with an empty stdin. Env is its whole environment.
type Command struct {
	Argv []string
	Env  []string
	Dir  string
}

// Running is a started program with its descendants. Both streams must be read to their end before
// Wait is called.
type Running interface {
	Stdout() io.Reader
	Stderr() io.Reader
	// Stop ends the program and its descendants. It does not wait.
	Stop()
	// Wait returns the exit code, 128 + N for signal N. It fails if the exit status is unknown.
	Wait() (exitCode int, err error)
}

// StartFunc starts a program. The context applies to the start only.
type StartFunc func(ctx context.Context, cmd Command) (Running, error)

// UpOptions are the options of Up.
type UpOptions struct {
	// CLI is the absolute path of the reference CLI.
	CLI string
	// State is the daemon's state directory. Up stores pinned configurations and attempts there.
	State string
	// Approval is required, from TrustStore.Approve.
	Approval Approval
	// Container is the workspace's container from Location.Match, or zero.
	Container ContainerInfo
	// ExtraArgs follow dray's own arguments.
	ExtraArgs []string
	// Env is the environment of the CLI and of initializeCommand, see UpEnv. ${localEnv:NAME} is
	// replaced by its values, on which mounts can depend: it must not contain values of a caller. Up
	// adds a TMPDIR, which it removes at its end.
	Env   []string
	Start StartFunc
}

// UpResult is what the CLI reports of the running container.
type UpResult struct {
	ContainerID           string
	RemoteUser            string
	RemoteWorkspaceFolder string
}

// Up brings a workspace's container up by the reference CLI, which builds, creates or starts it as
// needed and runs the lifecycle commands. It reports progress: phase is a word, message a line.
// When ctx is done the CLI and its descendants are ended.
//
// A failed lifecycle command leaves a running container, and the CLI's next `up` would never run
// that command again. So Up records each attempt before it starts and removes the record when it
// succeeds; if the last attempt left an incomplete container, Up replaces that container. A
// container that was complete before is never removed.
//
// It fails with workspace_untrusted, helper_missing (no CLI) or container_failed.
func Up(ctx context.Context, o UpOptions, progress func(phase, message string)) (UpResult, error) {
	if err := o.check(); err != nil {
		return UpResult{}, err
	}
	a, err := beginAttempt(ctx, o)
	if err != nil {
		return UpResult{}, err
	}
	if a.replace {
		progress("remove", "the last attempt left the container incomplete: replacing it")
	}
	result, err := o.run(ctx, a, progress)
	if noteErr := a.end(err); noteErr != nil {
		return UpResult{}, errors.Join(err, noteErr)
	}
	return result, err
}

func (o UpOptions) check() error {
	if o.Approval.pinned == nil {
		return dray.Errorf(dray.CodeWorkspaceUntrusted, "the workspace is not trusted").
			WithHint("run: dray workspace trust DIR")
	}
	if folder := o.Approval.loc.Workspace; strings.Contains(folder, "=") {
		return dray.Errorf(dray.CodeContainerFailed,
			"the devcontainer CLI hangs on paths that contain \"=\": %s", folder).
			WithHint("rename the folder")
	}
	if o.Approval.hardLinked != "" {
		return dray.Errorf(dray.CodeContainerUnavailable, "%s has another name (a hard link), by which "+
			"a container could change it before it is used", o.Approval.hardLinked).
			WithHint("replace it by a copy of itself")
	}
	return o.checkCLI()
}

func (o UpOptions) checkCLI() error {
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
		return nil
	}
	return dray.Errorf(dray.CodeHelperMissing, "the devcontainer CLI %s", what).
		WithHint("run npm install --global @devcontainers/cli, or set devcontainer.cli to its path")
}

func (o UpOptions) run(
	ctx context.Context, a *upAttempt, progress func(phase, message string),
) (UpResult, error) {
	dirs, err := o.makeDirs(a.replace)
	defer func() { _ = os.RemoveAll(dirs.run) }() // if it fails, the next start of the daemon does it
	if err == nil {
		err = o.checkComposeFiles()
	}
	if err != nil {
		return UpResult{}, err
	}
	running, err := o.Start(ctx, o.command(dirs, a.replace))
	if err != nil {
		return UpResult{}, fmt.Errorf("start the devcontainer CLI: %w", err)
	}
	log := upLog{progress: progress, phase: "up"}
	m := upMonitor{loc: o.Approval.loc, before: a.note.Before, log: log}
	return m.follow(ctx, running)
}

// command returns the CLI's command. The CLI derives labels from --config and reads the
// configuration from --override-config. It must not create a lock file, which is a trust input.
func (o UpOptions) command(dirs upDirs, replace bool) Command {
	loc := o.Approval.loc
	argv := []string{
		o.CLI, "up", "--log-format", "json", "--workspace-folder", loc.Workspace,
		"--config", loc.Config, "--override-config", dirs.pinned,
	}
	if !slices.ContainsFunc(o.ExtraArgs, func(arg string) bool {
		return strings.HasPrefix(arg, "--user-data-folder")
	}) {
		argv = append(argv, "--user-data-folder", dirs.data)
	}
	if _, err := os.Stat(featureLockPath(loc.Config)); isAbsent(err) {
		argv = append(argv, "--no-lockfile")
	}
	if replace {
		argv = append(argv, "--remove-existing-container")
	}
	return Command{Argv: append(argv, o.ExtraArgs...), Env: dirs.env(o.Env), Dir: loc.Workspace}
}

// upNames are the variables of the daemon that `up` gets, besides DOCKER_* and LC_* (EX-06).
var upNames = map[string]bool{
	"HOME": true, "USER": true, "LOGNAME": true, "PATH": true, "LANG": true, "LANGUAGE": true,
	"TZ": true, "SSH_AUTH_SOCK": true, "XDG_RUNTIME_DIR": true,
}

// UpEnv returns the variables of the daemon's environment that `up` of a trusted workspace gets:
// they locate the engine, its configuration and the user's keys. Secrets of the daemon are not
// passed.
func UpEnv(environ []string) []string {
	var env []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if upNames[name] || strings.HasPrefix(name, "DOCKER_") || strings.HasPrefix(name, "LC_") {
			env = append(env, pair)
		}
	}
	return env
}
