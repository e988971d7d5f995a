package devcontainer

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/dray-dev/dray/internal/lexical"
)

// Summary is what a trust is about, for people: what `up` would do to this machine. Every string of
// it comes from the workspace.
type Summary struct {
	Workspace string `json:"workspace"`
	Config    string `json:"config"`
	// Hash is what the trust is bound to: "sha256:" and hexadecimal digits.
	Hash string `json:"hash"`
	// Source is what the container is made from: "image ...", "Dockerfile ..." or "compose ...".
	Source string `json:"source"`
	// Commands are the lifecycle commands in the order in which they run. Only initializeCommand runs
	// on the host.
	Commands []SummaryLine `json:"commands"`
	// Access is what the container gets of the host: mounts, arguments of docker run, privileges.
	Access []SummaryLine `json:"access"`
	// Features are installed into the image.
	Features []string `json:"features"`
	// LocalEnv are the variables of the host that the configuration uses.
	LocalEnv []string `json:"local_env"`
	// Files are those that the trust is bound to.
	Files []string `json:"files"`
	// Notes say what the configuration may mean otherwise than it looks.
	Notes []string `json:"notes"`
}

// SummaryLine is one property with one value.
type SummaryLine struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

var lifecycle = []string{
	"initializeCommand", "onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand",
}

// access are the properties that open the host to the container.
var access = []string{
	"workspaceMount", "mounts", "runArgs", "privileged", "capAdd", "securityOpt",
	"appPort", "containerUser",
}

func (f *trustInputs) summary() Summary {
	values := f.file.values
	s := Summary{
		Workspace: f.loc.Workspace, Config: f.loc.Config, Hash: f.hash(), Source: sourceOf(values), Commands: []SummaryLine{}, Access: []SummaryLine{},
		Features: []string{}, Files: []string{f.loc.Config}, Notes: f.notes(),
	}
	for _, name := range lifecycle {
		s.Commands = appendLine(s.Commands, name, values[name])
	}
	if _, named := values["workspaceMount"]; !named && f.root != "" {
		s.Access = append(s.Access, SummaryLine{"workspaceMount", "the folder " + f.root})
	}
	for _, name := range access {
		s.Access = appendLine(s.Access, name, values[name])
	}
	for _, service := range f.services {
		s.Access = append(s.Access, service.access...)
	}
	features, _ := values["features"].(entry)
	s.Features = append(s.Features, slices.Sorted(maps.Keys(features))...)
	names := map[string]bool{}
	collectLocalEnv(values, names)
	s.LocalEnv = sortedNames(names)
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		if isFile := strings.HasPrefix(f.files[path], "file ") ||
			strings.HasPrefix(f.files[path], "link "); isFile && path != f.loc.Config {
			s.Files = append(s.Files, path)
		}
	}
	return s
}

// notes warn of what a reader of the file may miss.
func (f *trustInputs) notes() []string {
	notes := []string{}
	for _, fault := range f.file.faults {
		notes = append(notes, fmt.Sprintf("%s: %s", f.loc.Config, fault.Error()))
	}
	if isTruthy(f.file.values["initializeCommand"]) {
		notes = append(notes,
			"initializeCommand runs on this machine; what it goes on to read or start is not covered, beside the files listed")
	}
	if f.root != "" && realPath(f.root) != f.loc.Workspace {
		notes = append(notes, "the top of the git work tree is mounted, not the workspace alone: "+f.root)
	}
	return notes
}

func sourceOf(values entry) string {
	build, _ := values["build"].(entry)
	switch {
	case isDockerfile(values):
		name := values["dockerFile"]
		if name == nil {
			name = build["dockerfile"]
		}
		context := values["context"]
		if context == nil {
			context = build["context"]
		}
		if context == nil {
			return "Dockerfile " + shown(name)
		}
		return "Dockerfile " + shown(name) + ", build context " + shown(context)
	case isCompose(values):
		return "compose " + shown(values["dockerComposeFile"]) + ", service " + shown(values["service"])
	case values["image"] != nil:
		return "image " + shown(values["image"])
	}
	return "nothing: the configuration names no image, Dockerfile or compose file"
}

// serviceSummary is what a service of a compose file gets of the host.
type serviceSummary struct {
	access []SummaryLine
}

var serviceAccess = []string{
	"image", "build", "volumes", "privileged", "cap_add", "security_opt", "devices", "network_mode", "pid", "ipc", "userns_mode", "cgroup_parent", "ports", "volumes_from",
}

func summariseService(name string, service map[string]any) serviceSummary {
	var s serviceSummary
	for _, property := range serviceAccess {
		s.access = appendLine(s.access, "service "+name+": "+property, service[property])
	}
	return s
}

// appendLine adds a property, one line for each element of a list.
func appendLine(lines []SummaryLine, name string, value any) []SummaryLine {
	if !isTruthy(value) {
		return lines
	}
	list, ok := value.([]any)
	if !ok || strings.HasSuffix(name, "Command") {
		return append(lines, SummaryLine{name, shown(value)})
	}
	for _, v := range list {
		lines = append(lines, SummaryLine{name, shown(v)})
	}
	return lines
}

// shown writes a value for people: text as it is, everything else as JSON.
func shown(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// Write prints the summary. Control characters are shown, not sent to the terminal.
func (s Summary) Write(w io.Writer) error {
	var out strings.Builder
	line := func(name,
		value string,
	) {
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
	}{{"feature", s.Features}, {"variable of the host", s.LocalEnv}, {"bound to", s.Files}, {
		"note",
		s.Notes,
	}} {
		for _, value := range list.values {
			line(list.name, value)
		}
	}
	line("hash", s.Hash)
	_, err := io.WriteString(w, out.String())
	return err
}

// terminalSequence matches what terminals take for commands: CSI, OSC and the short escapes. The
// byte ranges are ECMA-48's.
var terminalSequence = regexp.MustCompile(`\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x40-\x5a\x5c-\x5f])`)

// escapeControl shows each character that a terminal would act on as an escape: text from a
// workspace must not look like other text than it is.
func escapeControl(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) { // which invisible and direction marks are not
			out.WriteRune(r)
			continue
		}
		fmt.Fprintf(&out, `\u%04x`, r)
	}
	return out.String()
}

// plainLine makes one line of a program's output: colours and cursor movements go, what a carriage
// return would have overwritten goes too, and the rest is printable and at most limit bytes long.
func plainLine(text string, limit int) string {
	text = terminalSequence.ReplaceAllString(text, "")
	text = strings.TrimRight(text, "\r\n\t ")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	text = escapeControl(strings.ReplaceAll(text, "\t", " "))
	return lexical.Truncate(text, limit)
}
