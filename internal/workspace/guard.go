package workspace

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/lexical"
)

// inputGuard keeps containers from changing what one `up` reads on the host. It guards from before
// the inputs are hashed until the first container of the `up` starts: by then the CLI has read
// them.
type inputGuard struct {
	*upRunner

	approval trust.Approval
}

// run calls up, which approves again and runs the CLI, while the inputs are guarded. Before, it
// stops the workspace's own containers that could change the inputs, and fails if another one
// could: that one is not dray's to stop. When such a container is created or started meanwhile, it
// cancels the context of up and returns why.
func (g inputGuard) run(ctx context.Context, own devcontainer.ContainerInfo,
	progress func(phase, message string), up func(context.Context) (id string, err error),
) (string, error) {
	if len(g.approval.Reads()) == 0 {
		return up(ctx)
	}
	unlock, err := g.folders.lock(ctx, g.approval.Root())
	if err != nil {
		return "", err
	}
	defer unlock()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	starts, err := g.engine.Starts(watching) // before the list, so that none is missed
	if err == nil {
		err = g.stopWriters(ctx, own, progress)
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan error, 1)
	go func() {
		watched <- g.watch(watching, starts, cancel)
		stop()
		unlock()
	}()
	id, err := up(ctx)
	stop()
	if err := <-watched; err != nil {
		return "", err
	}
	return id, err
}

// watch returns when the first container of the `up` has started or ctx is done. When another
// container is created or started that may change the inputs, it cancels the `up` and returns why.
func (g inputGuard) watch(ctx context.Context, starts <-chan string,
	cancel context.CancelCauseFunc,
) error {
	err := g.checkStarts(ctx, starts)
	if err != nil && ctx.Err() == nil { // once ctx is done, the engine's errors follow from that
		cancel(err)
		return err
	}
	return nil
}

// stopWriters stops the containers of the workspace that could change the inputs, and fails for
// others.
func (g inputGuard) stopWriters(ctx context.Context, own devcontainer.ContainerInfo,
	progress func(phase, message string),
) error {
	writers, err := g.engine.Writers(ctx, g.approval.Reads())
	if err != nil {
		return err
	}
	for _, c := range writers {
		if !sameProject(ctx, c, own, g.approval.Location()) {
			return g.refusal(ctx, c, "runs")
		}
	}
	for _, c := range writers {
		progress("stop", "stopping "+c.Name+", which could change what was trusted")
		if err := g.engine.Stop(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// sameProject reports whether a container is the workspace's own, or a compose service beside it
// that is not the container of another workspace.
func sameProject(ctx context.Context, c, own devcontainer.ContainerInfo,
	loc devcontainer.Location,
) bool {
	project := own.Label(devcontainer.LabelComposeProject)
	return c.ID == own.ID || project != "" &&
		c.Label(devcontainer.LabelComposeProject) == project &&
		(c.Labels[devcontainer.LabelFolder] == "" || loc.Owns(ctx, c))
}

// checkStarts returns nil when the first container of the `up` has started, and an error when
// another one may change the inputs.
func (g inputGuard) checkStarts(ctx context.Context, starts <-chan string) error {
	for id := range starts {
		c, writes, err := g.engine.Writer(ctx, id, g.approval.Reads())
		own := g.approval.Owns(ctx, c)
		switch {
		case err != nil:
			return err
		case own && c.Status != "created": // the CLI has read its files
			return nil
		case !own && writes:
			return g.refusal(ctx, c, "was started meanwhile")
		}
	}
	return dray.Errorf(dray.CodeEngineUnavailable,
		"the events of the container engine ended while workspace %s was brought up",
		g.approval.Location().Workspace).WithHint("repeat the call")
}

func (g inputGuard) refusal(ctx context.Context, c devcontainer.ContainerInfo, state string,
) *dray.Error {
	loc := g.approval.Location()
	folder, stop := loc.Workspace, "docker stop "+c.Name
	if loc.Owns(ctx, c) { // of another configuration
		stop = "dray workspace stop " + lexical.ShellWord(folder)
	}
	g.log.Warn("workspace not brought up: a container could change what was trusted",
		zap.String("workspace", folder), zap.String("container", c.Name))
	return dray.Errorf(dray.CodeContainerUnavailable,
		"container %s %s and can change what was trusted in %s before it is used", c.Name, state,
		folder).
		WithHint("run `%s` and repeat; or mount the workspace read-only there; or, if you "+
			"trust whatever it writes, add the folder to trust.workspaces", stop)
}

// folderLocks are locks of the folders from which an `up` reads its inputs. A lock excludes those
// of the same folder and of folders below or above it: the container that the first `up` starts may
// have both mounted.
type folderLocks struct {
	mu     sync.Mutex
	locked map[string]chan struct{} // closed when the folder is unlocked
}

// lock blocks until the folder can be locked or ctx is done. unlock may be called several times.
func (l *folderLocks) lock(ctx context.Context, folder string) (unlock func(), err error) {
	for {
		unlock, unlocked := l.tryLock(folder)
		if unlock != nil {
			return unlock, nil
		}
		select {
		case <-unlocked:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryLock locks the folder, or returns a channel that is closed when a lock that excludes it ends.
func (l *folderLocks) tryLock(folder string) (unlock func(), unlocked <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, unlocked := range l.locked {
		if lexical.Contains(other, folder) || lexical.Contains(folder, other) {
			return nil, unlocked
		}
	}
	if l.locked == nil {
		l.locked = map[string]chan struct{}{}
	}
	done := make(chan struct{})
	l.locked[folder] = done
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.locked, folder)
		close(done)
	}), nil
}
