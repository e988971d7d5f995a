package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// runUp runs the reference CLI for a trusted workspace and gives the id of its container. The
// values of ${localEnv:X} are the daemon's and the configuration's: mounts can depend on them, so
// no caller over HTTP chooses any.
func (m *Manager) runUp(ctx context.Context, loc devcontainer.Location,
	progress func(phase, message string),
) (string, error) {
	approval, err := m.trust.Approve(ctx, loc)
	if err != nil {
		return "", err
	}
	found, _, err := m.findByLabels(ctx, loc)
	if err != nil {
		return "", err
	}
	key := loc.Workspace + "\x00" + loc.Config
	mount, err := m.engine.Mount(ctx, key)
	if err != nil {
		return "", err
	}
	defer m.engine.Release(key)
	env := m.upEnv()
	log := m.log.With(zap.String("workspace", loc.Workspace))
	log.Info("bringing a workspace up")
	res, err := devcontainer.Up(ctx, devcontainer.UpOptions{
		CLI: m.cfg.CLI, State: m.cfg.State, Approval: approval, Container: found.ContainerInfo, ExtraArgs: m.cfg.UpArgs, Mount: mount,
		Env: env, Start: m.startHelperProcess,
	}, progress)
	log.Info("brought a workspace up", zap.String("container_id", res.ContainerID), zap.Error(err))
	return res.ContainerID, err
}

// upEnv are the variables of `up`: each name once, because programs do not agree on which of two
// counts.
func (m *Manager) upEnv() []string {
	vars := map[string]string{}
	for _, kv := range append(devcontainer.UpEnv(os.Environ()), m.engine.Env()...) {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	maps.Copy(vars, m.cfg.LocalEnv)
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// startHelperProcess starts a helper program on the host, under supervision as any tool.
func (m *Manager) startHelperProcess(ctx context.Context,
	cmd devcontainer.Command,
) (devcontainer.Running, error) {
	proc, err := m.pool.Start(ctx, process.Spec{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir})
	if err != nil {
		return nil, process.WrapStartError(err, cmd.Dir)
	}
	_ = proc.Stdin().Close()
	return helperProcess{proc}, nil
}

// helperProcess is a helper program as internal/devcontainer knows it.
type helperProcess struct{ proc *process.Process }

func (h helperProcess) Stdout() io.Reader { return h.proc.Stdout() }
func (h helperProcess) Stderr() io.Reader { return h.proc.Stderr() }
func (h helperProcess) Stop()             { h.proc.Stop(0) }

func (h helperProcess) Wait() (int, error) {
	exit, err := h.proc.Wait()
	if exit.Signal != 0 {
		return 128 + int(exit.Signal), err
	}
	return exit.Code, err
}

// Up brings a workspace's container up, or finds that it runs.
func (m *Manager) Up(ctx context.Context, folder string,
	progress func(phase, message string),
) error {
	loc, err := m.locationOf(folder)
	if err != nil {
		return err
	}
	_, err = m.ensureRunning(ctx, loc, progress)
	return err
}

// Stop stops a workspace's container. One that does not run is left as it is.
func (m *Manager) Stop(ctx context.Context, folder string) error {
	loc, err := m.locationOf(folder)
	if err != nil {
		return err
	}
	c, found, err := m.findByLabels(ctx, loc)
	if err != nil {
		return err
	}
	if !found {
		return dray.Errorf(dray.CodeContainerNotFound, "workspace %s has no container", folder).
			WithHint("there is nothing to stop; `dray workspace up %s` would make one", folder)
	}
	if c.Status == "exited" || c.Status == "created" || c.Status == "dead" {
		return nil
	}
	m.log.Info("stopping a workspace", zap.String("workspace", folder),
		zap.String("container_id", c.ID))
	return m.engine.Stop(ctx, c.ID)
}

// Trust records that what the summary shows is agreed to.
func (m *Manager) Trust(ctx context.Context, folder string) (devcontainer.Summary, error) {
	loc, err := m.locationOf(folder)
	if err != nil {
		return devcontainer.Summary{}, err
	}
	summary, err := m.trust.Trust(ctx, loc)
	if err == nil {
		m.log.Info("a workspace is trusted", zap.String("workspace", folder),
			zap.String("hash", summary.Hash))
	}
	return summary, err
}

// Trusted says whether a workspace folder is trusted. One that cannot be judged is not.
func (m *Manager) Trusted(ctx context.Context, folder string) bool {
	loc, err := m.locationOf(folder)
	if err != nil {
		return false
	}
	trusted, _, err := m.trust.IsTrusted(ctx, loc)
	return err == nil && trusted
}

// locationOf finds the configuration of a folder, the one that a configured container names for it
// included.
func (m *Manager) locationOf(folder string) (devcontainer.Location, error) {
	// of several the first by name, every time
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Named)) {
		if n := m.cfg.Named[name]; n.Workspace == folder && n.Config != "" {
			return devcontainer.Locate(folder, n.Config)
		}
	}
	loc, err := devcontainer.Locate(folder, "")
	if err != nil {
		return loc, fmt.Errorf("looking at the workspace: %w", err)
	}
	return loc, nil
}

