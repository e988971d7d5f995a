package devcontainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dray-dev/dray"
)

// Command is a program to start on the host. Its stdin is empty, and Env is its whole environment.
type Command struct {
	Argv []string
	Env  []string
	Dir  string
}

// Running is a started program and all that descends from it. Both streams are read to their end
// before Wait is called.
type Running interface {
	Stdout() io.Reader
	Stderr() io.Reader
	// Stop ends the program and its descendants; it returns at once.
	Stop()
	// Wait gives the exit code, 128 and the number for a signal. An error means that the end is not
	// known.
	Wait() (exitCode int, err error)
}

// StartFunc starts a program. The context bounds the start alone.
type StartFunc func(ctx context.Context, cmd Command) (Running, error)

// UpOptions are what Up works with.
type UpOptions struct {
	// CLI is the absolute path of the reference CLI.
	CLI string
	// State is the daemon's state folder: what is pinned and what failed lies there.
	State string
	// Approval is the leave to bring the workspace up, from TrustStore.Approve.
	Approval Approval
	// Container is what Location.Match found before; the zero value if it found none.
	Container ContainerInfo
	// ExtraArgs are put behind dray's own.
	ExtraArgs []string
	// Mount is one more mount of a new container, as `--mount` takes it; empty for none.
	Mount string
	// Env is the whole environment of the CLI and of initializeCommand, see UpEnv. The values of
	// ${localEnv:NAME} are taken from it, so it must hold none that a caller over HTTP chose: mounts
	// can depend on them.
	Env   []string
	Start StartFunc
}

// UpResult is what the CLI reports of the container that runs now.
type UpResult struct {
	ContainerID           string
	RemoteUser            string
	RemoteWorkspaceFolder string
}

// Up brings a workspace's container up through the reference CLI: it builds, creates or starts as
// needed and runs the lifecycle commands. Progress hears of it: phase is a word, message a line.
// When the context ends, the CLI and all that it started are ended.
//
// A failed lifecycle command leaves a container that runs and that the CLI's next `up` would take
// for finished, skipping that command for good. So Up notes each attempt before it begins and
// forgets it when it succeeds; where an attempt left a container half made, the next Up has it
// removed and made anew. Nothing is lost by that: the workspace is mounted, and a container that
// never was finished holds no work. A container that was finished before is never removed.
//
// Errors: workspace_untrusted without an approval, helper_missing without the CLI,
// container_failed.
func Up(ctx context.Context, o UpOptions, progress func(phase, message string)) (UpResult, error) {
	if err := o.check(); err != nil {
		return UpResult{}, err
	}
	a, err := beginAttempt(o)
	if err != nil {
		return UpResult{}, err
	}
	if a.replace {
		progress("remove", "the last attempt left the container half made: it is made anew")
	}
	result, err := o.run(ctx, a, progress)
	if noteErr := a.end(err); noteErr != nil {
		return UpResult{}, errors.Join(err, noteErr)
	}
	return result, err
}

func (o UpOptions) check() error {
	if o.Approval.pinned == nil {
		return dray.Errorf(dray.CodeWorkspaceUntrusted,
			"a workspace cannot be brought up without a trust in it").WithHint("run: dray workspace trust DIR")
	}
	if folder := o.Approval.loc.Workspace; strings.Contains(folder, "=") {
		return dray.Errorf(dray.CodeContainerFailed,
			"the path %s has a \"=\", with which the devcontainer CLI waits for ever", folder).
			WithHint("give the folder another name")
	}
	hint := "install it with: npm install --global @devcontainers/cli; or name it in devcontainer.cli"
	if o.CLI == "" {
		return dray.Errorf(dray.CodeHelperMissing, "the devcontainer CLI was not found").
			WithHint("%s", hint)
	}
	info, err := os.Stat(o.CLI)
	switch {
	case err != nil:
		return dray.Errorf(dray.CodeHelperMissing, "the devcontainer CLI %q was not found", o.CLI).
			WithHint("%s", hint)
	case !filepath.IsAbs(o.CLI) || info.IsDir() || info.Mode().Perm()&0o111 == 0:
		return dray.Errorf(dray.CodeHelperMissing,
			"the devcontainer CLI %q is not an absolute path of a program", o.CLI).WithHint("%s", hint)
	}
	return nil
}

