package workspace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/up"
)

// State is the state of a container, and of the workspace that it belongs to.
type State string

// The states.
const (
	Discovered State = "discovered" // it is configured and does not exist
	Building   State = "building"   // `up` is running
	Running    State = "running"
	Stopping   State = "stopping" // dray stops or removes it
	Stopped    State = "stopped"
	Failed     State = "failed" // the last `up` failed, so calls fail too
)

// transitions are the legal changes of state (RT-07). Other programs may start, stop and remove a
// container at any time. The first state is Discovered.
var transitions = map[State][]State{
	"":         {Discovered},
	Discovered: {Building, Running, Stopped, Failed}, // Failed: known from an earlier daemon
	Building:   {Running, Failed, Stopped, Discovered},
	Running:    {Building, Stopping, Stopped, Discovered, Failed}, // Failed: in an `up` that kept it
	Stopping:   {Running, Stopped, Discovered, Failed},
	Stopped:    {Building, Running, Stopping, Discovered},
	Failed:     {Building, Running, Stopping, Stopped, Discovered},
}

// Transition is a change of state of a workspace's container.
type Transition struct {
	Workspace, Config string
	// Container is the full id of the container, if there is one.
	Container string
	From, To  State
	// Error is why the last `up` failed, if To is Failed.
	Error string
}

// tracker holds the states of the workspaces that are configured or were used, and records every
// change. It is safe for concurrent use.
type tracker struct {
	record func(context.Context, Transition) error

	mu     sync.Mutex
	states map[devcontainer.Location]State
}

// set changes the state of a workspace and records it. It fails if the change is illegal or cannot
// be recorded; the state is then unchanged.
func (t *tracker) set(ctx context.Context, loc devcontainer.Location, container string, to State,
	failure string,
) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.states[loc] == "" && to != Discovered {
		if err := t.change(ctx, loc, Transition{To: Discovered}); err != nil {
			return err
		}
	}
	return t.change(ctx, loc, Transition{Container: container, To: to, Error: failure})
}

// change changes the state to tr.To. It sets the other fields of tr.
func (t *tracker) change(ctx context.Context, loc devcontainer.Location, tr Transition) error {
	tr.Workspace, tr.Config, tr.From = loc.Workspace, loc.Config, t.states[loc]
	if tr.From == tr.To {
		return nil
	}
	if !slices.Contains(transitions[tr.From], tr.To) {
		return dray.Errorf(dray.CodeConflict, "workspace %s is %s and cannot become %s", loc.Workspace,
			tr.From, tr.To).WithHint("repeat the request; `dray workspace ls` shows the state")
	}
	err := t.record(ctx, tr)
	if err == nil {
		t.states[loc] = tr.To
	}
	return err
}

// inProgress returns the state of a workspace while dray changes it, else "".
func (t *tracker) inProgress(loc devcontainer.Location) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.states[loc]; s == Building || s == Stopping {
		return s
	}
	return ""
}

// locations returns the workspaces.
func (t *tracker) locations() []devcontainer.Location {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.states))
}

// snapshot is what is known of the container of a workspace.
type snapshot struct {
	container devcontainer.ContainerInfo // zero if there is none
	last      up.Attempt
}

// ready reports whether calls can run in the container.
func (s snapshot) ready() bool {
	// after an incomplete attempt some of its lifecycle commands have failed, or are running
	return s.container.Running() && !s.last.Incomplete(s.container)
}

func (s snapshot) state() State {
	switch {
	case s.ready():
		return Running
	case s.last.Failed():
		return Failed
	case s.container.ID != "":
		return Stopped
	default:
		return Discovered
	}
}

// snapshotOf selects the container of a workspace from a list. The list of an engine can be some
// milliseconds older than its events.
func (r *resolver) snapshotOf(ctx context.Context, loc devcontainer.Location,
	containers []devcontainer.ContainerInfo,
) (s snapshot, err error) {
	s.container, _ = loc.Match(ctx, containers)
	s.last, err = up.NewAttemptStore(r.cfg.State).Last(ctx, loc)
	return s, err
}

// examine returns the container of a workspace as the engine reports it now.
func (r *resolver) examine(ctx context.Context, loc devcontainer.Location) (s snapshot, err error) {
	if s.container, _, err = r.findByLabels(ctx, loc); err != nil {
		return s, err
	}
	s.last, err = up.NewAttemptStore(r.cfg.State).Last(ctx, loc)
	return s, err
}

// settle records the state of a workspace after a change by dray.
func (r *resolver) settle(ctx context.Context, loc devcontainer.Location) {
	s, err := r.examine(ctx, loc)
	if err != nil { // without an engine nothing runs; the next observation corrects it
		s.container = devcontainer.ContainerInfo{}
	}
	r.observed(ctx, loc, s)
}

// observed records the state that was found.
func (r *resolver) observed(ctx context.Context, loc devcontainer.Location, s snapshot) {
	failure := ""
	if s.state() == Failed {
		failure = s.last.Message
	}
	if err := r.tracker.set(ctx, loc, s.container.ID, s.state(), failure); err != nil {
		r.log.Warn("container state not recorded", zap.String("workspace", loc.Workspace),
			zap.String("state", string(s.state())), zap.Error(err))
	}
}

// observeDelay is the time from a change to the observation, in which further changes are merged.
const observeDelay = 200 * time.Millisecond

// observe records the changes that other programs make, until ctx is done.
func (r *resolver) observe(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(observeDelay):
		}
		for _, loc := range r.tracker.locations() {
			// an engine that does not answer reports its return as a change
			if s, err := r.examine(ctx, loc); err == nil {
				r.observeUnchanged(ctx, loc, s)
			}
		}
	}
}

// observeUnchanged records the state that was found unless a change is in progress, whose result
// settle records.
func (r *resolver) observeUnchanged(ctx context.Context, loc devcontainer.Location, s snapshot) {
	if unlock, ok := r.changing.tryLock(loc); ok {
		defer unlock()
		r.observed(ctx, loc, s)
	}
}

// locationLocks serialize the changes of each workspace.
type locationLocks struct {
	mu    sync.Mutex
	locks map[devcontainer.Location]chan struct{}
}

func (l *locationLocks) of(loc devcontainer.Location) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.locks[loc]
	if lock == nil {
		lock = make(chan struct{}, 1)
		l.locks[loc] = lock
	}
	return lock
}

// lock blocks until no other change of the workspace is in progress or ctx is done.
func (l *locationLocks) lock(ctx context.Context, loc devcontainer.Location,
) (unlock func(), err error) {
	lock := l.of(loc)
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *locationLocks) tryLock(loc devcontainer.Location) (unlock func(), ok bool) {
	lock := l.of(loc)
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, true
	default:
		return nil, false
	}
}