// upRun is one `up` of a workspace, with all who wait for it. It belongs to the manager, not to the
// call that asked first: a caller who gives up does not end it for the others.
type upRun struct {
	done chan struct{} // closed when id and err are set
	id   string
	err  error

	mu        sync.Mutex
	listeners map[int]subscriber
	next      int
	last      [2]string // what a late listener hears first
}

// subscriber is one caller who waits.
type subscriber struct {
	progress func(phase, message string)
	panicked chan *executor.PanicError // gets its panic, which is its own call's and nobody else's
}

// notify tells a listener, and says whether that went well.
func (l subscriber) notify(phase, message string) (ok bool) {
	defer func() {
		if p := executor.Recovered(recover()); p != nil {
			l.panicked <- p // the first is the last: it hears no more
		}
	}()
	l.progress(phase, message)
	return true
}

// up brings a workspace's container up, once, however many ask for it meanwhile.
func (m *Manager) up(ctx context.Context, loc devcontainer.Location,
	progress func(phase, message string),
) (string, error) {
	a, mine := m.activation(loc)
	if a == nil {
		return "", dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
			WithHint("repeat the call when it is up again")
	}
	panicked, leave := a.subscribe(progress)
	defer leave()
	if mine {
		go func() { // counted by activation; Close ends it and waits for it
			defer m.wg.Done()
			a.id, a.err = m.upWithTimeout(m.ctx, loc, a.broadcast)
			m.mu.Lock()
			delete(m.upRuns, loc)
			m.mu.Unlock()
			close(a.done)
		}()
	}
	select {
	case <-a.done:
		return a.id, a.err
	case p := <-panicked:
		panic(p)
	case <-ctx.Done():
		return "", dray.Errorf(dray.CodeContainerUnavailable,
			"the container of %s is still being brought up: %w", loc.Workspace, context.Cause(ctx)).
			WithHint("it goes on in the background; repeat the call, or wait with `dray workspace up`")
	}
}

// activation gives the one that is under way, or a new one that the caller has to begin; nil once
// the manager is closed.
func (m *Manager) activation(loc devcontainer.Location) (a *upRun, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.upRuns[loc]; a != nil {
		return a, false
	}
	if m.closed {
		return nil, false
	}
	m.wg.Add(1)
	a = &upRun{done: make(chan struct{}), listeners: map[int]subscriber{}}
	m.upRuns[loc] = a
	return a, true
}

// subscribe adds a listener. After leave has returned it is not called any more.
func (a *upRun) subscribe(progress func(phase,
	message string),
) (panicked <-chan *executor.PanicError, leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.next
	a.next++
	l := subscriber{progress: progress, panicked: make(chan *executor.PanicError, 1)}
	if a.last[0] == "" || l.notify(a.last[0], a.last[1]) {
		a.listeners[id] = l
	}
	return l.panicked, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.listeners, id)
	}
}

func (a *upRun) broadcast(phase, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = [2]string{phase, message}
	for id, l := range a.listeners {
		if !l.notify(phase, message) {
			delete(a.listeners, id)
		}
	}
}

var errUpTimeout = errors.New("it took longer than devcontainer.up_timeout")

// upWithTimeout brings a workspace up within devcontainer.up_timeout. Nobody's call is around it: a
// panic ends this start and nothing else.
func (m *Manager) upWithTimeout(ctx context.Context, loc devcontainer.Location,
	progress func(phase, message string),
) (id string, err error) {
	defer func() {
		if p := recover(); p != nil {
			id, err = "", m.panicError(loc, p)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.UpTimeout,
		fmt.Errorf("%w (%v)", errUpTimeout, m.cfg.UpTimeout))
	defer cancel()
	id, err = m.runUp(ctx, loc, progress)
	if err != nil && errors.Is(context.Cause(ctx), errUpTimeout) {
		err = dray.AsError(err).WithHint("look at what it said last (`dray workspace up %s` shows it) for what hangs; "+
			"raise devcontainer.up_timeout if the build needs that long", loc.Workspace)
	}
	return id, err
}

// panicError logs a panic under an id and makes an error that names it.
func (m *Manager) panicError(loc devcontainer.Location, p any) error {
	id := rand.Text()
	m.log.Error("bringing a workspace up panicked", zap.String("id", id),
		zap.String("workspace", loc.Workspace),
		zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
	return dray.InternalError(dray.CodeInternal, id, "bringing up %s", loc.Workspace)
}
