package devcontainer

import (
	"bytes"
	"cmp"
	"context"
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

// outcome is the last line of the CLI's stdout.
type outcome struct {
	Outcome               string `json:"outcome"`
	ContainerID           string `json:"containerId"`
	RemoteUser            string `json:"remoteUser"`
	RemoteWorkspaceFolder string `json:"remoteWorkspaceFolder"`
	Message               string `json:"message"`
	Description           string `json:"description"`
}

// upError is the error of a failed attempt with the container that it left and the end of its log.
type upError struct {
	err       *dray.Error
	container string
	log       []string
}

func (e *upError) Error() string { return e.err.Error() }

func (e *upError) Unwrap() error { return e.err }

// upMonitor reads the CLI's output and returns its result.
type upMonitor struct {
	loc    Location
	before string // the container that was complete before
	log    upLog
}

// follow reads both streams to their end and waits for the CLI.
func (m *upMonitor) follow(ctx context.Context, running Running) (UpResult, error) {
	stopped := context.AfterFunc(ctx, running.Stop)
	defer stopped()
	stdout := make(chan []byte, 1)
	go func() { stdout <- ReadTail(running.Stdout(), maxOutcome) }()
	readErr := m.log.read(running.Stderr())
	if readErr != nil {
		running.Stop() // it would block on the full pipe
	}
	last := parseOutcome(<-stdout)
	code, err := running.Wait()
	fail := func(format string, args ...any) (UpResult, error) {
		return UpResult{}, m.wrapFailure(last, dray.Errorf(dray.CodeContainerFailed, format, args...))
	}
	switch {
	case ctx.Err() != nil:
		return fail("devcontainer up was stopped: %w", context.Cause(ctx))
	case err != nil:
		return fail("wait for the devcontainer CLI: %w", err)
	case readErr != nil:
		return fail("read the log of the devcontainer CLI: %w", readErr)
	case code != 0 || last.Outcome != "success" || last.ContainerID == "":
		text, _ := m.log.pull.failure(last.Message)
		return fail("%s", cmp.Or(text, last.failure(code, m.log.tail)))
	}
	return UpResult{
		ContainerID: last.ContainerID, RemoteUser: last.RemoteUser,
		RemoteWorkspaceFolder: last.RemoteWorkspaceFolder,
	}, nil
}

// wrapFailure adds the hint, the container and the end of the log.
func (m *upMonitor) wrapFailure(last outcome, e *dray.Error) error {
	_, fix := m.log.pull.failure(last.Message)
	hint := fix + "run: dray workspace up " + m.loc.Workspace
	failed := &upError{log: m.log.tail}
	if last.ContainerID != "" && last.ContainerID != m.before {
		failed.container = last.ContainerID
		hint = fmt.Sprintf("the container %.12s is incomplete and will be replaced: "+
			"correct the configuration, then %s", last.ContainerID, hint)
	}
	failed.err = e.WithHint("%s", hint)
	return failed
}

// ReadTail reads a stream until it ends or fails, and returns its last bytes, at most limit.
func ReadTail(r io.Reader, limit int) []byte {
	var tail []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		tail = append(tail, chunk[:n]...)
		if over := len(tail) - limit; over > 0 {
			tail = bytes.Clone(tail[over:])
		}
		if err != nil {
			return tail
		}
	}
}

// parseOutcome returns the last line that is an outcome.
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

// failure returns the CLI's error message with the end of its log.
func (o outcome) failure(code int, log []string) string {
	what := strings.TrimSuffix(plainLine(o.Description, maxMessage), ".")
	if message := shortenCommand(plainLine(o.Message, maxMessage)); message != "" &&
		o.Message != o.Description {
		what = strings.TrimPrefix(what+": "+message, ": ")
	}
	if what == "" {
		what = fmt.Sprintf("the devcontainer CLI exited with code %d and without a result", code)
	}
	text := "devcontainer up failed: " + what
	if excerpt := excerptOf(log); excerpt != "" {
		text += "\n" + excerpt
	}
	return text
}

// excerptOf returns the last lines of the log, at most maxExcerpt bytes.
func excerptOf(log []string) string {
	size, from := 0, len(log)
	for from > 0 && size+len(log[from-1])+1 <= maxExcerpt {
		from--
		size += len(log[from]) + 1
	}
	return strings.Join(log[from:], "\n")
}

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
		err = jsonv2.Unmarshal(text, &note)
	}
	if err != nil {
		return UpAttempt{}, false, fmt.Errorf("read the last attempt of devcontainer up, %s: %w",
			s.path(loc), err)
	}
	return note, true, nil
}

func (s UpAttemptStore) put(note UpAttempt) error {
	text, err := jsonv2.Marshal(note)
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
