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

// Attempt is an attempt to bring a workspace up that failed or that the daemon did not finish.
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
	Message   string `json:"message"`
	// Log is the end of the CLI's log.
	Log []string `json:"log"`
}

func (a Attempt) location() devcontainer.Location {
	return devcontainer.Location{Workspace: a.Workspace, Config: a.Config}
}

// Incomplete reports whether this attempt left the container: it may run, but not all of its
// lifecycle commands succeeded. Containers that were created before or after the attempt are not.
func (a Attempt) Incomplete(c devcontainer.ContainerInfo) bool {
	if c.ID == "" || c.ID == a.Container {
		return c.ID != ""
	}
	return c.ID != a.Before && c.Created.After(a.StartedAt) &&
		(a.EndedAt == nil || !c.Created.After(*a.EndedAt))
}

// AttemptStore stores failed attempts in the state directory, one for each workspace and
// configuration. A successful attempt removes its record.
type AttemptStore struct {
	dir string
}

// NewAttemptStore returns the store in the state directory.
func NewAttemptStore(state string) AttemptStore {
	return AttemptStore{dir: filepath.Join(state, "up")}
}

// Last returns the last attempt of a workspace if it failed. An incomplete container must not run
// calls until Run has succeeded.
func (s AttemptStore) Last(ctx context.Context, loc devcontainer.Location) (Attempt, bool, error) {
	loc, err := loc.Canonical(ctx)
	if err != nil {
		return Attempt{}, false, err
	}
	return s.last(loc)
}

func (s AttemptStore) last(loc devcontainer.Location) (Attempt, bool, error) {
	text, err := os.ReadFile(s.path(loc))
	if linux.IsAbsent(err) {
		return Attempt{}, false, nil
	}
	var note Attempt
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err != nil {
		return Attempt{}, false, fmt.Errorf("read the last attempt of devcontainer up, %s: %w",
			s.path(loc), err)
	}
	return note, true, nil
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

func (s AttemptStore) forget(loc devcontainer.Location) error {
	if err := os.Remove(s.path(loc)); err != nil && !linux.IsAbsent(err) {
		return fmt.Errorf("remove the record of the failed attempt: %w", err)
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
	replace bool // the container is incomplete
}

func beginAttempt(ctx context.Context, o Options) (*attempt, error) {
	loc, err := o.Approval.Location().Canonical(ctx)
	if err != nil {
		return nil, err
	}
	a := &attempt{notes: NewAttemptStore(o.State)}
	last, failed, err := a.notes.last(loc)
	if err != nil {
		return nil, err
	}
	a.replace = failed && last.Incomplete(o.Container)
	a.note = Attempt{
		Workspace: loc.Workspace, Config: loc.Config, StartedAt: time.Now().UTC(),
		Before: o.Container.ID,
	}
	if a.replace {
		// Until the CLI has removed the container, it belongs to the last attempt.
		a.note.Before, a.note.Container = "", o.Container.ID
	}
	return a, a.notes.put(a.note)
}

// end removes the record of an attempt that succeeded and completes that of a failed one.
func (a *attempt) end(err error) error {
	if err == nil {
		return a.notes.forget(a.note.location())
	}
	now := time.Now().UTC()
	a.note.EndedAt, a.note.Message = &now, err.Error()
	if failed, ok := errors.AsType[*attemptError](err); ok {
		a.note.Container, a.note.Log = cmp.Or(failed.container, a.note.Container), failed.log
	}
	return a.notes.put(a.note)
}
