package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/devcontainer/up"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/logging"
)

// upMode is why a workspace is brought up. A higher mode includes the lower ones.
type upMode int

const (
	onDemand upMode = iota // a call needs the container
	asked                  // a caller asks for it: a failure is forgotten
	rebuild                // a caller asks for a new container
)

// runKey identifies the runs that callers share.
type runKey struct {
	loc  devcontainer.Location
	mode upMode
}

// upRunner brings workspaces up with the devcontainer CLI, each once at a time. It is safe for
// concurrent use.
type upRunner struct {
	*resolver
	pool *process.Pool

	// ctx ends with the runner: an `up` outlives its first caller
	ctx    context.Context //nolint:containedctx // see above
	cancel context.CancelFunc

	mu     sync.Mutex
	runs   map[runKey]*upRun
	closed bool
	wg     sync.WaitGroup

	folders folderLocks
}

func newUpRunner(r *resolver, pool *process.Pool) *upRunner {
	u := &upRunner{resolver: r, pool: pool, runs: map[runKey]*upRun{}}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u
}

func (u *upRunner) close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.cancel()
	u.wg.Wait()
}

// cancelRuns cancels every `up` of a workspace.
func (u *upRunner) cancelRuns(loc devcontainer.Location) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, run := range u.runs {
		if key.loc == loc {
			run.cancel(errStopRequested)
		}
	}
}

// upRun is one `up` of a workspace with its callers. It goes on if a caller gives up.
type upRun struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when id and err are set
	id     string
	err    error

	mu          sync.Mutex
	subscribers map[int]subscriber
	nextID      int
	last        [2]string // phase and message for the next subscriber
}

// subscriber receives the progress of an `up` for one caller.
type subscriber struct {
	progress func(phase, message string)
	panicked chan *executor.PanicError // receives a panic of progress
}

// notify calls progress and reports whether it did not panic.
func (s subscriber) notify(phase, message string) (ok bool) {
	defer func() {
		if p := executor.Recovered(recover()); p != nil {
			s.panicked <- p // once: the subscriber is removed
		}
	}()
	s.progress(phase, message)
	return true
}

// up brings up the container of a workspace and returns its id. Concurrent callers share one `up`,
// unless they ask for more than the one that is running.
func (u *upRunner) up(ctx context.Context, loc devcontainer.Location, mode upMode,
	progress func(phase, message string),
) (string, error) {
	run := u.join(loc, mode) //nolint:contextcheck // an `up` outlives its first caller
	if run == nil {
		return "", dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
			WithHint("repeat the call when it runs again")
	}
	panicked, unsubscribe := run.subscribe(progress)
	defer unsubscribe()
	select {
	case <-run.done:
		return run.id, run.err
	case p := <-panicked:
		panic(p)
	case <-ctx.Done():
		return "", dray.Errorf(dray.CodeContainerUnavailable,
			"the container of %s is still being brought up: %w", loc.Workspace, context.Cause(ctx)).
			WithHint("this continues in the background: repeat the call, or wait with `dray workspace up`")
	}
}

// join returns the running `up` of a workspace, or starts one; nil after close.
func (u *upRunner) join(loc devcontainer.Location, mode upMode) *upRun {
	u.mu.Lock()
	defer u.mu.Unlock()
	for m := rebuild; m >= mode; m-- {
		if run := u.runs[runKey{loc, m}]; run != nil {
			return run
		}
	}
	if u.closed {
		return nil
	}
	run := &upRun{done: make(chan struct{}), subscribers: map[int]subscriber{}}
	ctx, cancel := context.WithCancelCause(u.ctx)
	run.cancel = cancel
	key := runKey{loc, mode}
	u.runs[key] = run
	u.wg.Go(func() {
		id, err := u.runWithTimeout(ctx, key, run.broadcast)
		run.id, run.err = id, u.redacted(err)
		cancel(nil)
		u.mu.Lock()
		delete(u.runs, key)
		u.mu.Unlock()
		close(run.done)
	})
	return run
}

// redacted returns an error without secrets: it can be about texts of programs that `up` ran.
func (u *upRunner) redacted(err error) error {
	if err == nil || u.cfg.Redact == nil {
		return err
	}
	e := *dray.AsError(err)
	e.Message, e.Hint = u.cfg.Redact(e.Message), u.cfg.Redact(e.Hint)
	return &e
}

// subscribe passes the progress on until unsubscribe has returned.
func (r *upRun) subscribe(progress func(phase, message string),
) (panicked <-chan *executor.PanicError, unsubscribe func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.nextID
	r.nextID++
	s := subscriber{progress: progress, panicked: make(chan *executor.PanicError, 1)}
	if r.last[0] == "" || s.notify(r.last[0], r.last[1]) {
		r.subscribers[id] = s
	}
	return s.panicked, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, id)
	}
}

func (r *upRun) broadcast(phase, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = [2]string{phase, message}
	for id, s := range r.subscribers {
		if !s.notify(phase, message) {
			delete(r.subscribers, id)
		}
	}
}

