package up

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

// Limits of the CLI's log.
const (
	maxLogLine       = 64 << 10 // bytes
	maxMessage       = 300      // bytes of a progress message
	maxLogTail       = 30       // lines
	minProgressLevel = 3        // messages below are for debugging
	minTailLevel     = 2        // messages below may contain the environment
)

// logEvent is one line of `--log-format json`.
type logEvent struct {
	Type       string `json:"type"`
	Level      int    `json:"level"`
	Text       string `json:"text"`
	Name       string `json:"name"`
	Status     string `json:"status"`
	StepDetail string `json:"stepDetail"`
}

// logReader converts the CLI's log to progress and keeps its last lines. Values of variables may be
// secrets, and the log has them in two places, which are dropped: command lines, since `docker run`
// has the values of containerEnv, and what follows `docker compose config`, which the CLI logs as
// it was printed.
type logReader struct {
	progress func(phase, message string)
	redact   func(string) string // nil for none
	phase    string
	pull     pullLog
	tail     []string
	isConfig bool // the last command was `docker compose config`
}

func (l *logReader) read(r io.Reader) error {
	lines := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, err := lines.ReadSlice('\n')
		l.line(line)
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is too long
			_, err = lines.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *logReader) line(line []byte) {
	var e logEvent
	if err := json.Unmarshal(line, &e); err != nil {
		l.nonJSONLine(l.redacted(string(line)))
		return
	}
	e.Text, e.Name = l.redacted(e.Text), l.redacted(e.Name)
	e.StepDetail = l.redacted(e.StepDetail)
	switch e.Type {
	case "start":
		l.start(e.Text)
	case "progress":
		l.lifecycleStep(e)
	case "raw":
		if e.Level >= minTailLevel && !l.isConfig {
			l.output(e)
		}
	case "text":
		if e.Level >= minProgressLevel && !l.isConfig {
			l.output(e)
		}
	}
}

// redacted returns a text without its secrets, before a part of it is cut off.
func (l *logReader) redacted(text string) string {
	if l.redact == nil {
		return text
	}
	return l.redact(text)
}

// nonJSONLine handles output of the CLI's runtime, without stack traces.
func (l *logReader) nonJSONLine(line string) {
	if text := lexical.PlainLine(line, maxMessage); text != "" && !strings.HasPrefix(line, "    at ") {
		l.keep(text)
	}
}

// lifecycleStart matches the start of a lifecycle command in the log.
var lifecycleStart = lexical.LazyRegexp(`Running (?:the )?(\w+Command)\b`)

// output handles output of the CLI or of a program that it runs.
func (l *logReader) output(e logEvent) {
	for text := range strings.SplitSeq(shortenCommand(e.Text), "\n") {
		text = lexical.PlainLine(text, maxMessage)
		if m := lifecycleStart().FindStringSubmatch(text); m != nil {
			l.phase = m[1]
		}
		if text == "" || strings.HasPrefix(text, "@devcontainers/cli ") { // its version
			continue
		}
		l.keep(text)
		if l.phase == "pull" && e.Type == "text" { // the CLI on failed pulls, at length
			continue
		}
		l.pull.output(text)
		if e.Level >= minProgressLevel {
			l.progress(l.phase, text)
		}
	}
}

// lifecycleStep handles the progress event of a lifecycle command.
func (l *logReader) lifecycleStep(e logEvent) {
	if m := lifecycleStart().FindStringSubmatch(e.Name); m != nil {
		l.phase = m[1]
	}
	switch {
	case e.Status == "failed":
		l.progress(l.phase, "failed")
	case e.StepDetail != "":
		l.progress(l.phase, lexical.PlainLine(e.StepDetail, maxMessage))
	}
}

// phases are the phase and message of each slow step, by the subcommand of the engine's CLI.
var phases = map[string][2]string{
	"pull":  {"pull", "pulling the image"},
	"build": {"build", "building the image"},
	"run":   {"create", "creating the container"},
	"up":    {"create", "creating the containers"},
	"start": {"start", "starting the container"},
	"rm":    {"remove", "removing the container"},
}

func (l *logReader) start(text string) {
	command, ok := strings.CutPrefix(text, "Run: ")
	l.isConfig = false
	if !ok {
		return
	}
	words := strings.Fields(command)
	if len(words) == 0 || !isEngine(words[0]) {
		return
	}
	for _, word := range words[1:] {
		l.isConfig = word == "config"
		if word == "ps" || word == "inspect" || word == "exec" || word == "events" || l.isConfig {
			return
		}
		if phase, ok := phases[word]; ok {
			l.phase = phase[0]
			if image := words[len(words)-1]; word != "pull" {
				l.progress(phase[0], phase[1])
			} else if l.pull.start(image) {
				l.progress(phase[0], phase[1]+" "+image)
			}
			return
		}
	}
}

func isEngine(program string) bool {
	switch filepath.Base(program) {
	case "docker", "docker-compose", "podman", "podman-compose":
		return true
	}
	return false
}

// shortenCommand removes the arguments of a failed engine command, which may contain secrets.
func shortenCommand(text string) string {
	const failed = "Command failed: "
	before, command, ok := strings.Cut(text, failed)
	words := strings.Fields(command)
	if !ok || len(words) < 2 || !isEngine(words[0]) {
		return text
	}
	for _, word := range words[1:] {
		if _, ok := phases[word]; ok {
			return before + failed + words[0] + " " + word
		}
	}
	return before + failed + words[0]
}

func (l *logReader) keep(line string) {
	if n := len(l.tail); n > 0 && l.tail[n-1] == line {
		return
	}
	l.tail = append(l.tail, line)
	if len(l.tail) > maxLogTail {
		l.tail = l.tail[1:]
	}
}
