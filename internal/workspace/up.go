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

// upRunner brings workspaces up with the devcontainer CLI, each once at a time. It is safe for
// concurrent use.
type upRunner struct {
	*resolver
	pool *process.Pool

	// ctx ends with the runner: an `up` outlives its first caller
	ctx    context.Context //nolint:containedctx // see above
	cancel context.CancelFunc

	mu     sync.Mutex
	runs   map[devcontainer.Location]*upRun
	closed bool
	wg     sync.WaitGroup

	folders folderLocks
}

func newUpRunner(r *resolver, pool *process.Pool) *upRunner {
	u := &upRunner{resolver: r, pool: pool, runs: map[devcontainer.Location]*upRun{}}
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

// running reports whether an `up` of the workspace is running.
func (u *upRunner) running(loc devcontainer.Location) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.runs[loc] != nil
}

// upRun is one `up` of a workspace with its callers. It goes on if a caller gives up.
type upRun struct {
	done chan struct{} // closed when id and err are set
	id   string
	err  error

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

// up brings up the container of a workspace and returns its id. Concurrent callers share one `up`.
func (u *upRunner) up(ctx context.Context, loc devcontainer.Location,
	progress func(phase, message string),
) (string, error) {
	run, first := u.join(loc)
	if run == nil {
		return "", dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
			WithHint("repeat the call when it runs again")
	}
	panicked, unsubscribe := run.subscribe(progress)
	defer unsubscribe()
	if first {
		go func() { // counted by join
			defer u.wg.Done()
			run.id, run.err = u.runWithTimeout(u.ctx, loc, run.broadcast)
			u.mu.Lock()
			delete(u.runs, loc)
			u.mu.Unlock()
			close(run.done)
		}()
	}
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

// join returns the running `up` of a workspace, or a new one that the caller has to run; nil after
// close.
func (u *upRunner) join(loc devcontainer.Location) (run *upRun, first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if run := u.runs[loc]; run != nil {
		return run, false
	}
	if u.closed {
		return nil, false
	}
	u.wg.Add(1)
	run = &upRun{done: make(chan struct{}), subscribers: map[int]subscriber{}}
	u.runs[loc] = run
	return run, true
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
func (u *upRunner) runWithTimeout(ctx context.Context, loc devcontainer.Location,
	progress func(phase, message string),
) (id string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, u.cfg.UpTimeout,
		fmt.Errorf("%w (%v)", errUpTimeout, u.cfg.UpTimeout))
	defer cancel()
	if panicked := logging.RecoverPanics(u.log, "bringing up "+loc.Workspace,
		func() { id, err = u.run(ctx, loc, progress) }); panicked != nil {
		return "", panicked
	}
	if err != nil && errors.Is(context.Cause(ctx), errUpTimeout) {
		err = dray.AsError(err).WithHint("run `dray workspace up %s` to see what hangs; "+
			"raise devcontainer.up_timeout if the build needs more time", lexical.ShellWord(loc.Workspace))
	}
	return id, err
}

// run runs the devcontainer CLI for a trusted workspace and returns the id of its container. What
// was trusted is read by Approve, and again by the CLI: in between no container may change it.
// ${localEnv:X} has the values of the daemon and the configuration: mounts can depend on them, so
// callers cannot choose them.
func (u *upRunner) run(ctx context.Context, loc devcontainer.Location,
	progress func(phase, message string),
) (string, error) {
	approval, err := u.trust.Approve(ctx, loc)
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
		return u.runCLI(ctx, approval, found, progress)
	})
}

// runCLI runs the devcontainer CLI while the inputs of the approval first are guarded. It approves
// again, because the inputs could change before they were guarded.
func (u *upRunner) runCLI(ctx context.Context, first trust.Approval,
	found devcontainer.ContainerInfo, progress func(phase, message string),
) (string, error) {
	loc := first.Location()
	approval, err := u.trust.Approve(ctx, loc)
	if err != nil {
		return "", err
	}
	if !slices.Equal(approval.Reads(), first.Reads()) {
		return "", dray.Errorf(dray.CodeContainerUnavailable,
			"the symlinks that lead to the configuration of %s changed while it was read",
			loc.Workspace).WithHint("repeat the call")
	}
	log := u.log.With(zap.String("workspace", loc.Workspace))
	log.Info("workspace up started")
	res, err := up.Run(ctx, up.Options{
		CLI: u.cfg.CLI, State: u.cfg.State, Approval: approval, Container: found,
		ExtraArgs: u.cfg.UpArgs, Start: u.startHelper,
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
