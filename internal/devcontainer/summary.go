package devcontainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/dray-dev/dray/internal/lexical"
)

// Summary is what `up` would do on this machine, for the user who decides about trust. Every string
// in it comes from the workspace.
type Summary struct {
	Workspace string `json:"workspace"`
	Config    string `json:"config"`
	// Hash is the hash of the trust inputs: "sha256:" and hexadecimal digits.
	Hash string `json:"hash"`
	// Source is the container's source: "image ...", "Dockerfile ..." or "compose ...".
	Source string `json:"source"`
	// Commands are the lifecycle commands in their order. Only initializeCommand runs on the host.
	Commands []SummaryLine `json:"commands"`
	// Access is the container's access to the host: mounts, arguments of docker run, privileges.
	Access []SummaryLine `json:"access"`
	// Features are the features to install.
	Features []string `json:"features"`
	// LocalEnv are the host's variables that the configuration uses.
	LocalEnv []string `json:"local_env"`
	// Files are the trust inputs that exist.
	Files []string `json:"files"`
	// Notes are warnings about the configuration.
	Notes []string `json:"notes"`
}

// SummaryLine is a property with one value.
type SummaryLine struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

var lifecycle = []string{
	"initializeCommand", "onCreateCommand", "updateContentCommand", "postCreateCommand",
	"postStartCommand", "postAttachCommand",
}

func (f *trustInputs) summary() Summary {
	values := f.file.values
	s := Summary{
		Workspace: f.loc.Workspace, Config: f.loc.Config, Hash: f.hash(), Source: sourceOf(values),
		Commands: []SummaryLine{}, Access: []SummaryLine{},
		Features: []string{}, Files: []string{f.loc.Config}, Notes: f.notes(),
	}
	for _, name := range lifecycle {
		s.Commands = appendLine(s.Commands, name, values[name])
	}
	if _, named := values["workspaceMount"]; !named && f.root != "" {
		s.Access = append(s.Access, SummaryLine{"workspaceMount", "the directory " + f.root})
	}
	s.Access = append(s.Access, f.access()...)
	features, _ := values["features"].(entry)
	s.Features = append(s.Features, slices.Sorted(maps.Keys(features))...)
	names := map[string]bool{}
	collectLocalEnv(values, names)
	for _, metadata := range f.features {
		collectLocalEnv(metadata, names)
	}
	maps.Copy(names, f.model.hostEnv)
	s.LocalEnv = sortedNames(names)
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		if isFile := strings.HasPrefix(f.files[path], "file ") ||
			strings.HasPrefix(f.files[path], "link "); isFile && path != f.loc.Config {
			s.Files = append(s.Files, path)
		}
	}
	return s
}

func (f *trustInputs) notes() []string {
	notes := []string{}
	for _, fault := range f.file.faults {
		notes = append(notes, fmt.Sprintf("%s: %s", f.loc.Config, fault.Error()))
	}
	if isTruthy(f.file.values["initializeCommand"]) {
		notes = append(notes,
			"initializeCommand runs on this machine; only the listed files that it uses are covered")
	}
	if f.root != "" && f.realRoot != f.loc.Workspace {
		notes = append(notes, "the top of the git work tree is mounted, not only the workspace: "+f.root)
	}
	return notes
}

func sourceOf(values entry) string {
	build, _ := values["build"].(entry)
	switch {
	case isDockerfile(values):
		text := "Dockerfile " + display(cmp.Or(values["dockerFile"], build["dockerfile"]))
		if context := cmp.Or(values["context"], build["context"]); context != nil {
			text += ", build context " + display(context)
		}
		return text
	case isCompose(values):
		return "compose " + display(values["dockerComposeFile"]) + ", service " +
			display(values["service"])
	case values["image"] != nil:
		return "image " + display(values["image"])
	}
	return "none: the configuration has no image, Dockerfile or compose file"
}

// appendLine appends a property with a line for each element of a list.
func appendLine(lines []SummaryLine, name string, value any) []SummaryLine {
	if !isTruthy(value) {
		return lines
	}
	list, ok := value.([]any)
	if !ok || strings.HasSuffix(name, "Command") {
		return append(lines, SummaryLine{name, display(value)})
	}
	for _, v := range list {
		lines = append(lines, SummaryLine{name, display(v)})
	}
	return lines
}

func display(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// Write writes the summary with control characters escaped.
func (s Summary) Write(w io.Writer) error {
	var out strings.Builder
	line := func(name, value string) {
		fmt.Fprintf(&out, "%-22s %s\n", escapeControl(name), escapeControl(value))
	}
	line("workspace", s.Workspace)
	line("configuration", s.Config)
	line("made from", s.Source)
	for _, l := range slices.Concat(s.Commands, s.Access) {
		line(l.Name, l.Value)
	}
	for _, list := range []struct {
		name   string
		values []string
	}{
		{"feature", s.Features},
		{"variable of the host", s.LocalEnv},
		{"bound to", s.Files},
		{"note", s.Notes},
	} {
		for _, value := range list.values {
			line(list.name, value)
		}
	}
	line("hash", s.Hash)
	_, err := io.WriteString(w, out.String())
	return err
}

// terminalSequence matches terminal control sequences: CSI, OSC and short escapes (ECMA-48).
var terminalSequence = lazyRegexp(`\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|` +
	`\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x40-\x5a\x5c-\x5f])`)

// escapeControl escapes the characters that a terminal interprets, and invisible ones.
func escapeControl(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) { // false for invisible characters and direction marks
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// plainLine returns a line of a program's output without control sequences and what a carriage
// return would have overwritten, printable, and at most limit bytes long.
func plainLine(text string, limit int) string {
	text = terminalSequence().ReplaceAllString(text, "")
	text = strings.TrimRight(text, "\r\n\t ")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	text = escapeControl(strings.ReplaceAll(text, "\t", " "))
	return lexical.Truncate(text, limit)
}