// run starts the CLI with the pinned configuration and follows it to its end.
func (o UpOptions) run(ctx context.Context, a *upAttempt,
	progress func(phase, message string),
) (UpResult, error) {
	pinned, err := o.pin()
	if err != nil {
		return UpResult{}, err
	}
	// what is left holds nothing that the workspace does not
	defer func() { _ = os.RemoveAll(filepath.Dir(pinned)) }()
	running, err := o.Start(ctx, o.command(pinned, a.replace))
	if err != nil {
		return UpResult{}, fmt.Errorf("start the devcontainer CLI: %w", err)
	}
	f := upMonitor{
		loc: o.Approval.loc, before: a.note.Before,
		log: upLog{progress: progress, phase: "up"},
	}
	return f.follow(ctx, running)
}

// pin writes the configuration that was agreed to where no tool can reach it.
func (o UpOptions) pin() (string, error) {
	run := filepath.Join(o.State, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return "", fmt.Errorf("prepare the start of the container: %w", err)
	}
	dir, err := os.MkdirTemp(run, "up-")
	if err != nil {
		return "", fmt.Errorf("prepare the start of the container: %w", err)
	}
	path := filepath.Join(dir, "devcontainer.json")
	if err := os.WriteFile(path, o.Approval.pinned, 0o600); err != nil {
		return "", fmt.Errorf("prepare the start of the container: %w", err)
	}
	return path, nil
}

// command is the CLI's command line. The labels are made from --config, the content is read from
// --override-config. A lock file that is there is used; none is written where there is none, for it
// would change what the trust is bound to.
func (o UpOptions) command(pinned string, replace bool) Command {
	loc := o.Approval.loc
	argv := []string{
		o.CLI, "up", "--log-format", "json", "--workspace-folder", loc.Workspace, "--config", loc.Config, "--override-config", pinned,
	}
	if _, err := os.Stat(lockFile(loc.Config)); isAbsent(err) {
		argv = append(argv, "--no-lockfile")
	}
	if replace {
		argv = append(argv, "--remove-existing-container")
	}
	if o.Mount != "" {
		argv = append(argv, "--mount", o.Mount)
	}
	return Command{Argv: append(argv, o.ExtraArgs...), Env: o.Env, Dir: loc.Workspace}
}

// upNames are the variables of the daemon that `up` gets, beside DOCKER_* and LC_* (EX-06).
var upNames = map[string]bool{
	"HOME": true, "USER": true, "LOGNAME": true, "PATH": true, "LANG": true, "LANGUAGE": true, "TZ": true, "TMPDIR": true, "SSH_AUTH_SOCK": true,
	"XDG_RUNTIME_DIR": true,
}

// UpEnv picks from the daemon's environment what `up` of a trusted workspace gets: what finds the
// engine, the user's configuration of it and the user's keys, and nothing that may be a secret of
// the daemon.
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

// upAttempt is one Up under way, noted so that its failure outlives the daemon.
type upAttempt struct {
	notes   UpAttemptStore
	note    UpAttempt
	replace bool // the container at hand was left half made
}

func beginAttempt(o UpOptions) (*upAttempt, error) {
	loc, err := o.Approval.loc.canonical()
	if err != nil {
		return nil, err
	}
	a := &upAttempt{notes: NewFailures(o.State)}
	last, failed, err := a.notes.last(loc)
	if err != nil {
		return nil, err
	}
	a.replace = failed && last.Incomplete(o.Container)
	a.note = UpAttempt{
		Workspace: loc.Workspace, Config: loc.Config, StartedAt: time.Now().UTC(),
		Before: o.Container.ID,
	}
	if a.replace {
		// Until the CLI has removed it, it is still the one of the last attempt.
		a.note.Before, a.note.Container = "", o.Container.ID
	}
	return a, a.notes.put(a.note)
}

// end forgets an attempt that succeeded and completes the note of one that did not.
func (a *upAttempt) end(err error) error {
	if err == nil {
		return a.notes.forget(a.note.location())
	}
	now := time.Now().UTC()
	a.note.EndedAt, a.note.Message = &now, err.Error()
	if failed, ok := errors.AsType[*upError](err); ok {
		a.note.Container, a.note.Log = cmp.Or(failed.container, a.note.Container), failed.log
	}
	return a.notes.put(a.note)
}
