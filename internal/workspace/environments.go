package workspace

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// Provider makes the environments of one kind. It is safe for concurrent use.
type Provider interface {
	// Environment makes the environment of a route ready. It blocks until that is done.
	Environment(ctx context.Context, route dray.Route, inv dray.Invocation,
		progress func(phase, message string)) (dray.Environment, error)
	// IsCurrent reports whether a new call with the route would get env again.
	IsCurrent(ctx context.Context, route dray.Route, inv dray.Invocation, env dray.Environment) bool
	// Check returns the error that a call with the route would fail with. It changes nothing: it
	// brings up no container and starts no process. The call starts a process if starts is true.
	Check(ctx context.Context, route dray.Route, inv dray.Invocation, starts bool) error
}

// Environments holds the provider of each kind of environment.
type Environments map[dray.EnvironmentKind]Provider

func (e Environments) provider(kind dray.EnvironmentKind) (Provider, error) {
	if p := e[kind]; p != nil {
		return p, nil
	}
	return nil, dray.Errorf(dray.CodeInternal, "no provider for environments of the kind %q", kind).
		WithHint("report this as a bug of dray")
}

// Check returns the error that a call with the route would fail with, as Provider.Check does.
func (e Environments) Check(ctx context.Context, route dray.Route, inv dray.Invocation, starts bool,
) error {
	p, err := e.provider(route.Environment)
	if err != nil {
		return err
	}
	return p.Check(ctx, route, inv, starts)
}

// AcquireFunc acquires a slot for a call in a ready container, or on the host, which has the id "".
// It may block, and returns how long it did. release may be called more than once.
type AcquireFunc func(ctx context.Context, container string, sink dray.Sink) (release func(),
	waited time.Duration, err error)

// Executor makes the environment of a call's route ready, acquires a slot for the call, passes it
// to next, and adds the metadata of the environment to the result. A call holds no slot while its
// environment is made ready.
func (e Environments) Executor(next dray.Executor, acquire AcquireFunc) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		env, release, waited, err := e.acquire(ctx, call, sink, acquire)
		queued := float64(waited.Microseconds()) / 1000
		if err != nil {
			return dray.Result{Metadata: dray.Metadata{QueuedMS: queued}}, err
		}
		defer release()
		call.Environment = env
		res, err := next.Execute(ctx, call, sink)
		res.Metadata.QueuedMS = queued
		addMetadata(&res, env.Capabilities())
		return res, err
	})
}

// acquire makes the environment ready and acquires a slot. If the environment changed while the
// call was queued, the slot is released and both are repeated.
func (e Environments) acquire(ctx context.Context, call dray.Call, sink dray.Sink,
	acquire AcquireFunc,
) (env dray.Environment, release func(), waited time.Duration, err error) {
	p, err := e.provider(call.Route.Environment)
	for err == nil {
		env, err = p.Environment(ctx, call.Route, call.Invocation, sink.Progress)
		if err != nil {
			break
		}
		if call.NeedsNoSlot() {
			return env, func() {}, waited, nil
		}
		var now time.Duration
		release, now, err = acquire(ctx, containerID(env), sink)
		waited += now
		if err != nil || now == 0 || p.IsCurrent(ctx, call.Route, call.Invocation, env) {
			return env, release, waited, err
		}
		release()
	}
	return nil, nil, waited, err
}

func containerID(env dray.Environment) string {
	if c := env.Capabilities().Container; c != nil {
		return c.ID
	}
	return ""
}

// addMetadata adds warnings and container metadata after the tool's output was mapped (PM-11).
func addMetadata(res *dray.Result, caps dray.Capabilities) {
	res.Metadata.Warnings = append(append([]string(nil), caps.Warnings...), res.Metadata.Warnings...)
	if caps.Container == nil {
		return
	}
	c := *caps.Container
	c.ExecMS = float64(res.ExecDuration.Microseconds()) / 1000
	c.ExitCode = res.ExitCode
	res.Metadata.Container = &c
}

// Host makes environments of this machine; *host.Host implements it.
type Host interface {
	Environment(dir string) dray.Environment
	// Check returns the error with which a process cannot start in dir.
	Check(dir string) error
}

// hostProvider provides environments of this machine.
type hostProvider struct{ host Host }

// NewHostProvider returns the provider of environments of this machine.
func NewHostProvider(h Host) Provider { return hostProvider{h} }

// Environment returns the host for the workspace of a call, or else for its working directory.
func (h hostProvider) Environment(ctx context.Context, _ dray.Route, inv dray.Invocation,
	_ func(phase, message string),
) (dray.Environment, error) {
	return h.host.Environment(cmp.Or(inv.Workspace, inv.Cwd)), checkWorkspaceDir(ctx, inv.Workspace)
}

// IsCurrent reports true: the host does not change.
func (hostProvider) IsCurrent(context.Context, dray.Route, dray.Invocation, dray.Environment) bool {
	return true
}

// Check checks the workspace and, if the call starts a process, its working directory.
func (h hostProvider) Check(ctx context.Context, _ dray.Route, inv dray.Invocation, starts bool,
) error {
	if err := checkWorkspaceDir(ctx, inv.Workspace); err != nil || !starts {
		return err
	}
	dir := inv.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(inv.Workspace, dir)
	}
	return h.host.Check(dir)
}

// checkWorkspaceDir fails with workspace_not_found unless folder is empty or a directory.
func checkWorkspaceDir(ctx context.Context, folder string) error {
	if folder == "" {
		return nil
	}
	if info, err := linux.UntrustedDir(folder).StatDir(ctx); err == nil && info.IsDir() {
		return nil
	}
	return dray.Errorf(dray.CodeWorkspaceNotFound,
		"workspace folder %s does not exist or is not a directory", folder).
		WithHint("check its spelling; it has to be a directory of the machine that the daemon runs on")
}
