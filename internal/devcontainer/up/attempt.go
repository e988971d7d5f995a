package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/linux"
)

// Attempt is the last attempt to bring a workspace up.
type Attempt struct {
	Workspace string    `json:"workspace"`
	Config    string    `json:"config"`
	StartedAt time.Time `json:"started_at"`
	// EndedAt is nil if the daemon did not finish the attempt.
	EndedAt *time.Time `json:"ended_at"`
	// Before is the container that was complete at the start, Container the incomplete one that the
	// attempt left, if known.
	Before    string `json:"before"`
	Container string `json:"container"`
	// Hash is that of the configuration, see TrustStore.Hash. BuiltFrom is the one that Container was
	// created from, or Before after a failure; it is empty if that is not known.
	Hash      string `json:"hash"`
	BuiltFrom string `json:"built_from"`
	// Message is the error. It is empty after a success.
	Message string `json:"message"`
	// Cancelled is true if the attempt was cancelled, which says nothing about the configuration.
	Cancelled bool `json:"cancelled,omitzero"`
	// Log is the end of the CLI's log.
	Log []string `json:"log"`
}

func (a Attempt) location() devcontainer.Location {
	return devcontainer.Location{Workspace: a.Workspace, Config: a.Config}
}

// Succeeded reports whether there was an attempt and it succeeded.
func (a Attempt) Succeeded() bool { return a.EndedAt != nil && a.Message == "" }

// Failed reports whether the attempt failed by itself, so that the same configuration would fail
// again. An attempt that was cancelled or that the daemon did not finish has not failed.
func (a Attempt) Failed() bool { return a.EndedAt != nil && a.Message != "" && !a.Cancelled }

// Outdated reports whether the container was created from another configuration than the one with
// the hash, as far as that is known.
func (a Attempt) Outdated(c devcontainer.ContainerInfo, hash string) bool {
	from := a.builtFrom(c)
	return from != "" && hash != "" && from != hash
}

func (a Attempt) builtFrom(c devcontainer.ContainerInfo) string {
	built := a.Before
	if a.Succeeded() {
		built = a.Container
	}
	if c.ID == "" || c.ID != built {
		return ""
	}
	return a.BuiltFrom
}

// Incomplete reports whether this attempt left the container: it may run, but not all of its
// lifecycle commands succeeded. Containers that were created before or after the attempt are not.
func (a Attempt) Incomplete(c devcontainer.ContainerInfo) bool {
	if c.ID == "" || a.StartedAt.IsZero() || a.Succeeded() {
		return false
	}
	if c.ID == a.Container {
		return true
	}
	return c.ID != a.Before && c.Created.After(a.StartedAt) &&
		(a.EndedAt == nil || !c.Created.After(*a.EndedAt))
}

// AttemptStore stores the last attempt for each workspace and configuration in the state
// directory.
type AttemptStore struct {
	dir string
}

// NewAttemptStore returns the store in the state directory.
func NewAttemptStore(state string) AttemptStore {
	return AttemptStore{dir: filepath.Join(state, "up")}
}

// Last returns the last attempt of a workspace, the zero Attempt if there was none. An incomplete
// container must not run calls until Run has succeeded.
func (s AttemptStore) Last(ctx context.Context, loc devcontainer.Location) (Attempt, error) {
	loc, err := loc.Canonical(ctx)
	if err != nil {
		return Attempt{}, err
	}
	return s.last(loc)
}

func (s AttemptStore) last(loc devcontainer.Location) (note Attempt, err error) {
	text, err := os.ReadFile(s.path(loc))
	if linux.IsAbsent(err) {
		return note, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err != nil {
		return note, fmt.Errorf("read the last attempt of devcontainer up, %s: %w", s.path(loc), err)
	}
	return note, nil
}

func (s AttemptStore) put(note Attempt) error {
	text, err := json.Marshal(note)
	if err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err == nil {
		err = helper.ReplaceFile(s.path(note.location()), text)
	}
	if err != nil {
		return fmt.Errorf("record the attempt: %w", err)
	}
	return nil
}

// Forget removes the record of a workspace whose containers were removed.
func (s AttemptStore) Forget(ctx context.Context, loc devcontainer.Location) error {
	loc, err := loc.Canonical(ctx)
	if err == nil {
		err = os.Remove(s.path(loc))
	}
	if err != nil && !linux.IsAbsent(err) {
		return fmt.Errorf("remove the record of devcontainer up: %w", err)
	}
	return nil
}

func (s AttemptStore) path(loc devcontainer.Location) string {
	return filepath.Join(s.dir, fileName(loc)+".json")
}

// attempt is one Run, recorded so that its failure outlives the daemon.
type attempt struct {
	notes   AttemptStore
	note    Attempt
	replace bool // the container is incomplete, or has to be rebuilt
}

func beginAttempt(ctx context.Context, o Options) (*attempt, error) {
	loc, err := o.Approval.Location().Canonical(ctx)
	if err != nil {
		return nil, err
	}
	a := &attempt{notes: NewAttemptStore(o.State)}
	last, err := a.notes.last(loc)
	if err != nil {
		return nil, err
	}
	a.replace = o.Container.ID != "" && (o.Rebuild || last.Incomplete(o.Container))
	a.note = Attempt{
		Workspace: loc.Workspace, Config: loc.Config, StartedAt: time.Now().UTC(),
		Before: o.Container.ID, Hash: o.Hash, BuiltFrom: last.builtFrom(o.Container),
	}
	if a.replace {
		// Until the CLI has removed the container, it belongs to the last attempt.
		a.note.Before, a.note.Container = "", o.Container.ID
	}
	return a, a.notes.put(a.note)
}

// end completes the record of the attempt.
func (a *attempt) end(ctx context.Context, result Result, err error) error {
	now := time.Now().UTC()
	a.note.EndedAt = &now
	if err == nil {
		if result.ContainerID != a.note.Before {
			a.note.BuiltFrom = a.note.Hash
		}
		a.note.Container = result.ContainerID
		return a.notes.put(a.note)
	}
	a.note.Message, a.note.Cancelled = err.Error(), errors.Is(ctx.Err(), context.Canceled)
	if failed, ok := errors.AsType[*attemptError](err); ok {
		a.note.Container, a.note.Log = cmp.Or(failed.container, a.note.Container), failed.log
	}
	return a.notes.put(a.note)
}