var errUpTimeout = errors.New("it took longer than devcontainer.up_timeout")

// runWithTimeout runs `up` within Config.UpTimeout. A panic is returned as an error: no caller
// would recover it.
func (u *upRunner) runWithTimeout(ctx context.Context, key runKey,
	progress func(phase, message string),
) (id string, err error) {
	loc := key.loc
	ctx, cancel := context.WithTimeoutCause(ctx, u.cfg.UpTimeout,
		fmt.Errorf("%w (%v)", errUpTimeout, u.cfg.UpTimeout))
	defer cancel()
	if panicked := logging.RecoverPanics(u.log, "bringing up "+loc.Workspace,
		func() { id, err = u.runAlone(ctx, key, progress) }); panicked != nil {
		return "", panicked
	}
	if err != nil && errors.Is(context.Cause(ctx), errUpTimeout) {
		err = dray.AsError(err).WithHint("run `dray workspace up %s` to see what hangs; "+
			"raise devcontainer.up_timeout if the build needs more time", lexical.ShellWord(loc.Workspace))
	}
	return id, err
}

// runAlone runs an `up` while nothing else changes the workspace. Another `up` may have ended since
// the callers looked at the container, so it looks again.
func (u *upRunner) runAlone(ctx context.Context, key runKey,
	progress func(phase, message string),
) (string, error) {
	loc := key.loc
	unlock, err := u.changing.lock(ctx, loc)
	if err != nil {
		return "", err
	}
	defer unlock()
	s, err := u.examine(ctx, loc)
	if err != nil {
		return "", err
	}
	u.observed(ctx, loc, s)
	if done, err := u.upNeeded(ctx, loc, s, key.mode, progress); done || err != nil {
		return s.container.ID, err
	}
	defer u.settle(context.WithoutCancel(ctx), loc)
	return u.run(ctx, key, progress)
}

// run runs the devcontainer CLI for a trusted workspace and returns the id of its container. What
// was trusted is read by Approve, and again by the CLI: in between no container may change it.
// ${localEnv:X} has the values of the daemon and the configuration: mounts can depend on them, so
// callers cannot choose them.
func (u *upRunner) run(ctx context.Context, key runKey, progress func(phase, message string),
) (string, error) {
	loc := key.loc
	approval, err := u.approve(ctx, loc)
	if err != nil {
		return "", err
	}
	if err := u.checkImpersonation(ctx, loc); err != nil {
		return "", err
	}
	found, exists, err := u.findByLabels(ctx, loc)
	if err == nil && exists {
		err = u.engine.Restore(ctx, found.ID)
	}
	if err != nil {
		return "", err
	}
	guard := inputGuard{u, approval}
	return guard.run(ctx, found, progress, func(ctx context.Context) (string, error) {
		return u.runCLI(ctx, approval, found, key.mode, progress)
	})
}

// runCLI runs the devcontainer CLI while the inputs of the approval first are guarded. It approves
// again, because the inputs could change before they were guarded.
func (u *upRunner) runCLI(ctx context.Context, first trust.Approval,
	found devcontainer.ContainerInfo, mode upMode, progress func(phase, message string),
) (string, error) {
	loc := first.Location()
	approval, err := u.approve(ctx, loc)
	if err != nil {
		return "", err
	}
	if !slices.Equal(approval.Reads(), first.Reads()) {
		return "", dray.Errorf(dray.CodeContainerUnavailable,
			"the symlinks that lead to the configuration of %s changed while it was read",
			loc.Workspace).WithHint("repeat the call")
	}
	hash, err := u.trust.Hash(ctx, loc)
	if err != nil {
		return "", err
	}
	if err := u.tracker.set(ctx, loc, found.ID, Building, ""); err != nil {
		return "", err
	}
	log := u.log.With(zap.String("workspace", loc.Workspace))
	log.Info("workspace up started")
	res, err := up.Run(ctx, up.Options{
		CLI: u.cfg.CLI, State: u.cfg.State, Approval: approval, Container: found,
		Rebuild: mode == rebuild, Hash: hash,
		ExtraArgs: u.cfg.UpArgs, Start: u.startHelper, Redact: u.cfg.Redact,
		Env: upEnv(u.engine.Env(), u.cfg.LocalEnv, approval.Root(), loc.Workspace),
	}, progress)
	log.Info("workspace up ended", zap.String("container_id", res.ContainerID), zap.Error(err))
	return res.ContainerID, err
}

// upEnv returns the variables of `up`, each once: programs differ in which of two they use. engine
// are the variables that select the engine, local those of the configuration. No program of the
// workspace is found by PATH: trust does not cover it.
func upEnv(engine []string, local map[string]string, workspaces ...string,
) []string {
	vars := map[string]string{}
	for _, kv := range append(helper.Env(os.Environ()), engine...) {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	maps.Copy(vars, local)
	vars["PATH"], _ = SafePath(vars["PATH"], workspaces...)
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}
