package trust

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/devcontainer"
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
	// Tools are the tools that the workspace declares for its container.
	Tools []SummaryLine `json:"tools"`
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

// String returns the line as it is shown.
func (l SummaryLine) String() string { return l.Name + " " + l.Value }

var lifecycle = []string{
	"initializeCommand", "onCreateCommand", "updateContentCommand", "postCreateCommand",
	"postStartCommand", "postAttachCommand",
}

func (in *inputs) summary() Summary {
	values := in.file.Values
	s := Summary{
		Workspace: in.loc.Workspace, Config: in.loc.Config, Hash: in.hash(), Source: sourceOf(in.file),
		Commands: []SummaryLine{}, Access: []SummaryLine{},
		Tools: []SummaryLine{}, Features: []string{}, Files: []string{in.loc.Config}, Notes: in.notes(),
	}
	for _, name := range lifecycle {
		s.Commands = appendLine(s.Commands, name, values[name])
	}
	s.Access = append(s.Access, in.mounted()...)
	tools, problem := in.tools.summary()
	s.Tools = append(s.Tools, tools...)
	if problem != "" {
		s.Notes = append(s.Notes, "none of the project's tools can be called: "+problem)
	}
	features, _ := values["features"].(map[string]any)
	s.Features = append(s.Features, slices.Sorted(maps.Keys(features))...)
	s.LocalEnv = in.localEnv()
	s.Files = append(s.Files, slices.DeleteFunc(in.existing(),
		func(path string) bool { return path == in.loc.Config })...)
	return s
}

// mounted returns the directory that is mounted by default, and what is not harmless.
func (in *inputs) mounted() []SummaryLine {
	var lines []SummaryLine
	if _, named := in.file.Values["workspaceMount"]; !named && in.root != "" {
		lines = append(lines, SummaryLine{"workspaceMount", "the directory " + in.root})
	}
	return append(lines, in.access()...)
}

// localEnv returns the host's variables that are used, sorted.
func (in *inputs) localEnv() []string {
	names := maps.Clone(in.project.HostEnv)
	if names == nil {
		names = map[string]bool{}
	}
	devcontainer.CollectLocalEnv(in.file.Values, names)
	for _, metadata := range in.features {
		devcontainer.CollectLocalEnv(metadata, names)
	}
	return append([]string{}, slices.Sorted(maps.Keys(names))...)
}

func (in *inputs) notes() []string {
	notes := []string{}
	for _, fault := range in.file.Errors {
		notes = append(notes, fmt.Sprintf("%s: %s", in.loc.Config, fault.Error()))
	}
	if !isEmpty(in.file.Values["initializeCommand"]) {
		notes = append(notes,
			"initializeCommand runs on this machine; only the listed files that it uses are covered")
	}
	if in.root != "" && in.realRoot != in.loc.Workspace {
		notes = append(notes, "the top of the git work tree is mounted, not only the workspace: "+in.root)
	}
	return notes
}

func sourceOf(file devcontainer.ConfigFile) string {
	values := file.Values
	build, _ := values["build"].(map[string]any)
	switch {
	case file.IsDockerfile():
		text := "Dockerfile " + display(cmp.Or(values["dockerFile"], build["dockerfile"]))
		if context := cmp.Or(values["context"], build["context"]); context != nil {
			text += ", build context " + display(context)
		}
		return text
	case file.IsCompose():
		return "compose " + display(values["dockerComposeFile"]) + ", service " +
			display(values["service"])
	case values["image"] != nil:
		return "image " + display(values["image"])
	}
	return "none: the configuration has no image, Dockerfile or compose file"
}

// appendLine appends a property with a line for each element of a list.
func appendLine(lines []SummaryLine, name string, value any) []SummaryLine {
	if isEmpty(value) {
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

// isEmpty reports whether the reference treats a value as absent.
func isEmpty(value any) bool {
	return value == nil || value == false || value == "" || value == 0.0
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
		fmt.Fprintf(&out, "%-22s %s\n", lexical.EscapeControl(name), lexical.EscapeControl(value))
	}
	line("workspace", s.Workspace)
	line("configuration", s.Config)
	line("made from", s.Source)
	for _, l := range slices.Concat(s.Commands, s.Access, s.Tools) {
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
