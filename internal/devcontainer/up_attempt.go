package devcontainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
)

// UpAttempt is an attempt to bring a workspace up that failed or that the daemon did not finish.
type UpAttempt struct {
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

// Incomplete reports whether this attempt left the container: it may run, but not all of its
// lifecycle commands succeeded. Containers that were created before or after the attempt are not.
func (a UpAttempt) Incomplete(c ContainerInfo) bool {
	if c.ID == "" || c.ID == a.Container {
		return c.ID != ""
	}
	return c.ID != a.Before && c.Created.After(a.StartedAt) &&
		(a.EndedAt == nil || !c.Created.After(*a.EndedAt))
}

// UpAttemptStore stores failed attempts in the state directory, one for each workspace and
// configuration. A successful attempt removes its record.
type UpAttemptStore struct {
	dir string
}

// NewUpAttemptStore returns the store in the state directory.
func NewUpAttemptStore(state string) UpAttemptStore {
	return UpAttemptStore{dir: filepath.Join(state, "up")}
}

// Last returns the last attempt of a workspace if it failed. An incomplete container must not run
// calls until Up has succeeded.
func (s UpAttemptStore) Last(ctx context.Context, loc Location) (UpAttempt, bool, error) {
	loc, err := loc.canonical(ctx)
	if err != nil {
		return UpAttempt{}, false, err
	}
	return s.last(loc)
}

func (s UpAttemptStore) last(loc Location) (UpAttempt, bool, error) {
	text, err := os.ReadFile(s.path(loc))
	if isAbsent(err) {
		return UpAttempt{}, false, nil
	}
	var note UpAttempt
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err != nil {
		return UpAttempt{}, false, fmt.Errorf("read the last attempt of devcontainer up, %s: %w",
			s.path(loc), err)
	}
	return note, true, nil
}

func (s UpAttemptStore) put(note UpAttempt) error {
	text, err := json.Marshal(note)
	if err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err == nil {
		err = replaceFile(s.path(Location{note.Workspace, note.Config}), text)
	}
	if err != nil {
		return fmt.Errorf("record the attempt: %w", err)
	}
	return nil
}

func (s UpAttemptStore) forget(loc Location) error {
	if err := os.Remove(s.path(loc)); err != nil && !isAbsent(err) {
		return fmt.Errorf("remove the record of the failed attempt: %w", err)
	}
	return nil
}

func (s UpAttemptStore) path(loc Location) string {
	return filepath.Join(s.dir, loc.fileName()+".json")
}

// upAttempt is one Up, recorded so that its failure outlives the daemon.
type upAttempt struct {
	notes   UpAttemptStore
	note    UpAttempt
	replace bool // the container is incomplete
}

func beginAttempt(ctx context.Context, o UpOptions) (*upAttempt, error) {
	loc, err := o.Approval.loc.canonical(ctx)
	if err != nil {
		return nil, err
	}
	a := &upAttempt{notes: NewUpAttemptStore(o.State)}
	last, failed, err := a.notes.last(loc)
	if err != nil {
		return nil, err
	}
	a.replace = failed && last.Incomplete(o.Container)
	a.note = UpAttempt{
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
func (a *upAttempt) end(err error) error {
	if err == nil {
		return a.notes.forget(Location{a.note.Workspace, a.note.Config})
	}
	now := time.Now().UTC()
	a.note.EndedAt, a.note.Message = &now, err.Error()
	if failed, ok := errors.AsType[*upError](err); ok {
		a.note.Container, a.note.Log = cmp.Or(failed.container, a.note.Container), failed.log
	}
	return a.notes.put(a.note)
}
