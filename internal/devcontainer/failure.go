package devcontainer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
)

// UpAttempt is an attempt to bring a workspace up that failed, or that was under way when the daemon ended.
type UpAttempt struct {
	Workspace string    `json:"workspace"`
	Config    string    `json:"config"`
	StartedAt time.Time `json:"started_at"`
	// EndedAt is nil for an attempt whose end nobody saw.
	EndedAt *time.Time `json:"ended_at"`
	// Before is the finished container that was there when it began, Container the half made one that it left, as far as that is known.
	Before    string `json:"before"`
	Container string `json:"container"`
	Message   string `json:"message"`
	// Log are its last lines.
	Log []string `json:"log"`
}

func (f UpAttempt) location() Location { return Location{Workspace: f.Workspace, Config: f.Config} }

// Incomplete says whether a container is one that this attempt left: it may run, but its lifecycle commands did not all succeed. A
// container that was there before the attempt is none, whatever else failed, and neither is one that somebody made afterwards.
func (f UpAttempt) Incomplete(c ContainerInfo) bool {
	switch {
	case c.ID == "":
		return false
	case c.ID == f.Container:
		return true
	case c.ID == f.Before || !c.Created.After(f.StartedAt):
		return false
	}
	return f.EndedAt == nil || !c.Created.After(*f.EndedAt)
}

// UpAttemptStore are the notes of failed attempts in the state folder, one for each workspace and configuration. A successful attempt
// removes its note.
type UpAttemptStore struct {
	dir string
}

// NewFailures keeps its notes in the state folder.
func NewFailures(state string) UpAttemptStore {
	return UpAttemptStore{dir: filepath.Join(state, "up")}
}

// Last gives the failed attempt of a workspace, if its last attempt failed. A container that it left half made should serve no call
// until it is brought up again.
func (f UpAttemptStore) Last(loc Location) (UpAttempt, bool, error) {
	loc, err := loc.canonical()
	if err != nil {
		return UpAttempt{}, false, err
	}
	return f.last(loc)
}

func (f UpAttemptStore) last(loc Location) (UpAttempt, bool, error) {
	text, err := readRegular(f.path(loc))
	if err != nil {
		if isAbsent(err) {
			return UpAttempt{}, false, nil
		}
		return UpAttempt{}, false, fmt.Errorf("read the note of the last attempt: %w", err)
	}
	var note UpAttempt
	if err := json.Unmarshal(text, &note); err != nil {
		return UpAttempt{}, false, fmt.Errorf("read the note of the last attempt %s: %w", f.path(loc), err)
	}
	return note, true, nil
}

func (f UpAttemptStore) put(note UpAttempt) error {
	text, err := json.Marshal(note)
	if err != nil {
		return fmt.Errorf("note the attempt: %w", err)
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("note the attempt: %w", err)
	}
	if err := replaceFile(f.path(note.location()), text); err != nil {
		return fmt.Errorf("note the attempt: %w", err)
	}
	return nil
}

func (f UpAttemptStore) forget(loc Location) error {
	if err := os.Remove(f.path(loc)); err != nil && !isAbsent(err) {
		return fmt.Errorf("forget the failed attempt: %w", err)
	}
	return nil
}

func (f UpAttemptStore) path(loc Location) string {
	sum := sha256.Sum256([]byte(loc.Workspace + "\x00" + loc.Config))
	return filepath.Join(f.dir, hex.EncodeToString(sum[:16])+".json")
}
