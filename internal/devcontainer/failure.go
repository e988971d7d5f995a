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

// Failure is an attempt to bring a workspace up that failed, or that was under way when the daemon ended.
type Failure struct {
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

func (f Failure) location() Location { return Location{Workspace: f.Workspace, Config: f.Config} }

// HalfMade says whether a container is one that this attempt left: it may run, but its lifecycle commands did not all succeed. A
// container that was there before the attempt is none, whatever else failed, and neither is one that somebody made afterwards.
func (f Failure) HalfMade(c ContainerInfo) bool {
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

// Failures are the notes of failed attempts in the state folder, one for each workspace and configuration. A successful attempt
// removes its note.
type Failures struct {
	dir string
}

// NewFailures keeps its notes in the state folder.
func NewFailures(state string) Failures {
	return Failures{dir: filepath.Join(state, "up")}
}

// Last gives the failed attempt of a workspace, if its last attempt failed. A container that it left half made should serve no call
// until it is brought up again.
func (f Failures) Last(loc Location) (Failure, bool, error) {
	loc, err := loc.canonical()
	if err != nil {
		return Failure{}, false, err
	}
	return f.last(loc)
}

func (f Failures) last(loc Location) (Failure, bool, error) {
	text, err := readRegular(f.path(loc))
	if err != nil {
		if isAbsent(err) {
			return Failure{}, false, nil
		}
		return Failure{}, false, fmt.Errorf("read the note of the last attempt: %w", err)
	}
	var note Failure
	if err := json.Unmarshal(text, &note); err != nil {
		return Failure{}, false, fmt.Errorf("read the note of the last attempt %s: %w", f.path(loc), err)
	}
	return note, true, nil
}

func (f Failures) put(note Failure) error {
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

func (f Failures) forget(loc Location) error {
	if err := os.Remove(f.path(loc)); err != nil && !isAbsent(err) {
		return fmt.Errorf("forget the failed attempt: %w", err)
	}
	return nil
}

func (f Failures) path(loc Location) string {
	sum := sha256.Sum256([]byte(loc.Workspace + "\x00" + loc.Config))
	return filepath.Join(f.dir, hex.EncodeToString(sum[:16])+".json")
}
