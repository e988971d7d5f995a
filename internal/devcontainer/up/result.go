package up

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/lexical"
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

// attemptError is the error of a failed attempt with the container that it left and the end of its
// log.
type attemptError struct {
	err       *dray.Error
	container string
	log       []string
}

func (e *attemptError) Error() string { return e.err.Error() }

func (e *attemptError) Unwrap() error { return e.err }

// monitor reads the CLI's output and returns its result.
type monitor struct {
	loc    devcontainer.Location
	before string // the container that was complete before
	log    logReader
}

// follow reads both streams to their end and waits for the CLI.
func (m *monitor) follow(ctx context.Context, running helper.Running) (Result, error) {
	stopped := context.AfterFunc(ctx, running.Stop)
	defer stopped()
	stdout := make(chan []byte, 1)
	go func() { stdout <- helper.ReadTail(running.Stdout(), maxOutcome) }()
	readErr := m.log.read(running.Stderr())
	if readErr != nil {
		running.Stop() // it would block on the full pipe
	}
	last := parseOutcome(<-stdout)
	code, err := running.Wait()
	fail := func(format string, args ...any) (Result, error) {
		return Result{}, m.wrapFailure(last, dray.Errorf(dray.CodeContainerFailed, format, args...))
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
	return Result{
		ContainerID: last.ContainerID, RemoteUser: last.RemoteUser,
		RemoteWorkspaceFolder: last.RemoteWorkspaceFolder,
	}, nil
}

// wrapFailure adds the hint, the container and the end of the log.
func (m *monitor) wrapFailure(last outcome, e *dray.Error) error {
	_, fix := m.log.pull.failure(last.Message)
	hint := cmp.Or(fix, "correct the cause, then ") + "run: dray workspace up " +
		lexical.ShellWord(m.loc.Workspace)
	failed := &attemptError{log: m.log.tail}
	if last.ContainerID != "" && last.ContainerID != m.before {
		failed.container = last.ContainerID
		hint = fmt.Sprintf("the container %.12s is incomplete and will be replaced: %s",
			last.ContainerID, hint)
	}
	failed.err = e.WithHint("%s", hint)
	return failed
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
	what := strings.TrimSuffix(lexical.PlainLine(o.Description, maxMessage), ".")
	if message := shortenCommand(lexical.PlainLine(o.Message, maxMessage)); message != "" &&
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
