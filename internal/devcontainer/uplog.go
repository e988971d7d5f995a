package devcontainer

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
)

// Bounds of what is kept of the CLI's log.
const (
	maxLogLine       = 64 << 10 // of the log
	maxMessage       = 300      // bytes of one message of progress
	maxLogTail       = 30       // lines
	minProgressLevel = 3        // messages of at least this level are meant for people
	minTailLevel     = 2        // output below this level may hold the environment
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

// upLog turns the CLI's log into progress and keeps its last lines. Command lines are not passed
// on: `docker run` carries the values of containerEnv, and the log at its lower levels the whole
// environment.
type upLog struct {
	progress func(phase, message string)
	phase    string
	tail     []string
}

// read follows the log to its end.
func (l *upLog) read(r io.Reader) error {
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

func (l *upLog) line(line []byte) {
	var e logEvent
	if err := json.Unmarshal(line, &e); err != nil {
		l.nonJSONLine(string(line))
		return
	}
	switch e.Type {
	case "start":
		l.start(e.Text)
	case "progress":
		l.lifecycleStep(e)
	case "raw":
		if e.Level >= minTailLevel {
			l.output(e)
		}
	case "text":
		if e.Level >= minProgressLevel {
			l.output(e)
		}
	}
}

// nonJSONLine is a line that is no event: what the CLI's own runtime prints. Stack traces are of no
// use to anybody here.
func (l *upLog) nonJSONLine(line string) {
	if text := plainLine(line, maxMessage); text != "" && !strings.HasPrefix(line, "    at ") {
		l.keep(text)
	}
}

// lifecycleStart is how the CLI announces a lifecycle command.
var lifecycleStart = regexp.MustCompile(`Running (?:the )?(\w+Command)\b`)

// output is what the CLI or a program that it runs says, in one line or several.
func (l *upLog) output(e logEvent) {
	for text := range strings.SplitSeq(e.Text, "\n") {
		text = shortenCommand(plainLine(text, maxMessage))
		if m := lifecycleStart.FindStringSubmatch(text); m != nil {
			l.phase = m[1]
		}
		// its version, first in every log
		if text == "" || strings.HasPrefix(text, "@devcontainers/cli ") {
			continue
		}
		l.keep(text)
		if e.Level >= minProgressLevel {
			l.progress(l.phase, text)
		}
	}
}

// lifecycleStep is a lifecycle command's own announcement; what it prints follows as output.
func (l *upLog) lifecycleStep(e logEvent) {
	if m := lifecycleStart.FindStringSubmatch(e.Name); m != nil {
		l.phase = m[1]
	}
	switch {
	case e.Status == "failed":
		l.progress(l.phase, "failed")
	case e.StepDetail != "":
		l.progress(l.phase, plainLine(e.StepDetail, maxMessage))
	}
}

// phases are the steps that take time, by the word of docker's or docker compose's command line
// that begins them.
var phases = map[string][2]string{
	"pull":  {"pull", "pulling the image"},
	"build": {"build", "building the image"},
	"run":   {"create", "creating the container"},
	"up":    {"create", "creating the containers"},
	"start": {"start", "starting the container"},
	"rm":    {"remove", "removing the container"},
}

// start tells of a step by its name alone.
func (l *upLog) start(text string) {
	command, ok := strings.CutPrefix(text, "Run: ")
	if !ok {
		return
	}
	words := strings.Fields(command)
	if len(words) == 0 || !isEngine(words[0]) {
		return
	}
	for _, word := range words[1:] {
		if word == "ps" || word == "inspect" || word == "exec" || word == "events" || word == "config" {
			return
		}
		if phase, ok := phases[word]; ok {
			l.phase = phase[0]
			l.progress(phase[0], phase[1])
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

// shortenCommand takes the arguments from the message about a failed command of the engine, for
// they may hold secrets.
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

func (l *upLog) keep(line string) {
	if n := len(l.tail); n > 0 && l.tail[n-1] == line {
		return
	}
	l.tail = append(l.tail, line)
	if len(l.tail) > maxLogTail {
		l.tail = l.tail[1:]
	}
}
