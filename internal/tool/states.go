package tool

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// State is whether calls may name a tool (RT-06).
type State string

// The states of a tool.
const (
	Discovered State = "discovered" // a workspace declares it that is not trusted
	Active     State = "active"
	Disabled   State = "disabled"
)

// States are which tools are disabled. They do not depend on a configuration, so a reload keeps
// them. It is safe for concurrent use.
type States struct {
	save func(ctx context.Context, change StateChange) error

	changing sync.Mutex // held while a state changes
	mu       sync.RWMutex
	disabled map[string]bool
}

// StateChange is one change of a state.
type StateChange struct {
	Principal string
	// Tool is the tool's name, and NAME@WORKSPACE for the tool of a workspace.
	Tool  string
	State State
	// Disabled are all disabled tools after the change, sorted.
	Disabled []string
}

// NewStates returns the states in which only the given tools are disabled. save records a change
// before it applies; if it fails, the state stays.
func NewStates(disabled []string, save func(context.Context, StateChange) error) *States {
	s := &States{save: save, disabled: map[string]bool{}}
	for _, name := range disabled {
		s.disabled[name] = true
	}
	return s
}

// Of returns whether a tool is active or disabled. Nil has only active tools.
func (s *States) Of(name string) State {
	if s == nil {
		return Active
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.disabled[name] {
		return Disabled
	}
	return Active
}

// Set changes the state of a tool for calls that have not started. Running calls go on.
func (s *States) Set(ctx context.Context, principal, name string, state State) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.Of(name) == state {
		return nil
	}
	next := maps.Clone(s.disabled) // changing is held, so nobody writes it
	delete(next, name)
	if state == Disabled {
		next[name] = true
	}
	change := StateChange{principal, name, state, slices.Sorted(maps.Keys(next))}
	if err := s.save(ctx, change); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disabled = next
	return nil
}

// check fails with denied if a tool is disabled.
func (s *States) check(name string) error {
	if s.Of(name) == Active {
		return nil
	}
	name, workspace, isProject := strings.Cut(name, "@")
	enable := "dray tools enable " + name
	if isProject {
		enable += " --workspace " + lexical.ShellWord(workspace)
	}
	return dray.Errorf(dray.CodeDenied, "tool %s is disabled", name).
		WithHint("use another tool, or ask the daemon's user to run %s", enable)
}
