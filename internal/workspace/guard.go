package workspace

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/lexical"
)

// inputGuard makes sure that no container can change what `up` reads on the host, from before it is
// hashed until the first container of the `up` starts: that one is made of it.
type inputGuard struct {
	*upRunner

	approval devcontainer.Approval
}

// guarded calls run, which approves again and runs the CLI. Before, it stops the workspace's own
// containers that could change the inputs, and fails if another one could: that one is not dray's
// to stop. It cancels the context of run, and returns why, when such a container is created or
// started meanwhile.
func (g inputGuard) guarded(ctx context.Context, own devcontainer.ContainerInfo,
	progress func(phase, message string), run func(context.Context) (id string, err error),
) (string, error) {
	if len(g.approval.Reads()) == 0 {
		return run(ctx)
	}
	unhold, err := g.held.hold(ctx, g.approval.Root())
	if err != nil {
		return "", err
	}
	defer unhold()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	starts, err := g.engine.Starts(watching) // before the list, so that none is missed
	if err == nil {
		err = g.clear(ctx, own, progress)
	}
	if err != nil {
		return "", err
	}
	var watch sync.WaitGroup
	var broken error
	watch.Go(func() {
		if err := g.follow(watching, starts); err != nil && watching.Err() == nil {
			broken = err
			end(err)
		}
		stop()
		unhold()
	})
	id, err := run(ctx)
	stop()
	watch.Wait()
	if broken != nil {
		return "", broken
	}
	return id, err
}

// clear stops the containers of the workspace that could change the inputs, and fails for others.
func (g inputGuard) clear(ctx context.Context, own devcontainer.ContainerInfo,
	progress func(phase, message string),
) error {
	writers, err := g.engine.Writers(ctx, g.approval.Reads())
	if err != nil {
		return err
	}
	for _, c := range writers {
		if !sameProject(ctx, c, own, g.approval.Location()) {
			return g.refusal(c, "runs")
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

// follow returns nil when the first container of the `up` has started, and an error when another
// one may change the inputs.
func (g inputGuard) follow(ctx context.Context, starts <-chan string) error {
	for id := range starts {
		c, writes, err := g.engine.Writer(ctx, id, g.approval.Reads())
		own := g.approval.Owns(ctx, c)
		switch {
		case err != nil:
			return err
		case own && c.Status != "created": // the CLI has read its files
			return nil
		case !own && writes:
			return g.refusal(c, "was started meanwhile")
		}
	}
	return dray.Errorf(dray.CodeEngineUnavailable,
		"the events of the container engine ended while workspace %s was brought up",
		g.approval.Location().Workspace).WithHint("repeat the call")
}

func (g inputGuard) refusal(c devcontainer.ContainerInfo, state string) *dray.Error {
	folder := g.approval.Location().Workspace
	g.log.Warn("workspace not brought up: a container could change what was trusted",
		zap.String("workspace", folder), zap.String("container", c.Name))
	return dray.Errorf(dray.CodeContainerUnavailable,
		"container %s %s and can change what was trusted in %s before it is used", c.Name, state,
		folder).
		WithHint("run `docker stop %s` and repeat; or mount the workspace read-only there; or, if you "+
			"trust whatever it writes, add the folder to trust.workspaces", c.Name)
}

// heldFolders are folders whose inputs are read by an `up`. One at a time holds a folder or one
// below or above it: the container that the first `up` starts may have both mounted.
type heldFolders struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the folder is free
}

// hold waits until the folder is free, and returns the function that frees it, once.
func (h *heldFolders) hold(ctx context.Context, folder string) (func(), error) {
	for {
		h.mu.Lock()
		busy := h.overlapping(folder)
		if busy == nil {
			free := make(chan struct{})
			if h.held == nil {
				h.held = map[string]chan struct{}{}
			}
			h.held[folder] = free
			h.mu.Unlock()
			return sync.OnceFunc(func() { h.free(folder, free) }), nil
		}
		h.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (h *heldFolders) overlapping(folder string) <-chan struct{} {
	for other, busy := range h.held {
		_, below := lexical.Rel(other, folder)
		if _, above := lexical.Rel(folder, other); below || above {
			return busy
		}
	}
	return nil
}

func (h *heldFolders) free(folder string, free chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, folder)
	close(free)
}
