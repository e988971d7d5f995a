package workspace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// BreakerState is the state of the circuit breaker of a container.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // calls run
	BreakerOpen     BreakerState = "open"      // calls are refused
	BreakerHalfOpen BreakerState = "half_open" // one call at a time runs, and decides
)

// Breakers refuse calls to containers whose last calls failed because of the container or the
// engine (RE-03). A container has a breaker by the name in the route of its calls, or else by its
// workspace. Breakers are safe for concurrent use.
type Breakers struct {
	// OnChange is called when a breaker opens or closes, in order; it must not block. Nil is allowed.
	OnChange func(BreakerChange)

	failures int
	open     time.Duration
	log      *zap.Logger

	mu sync.Mutex
	// targets has the breakers with failures. That of any other container is closed.
	targets map[string]*breaker
}

// BreakerChange is a change of the breaker of a container, given by its name in routes or by its
// workspace. Failures and Last, the message of the last failure, are those that opened it.
type BreakerChange struct {
	Container string
	State     BreakerState
	Failures  int
	Last      string
}

type breaker struct {
	failures  int       // calls in a row that failed
	openUntil time.Time // zero while it is closed
	probing   bool      // a call runs that decides
	last      string    // message of the last failure
}

// maxBreakers bounds the breakers that are not open: while the engine is away, callers can bring
// any number of names.
const maxBreakers = 1024

// NewBreakers returns breakers that open after a number of failed calls in a row, at least 1, for
// the time open.
func NewBreakers(failures int, open time.Duration, log *zap.Logger) *Breakers {
	return &Breakers{failures: failures, open: open, log: log, targets: map[string]*breaker{}}
}

// State returns the state of the breaker of a container with several names: the name in routes, or
// the workspace.
func (b *Breakers) State(names ...string) BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := BreakerClosed
	for _, name := range names {
		switch t := b.targets[name]; {
		case t == nil || t.openUntil.IsZero():
		case time.Now().Before(t.openUntil):
			return BreakerOpen
		default:
			state = BreakerHalfOpen
		}
	}
	return state
}

// Check returns the error with which a call with the route would be refused.
func (b *Breakers) Check(route dray.Route) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.check(breakerName(route))
}

func breakerName(route dray.Route) string { return cmp.Or(route.Container, route.Workspace) }

func (b *Breakers) check(name string) error {
	t := b.targets[name]
	if t == nil || t.openUntil.IsZero() {
		return nil
	}
	wait := time.Until(t.openUntil)
	if wait <= 0 && !t.probing {
		return nil
	}
	err := dray.Errorf(dray.CodeContainerUnavailable,
		"the circuit breaker of %s is open: %d calls in a row failed, the last with: %s", name,
		t.failures, t.last)
	if wait <= 0 {
		return err.WithHint("another call is trying the container: repeat the call when it has ended")
	}
	return err.WithHint("correct the cause; a call tries again in %v, and for a workspace `dray "+
		"workspace up` does at once", wait.Round(time.Millisecond))
}

// Executor refuses calls to containers with an open breaker, and counts how the others end.
func (b *Breakers) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		if call.Route.Environment != dray.KindContainer {
			return next.Execute(ctx, call, sink)
		}
		name := breakerName(call.Route)
		probes, err := b.begin(name)
		if err != nil {
			return dray.Result{}, err
		}
		if probes {
			defer b.endProbe(name) // also after a panic
		}
		res, err := next.Execute(ctx, call, sink)
		switch {
		case ctx.Err() != nil: // shows neither
		case isInfrastructure(dray.CodeOf(err)):
			if b.fail(name, dray.AsError(err).Message) {
				opened := fmt.Sprintf("the circuit breaker of %s is open for %v", name, b.open)
				sink.Progress("breaker", opened)
				res.Metadata.Warnings = append(slices.Clip(res.Metadata.Warnings), opened)
			}
		case res.Metadata.Container != nil: // it was reached
			b.Close(name)
		}
		return res, err
	})
}

// begin fails if the breaker is open, and reports whether the call decides about a half-open one.
func (b *Breakers) begin(name string) (probes bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check(name); err != nil {
		return false, err
	}
	t := b.targets[name]
	if t == nil || t.openUntil.IsZero() {
		return false, nil
	}
	t.probing = true
	return true, nil
}

func (b *Breakers) endProbe(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.targets[name]; t != nil {
		t.probing = false
	}
}

// fail counts a failure and reports whether it opened the breaker.
func (b *Breakers) fail(name, message string) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.targets[name]
	now := time.Now()
	if t == nil {
		if len(b.targets) >= maxBreakers {
			maps.DeleteFunc(b.targets, func(_ string, t *breaker) bool {
				return !t.probing && now.After(t.openUntil)
			})
		}
		t = &breaker{}
		b.targets[name] = t
	}
	t.failures++
	t.last = message
	if t.failures < b.failures || now.Before(t.openUntil) {
		return false // the latter began before it opened
	}
	t.openUntil = now.Add(b.open)
	b.log.Warn("breaker opened", zap.String("container", name), zap.Int("failures", t.failures),
		zap.String("last", message))
	b.changed(BreakerChange{name, BreakerOpen, t.failures, message})
	return true
}

func (b *Breakers) changed(c BreakerChange) {
	if b.OnChange != nil {
		b.OnChange(c)
	}
}

// Close closes the breakers of a container with several names.
func (b *Breakers) Close(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if t := b.targets[name]; t != nil && !t.openUntil.IsZero() {
			b.log.Info("breaker closed", zap.String("container", name))
			b.changed(BreakerChange{Container: name, State: BreakerClosed})
		}
		delete(b.targets, name)
	}
}

// Checker checks routes as Environments do, and whether a breaker refuses them.
type Checker struct {
	Environments
	Breakers *Breakers
}

// Check returns the error that a call with the route would fail with.
func (c Checker) Check(ctx context.Context, route dray.Route, inv dray.Invocation, starts bool,
) error {
	if route.Environment == dray.KindContainer {
		if err := c.Breakers.Check(route); err != nil {
			return err
		}
	}
	return c.Environments.Check(ctx, route, inv, starts)
}
