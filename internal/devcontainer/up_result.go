package devcontainer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
)

const (
	maxOutcome = 1 << 20 // bytes of the CLI's stdout
	maxExcerpt = 500     // bytes of the log in an error message
)

// outcome is the line that the CLI ends with on stdout.
type outcome struct {
	Outcome               string `json:"outcome"`
	ContainerID           string `json:"containerId"`
	RemoteUser            string `json:"remoteUser"`
	RemoteWorkspaceFolder string `json:"remoteWorkspaceFolder"`
	Message               string `json:"message"`
	Description           string `json:"description"`
}

// upError is a failed attempt with what is noted of it beside the message.
type upError struct {
	err       *dray.Error
	container string
	log       []string
}

// Error gives the message.
func (e *upError) Error() string { return e.err.Error() }

// Unwrap gives the error with its code.
func (e *upError) Unwrap() error { return e.err }

// upMonitor reads what the CLI says and judges its end.
type upMonitor struct {
	loc    Location
	before string // the finished container that was there
	log    upLog
}

// follow reads both streams to their end and waits.
func (f *upMonitor) follow(ctx context.Context, running Running) (UpResult, error) {
	stopped := context.AfterFunc(ctx, running.Stop)
	defer stopped()
	stdout := make(chan []byte, 1)
	go func() { stdout <- readTail(running.Stdout()) }()
	readErr := f.log.read(running.Stderr())
	if readErr != nil {
		running.Stop() // nobody reads on, so it could not go on either
	}
	last := parseOutcome(<-stdout)
	code, err := running.Wait()
	switch {
	case ctx.Err() != nil:
		return UpResult{}, f.wrapFailure(last,
			dray.Errorf(dray.CodeContainerFailed, "bringing the container up was ended: %w",
				context.Cause(ctx)))
	case err != nil:
		return UpResult{}, f.wrapFailure(last,
			dray.Errorf(dray.CodeContainerFailed, "wait for the devcontainer CLI: %w", err))
	case readErr != nil:
		return UpResult{}, f.wrapFailure(last,
			dray.Errorf(dray.CodeContainerFailed, "read the log of the devcontainer CLI: %w", readErr))
	case code == 0 && last.Outcome == "success" && last.ContainerID != "":
		return UpResult{
			ContainerID: last.ContainerID, RemoteUser: last.RemoteUser,
			RemoteWorkspaceFolder: last.RemoteWorkspaceFolder,
		}, nil
	}
	return UpResult{}, f.wrapFailure(last,
		dray.Errorf(dray.CodeContainerFailed, "%s", last.failure(code, f.log.tail)))
}

// wrapFailure adds what to do next, and what is to be noted.
func (f *upMonitor) wrapFailure(last outcome, e *dray.Error) error {
	hint := "run: dray workspace up " + f.loc.Workspace
	failed := &upError{log: f.log.tail}
	if last.ContainerID != "" && last.ContainerID != f.before {
		failed.container = last.ContainerID
		hint = fmt.Sprintf("the container %.12s was left half made and is made anew next time: correct the configuration, then %s", last.ContainerID, hint)
	}
	failed.err = e.WithHint("%s", hint)
	return failed
}

// readTail drains a stream and keeps its end.
func readTail(r io.Reader) []byte {
	var kept []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		kept = append(kept, chunk[:n]...)
		if over := len(kept) - maxOutcome; over > 0 {
			kept = bytes.Clone(kept[over:])
		}
		if err != nil {
			return kept // a stream that broke off has no outcome, and that is what is reported
		}
	}
}

// parseOutcome finds the last line that is an outcome.
func parseOutcome(stdout []byte) outcome {
	var last outcome
	for line := range bytes.Lines(stdout) {
		var o outcome
		if err := json.Unmarshal(line, &o); err == nil && o.Outcome != "" {
			last = o
		}
	}
	return last
}

// failure says what went wrong in the CLI's words, with the end of its log.
func (o outcome) failure(code int, log []string) string {
	what := strings.TrimSuffix(plainLine(o.Description, maxMessage), ".")
	if message := shortenCommand(plainLine(o.Message, maxMessage)); message != "" &&
		o.Message != o.Description {
		what = strings.TrimPrefix(what+": "+message, ": ")
	}
	if what == "" {
		what = fmt.Sprintf("the devcontainer CLI ended with code %d and without a result", code)
	}
	text := "the container could not be brought up: " + what
	if excerpt := excerptOf(log); excerpt != "" {
		text += "\n" + excerpt
	}
	return text
}

// excerptOf gives the last lines that fit into an error message.
func excerptOf(log []string) string {
	size, from := 0, len(log)
	for from > 0 && size+len(log[from-1])+1 <= maxExcerpt {
		from--
		size += len(log[from]) + 1
	}
	return strings.Join(log[from:], "\n")
}

// UpAttempt is an attempt to bring a workspace up that failed, or that was under way when the
// daemon ended.
type UpAttempt struct {
	Workspace string    `json:"workspace"`
	Config    string    `json:"config"`
	StartedAt time.Time `json:"started_at"`
	// EndedAt is nil for an attempt whose end nobody saw.
	EndedAt *time.Time `json:"ended_at"`
	// Before is the finished container that was there when it began, Container the half made one that
	// it left, as far as that is known.
	Before    string `json:"before"`
	Container string `json:"container"`
	Message   string `json:"message"`
	// Log are its last lines.
	Log []string `json:"log"`
}

func (f UpAttempt) location() Location { return Location{Workspace: f.Workspace, Config: f.Config} }

// Incomplete says whether a container is one that this attempt left: it may run, but its lifecycle
// commands did not all succeed. A container that was there before the attempt is none, whatever
// else failed, and neither is one that somebody made afterwards.
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

// UpAttemptStore are the notes of failed attempts in the state folder, one for each workspace and
// configuration. A successful attempt removes its note.
type UpAttemptStore struct {
	dir string
}

// NewFailures keeps its notes in the state folder.
func NewFailures(state string) UpAttemptStore {
	return UpAttemptStore{dir: filepath.Join(state, "up")}
}

// Last gives the failed attempt of a workspace, if its last attempt failed. A container that it
// left half made should serve no call until it is brought up again.
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
	if err := jsonv2.Unmarshal(text, &note); err != nil {
		return UpAttempt{}, false, fmt.Errorf("read the note of the last attempt %s: %w", f.path(loc),
			err)
	}
	return note, true, nil
}

func (f UpAttemptStore) put(note UpAttempt) error {
	text, err := jsonv2.Marshal(note)
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
