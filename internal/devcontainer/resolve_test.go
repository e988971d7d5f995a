package devcontainer

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer/internal/reference"
)

// resolveCase is a workspace and its container. FOLDER and CONFIG stand for the workspace's paths.
type resolveCase struct {
	name   string
	config string
	labels map[string]string
	git    string // a folder above the workspace, relative to it, that is a git repository
	file   string // the configuration file, if it is not the usual one
}

var ownLabels = map[string]string{LabelFolder: "FOLDER", LabelConfig: "CONFIG"}

func withLabel(metadata string) map[string]string {
	labels := maps.Clone(ownLabels)
	labels[LabelMetadata] = metadata
	return labels
}

// containerEnv of every case.
var containerEnv = []string{"PATH=/usr/bin:/bin", "EMPTY=", "ODD=a=b:c", "NAME=value"}

// hostEnv of every case, beside what the reference itself needs.
var hostEnv = map[string]string{"TOKEN": "secret", "BLANK": "", "NESTED": "${containerEnv:NAME}"}

var resolveCases = []resolveCase{
	{name: "nothing said", config: `{"image": "x"}`, labels: ownLabels},
	{name: "everything said", labels: ownLabels, config: `{
		"image": "x", "name": "n", "remoteUser": "vscode", "containerUser": "root", "userEnvProbe": "loginShell", "init": true, "privileged": true,
		"capAdd": ["A", "B", "A"], "securityOpt": ["S"], "mounts": ["type=bind,src=/a,dst=/t", {"type": "volume", "source": "v", "target": "/t"}],
		"customizations": {"vscode": {"extensions": ["e"]}}, "onCreateCommand": "a", "updateContentCommand": ["b"], "postCreateCommand": {"c": "d"},
		"postStartCommand": "e", "postAttachCommand": "f", "waitFor": "onCreateCommand", "remoteEnv": {"A": "1"}, "containerEnv": {"B": "2"},
		"overrideCommand": false, "portsAttributes": {"80": {"label": "l"}}, "otherPortsAttributes": {"label": "o"}, "forwardPorts": [80, "localhost:80", "db:5432"],
		"shutdownAction": "none", "updateRemoteUserUID": false, "hostRequirements": {"cpus": 2, "memory": "8gb", "storage": "1tb", "gpu": "optional"}}`},
	{name: "label and file merged", config: `{"image": "x", "remoteUser": "me", "remoteEnv": {"B": "file", "C": "file"}, "containerEnv": {"X": "file"}, "waitFor": "onCreateCommand"}`, labels: withLabel(
		`[{"remoteUser": "base", "remoteEnv": {"A": "label", "B": "label"}, "containerEnv": {"X": "label"}, "init": true, "capAdd": ["SYS_PTRACE"], "id": "feature"},
		  {"privileged": false, "capAdd": ["SYS_PTRACE", "NET_ADMIN"], "entrypoint": "/e.sh", "onCreateCommand": "x", "userEnvProbe": "none",
		   "mounts": ["source=v,target=/t,type=volume"], "forwardPorts": [1, "localhost:2"], "hostRequirements": {"cpus": 4, "gpu": true}},
		  {"entrypoint": "/f.sh", "mounts": [{"source": "w", "target": "/t", "type": "volume"}, "source=z,target=/z,type=volume"], "forwardPorts": ["localhost:1", 3],
		   "customizations": {"a": {"b": 1}}, "overrideCommand": true, "hostRequirements": {"cpus": 1, "memory": "512mb", "gpu": {"cores": 2, "memory": "1gb"}}}]`)},
	{name: "label of one object", config: `{"image": "x"}`, labels: withLabel(`{"remoteUser": "one", "remoteEnv": {"A": "${containerWorkspaceFolder}"}}`)},
	{name: "label that is no JSON", config: `{"image": "x", "remoteUser": "me", "init": true}`, labels: withLabel(`[{`)},
	{name: "label that is a number", config: `{"image": "x", "remoteUser": "me", "init": true}`, labels: withLabel(`5`)},
	{name: "empty label", config: `{"image": "x", "init": true}`, labels: withLabel(``)},
	{name: "empty strings do not count", config: `{"image": "x", "remoteUser": "", "userEnvProbe": ""}`, labels: withLabel(`[{"remoteUser": "base", "userEnvProbe": "interactiveShell"}]`)},
	{name: "folder label alone", config: `{"image": "x", "remoteEnv": {"ID": "${devcontainerId}"}}`, labels: map[string]string{LabelFolder: "FOLDER"}},
	{name: "variables", labels: ownLabels, config: `{"image": "x", "workspaceFolder": "/w/${localWorkspaceFolderBasename}", "remoteEnv": {
		"ID": "${devcontainerId}", "LWF": "${localWorkspaceFolder}", "LWFB": "${localWorkspaceFolderBasename}", "CWF": "${containerWorkspaceFolder}",
		"CWFB": "${containerWorkspaceFolderBasename}", "LE": "${localEnv:TOKEN}", "E": "${env:TOKEN:x}", "DEF": "${localEnv:NOPE:def:lost}", "NONE": "[${localEnv:NOPE}]",
		"BLANK": "${localEnv:BLANK:def}", "CE": "${containerEnv:NAME}", "CED": "${containerEnv:NOPE:def}", "ODD": "${containerEnv:ODD}", "EMPTY": "${containerEnv:EMPTY:def}",
		"UNKNOWN": "${what:ever} ${} ${localHomeFolder} $TOKEN ${containerEnv", "TWICE": "${localEnv:NESTED}", "NESTED": "${localEnv:${localEnv:TOKEN}}",
		"LINE": "${local\nEnv:TOKEN}", "NUMBER": 1.50, "NULL": null, "TRUE": true, "LIST": ["${localEnv:TOKEN}"]}}`},
	{name: "variables in the label", config: `{"image": "x", "remoteEnv": {"A": "${localEnv:TOKEN}"}}`, labels: withLabel(`[{"remoteUser": "${containerEnv:NAME}",
		"remoteEnv": {"B": "${localEnv:TOKEN}", "C": "${devcontainerId}", "D": "${containerWorkspaceFolder}", "E": "${localWorkspaceFolder}"}}]`)},
	{name: "workspace folder uses itself", config: `{"image": "x", "workspaceFolder": "/w/${containerWorkspaceFolder}", "remoteEnv": {"A": "${containerWorkspaceFolder}"}}`, labels: ownLabels},
	{name: "workspace folder uses the container", config: `{"image": "x", "workspaceFolder": "/w/${containerEnv:NAME}"}`, labels: ownLabels},
	{name: "empty workspace folder", config: `{"image": "x", "workspaceFolder": "", "remoteEnv": {"A": "${containerWorkspaceFolder}"}}`, labels: ownLabels},
	{name: "top of a work tree", config: `{"image": "x"}`, labels: ownLabels, git: "."},
	{name: "below the top of a work tree", config: `{"image": "x"}`, labels: ownLabels, git: "../.."},
	{name: "compose", config: `{"dockerComposeFile": "c.yml", "service": "app"}`, labels: ownLabels, git: ".."},
	{name: "compose with a folder", config: `{"dockerComposeFile": ["c.yml"], "service": "app", "workspaceFolder": "/w"}`, labels: ownLabels},
	{name: "file in the workspace itself", config: `{"image": "x", "remoteEnv": {"ID": "${devcontainerId}"}}`, labels: ownLabels, file: ".devcontainer.json"},
	{
		name: "odd text",
		config: "\ufeff// c\n{'x': 1, \"image\": \"x\" \"remoteUser\": \"a\", \"remoteUser\": " +
			"\"b\",, \"remoteEnv\": {\"A\": 1,}", labels: ownLabels,
	},
}

// make builds the workspace of a case and its container.
func (c resolveCase) make(t *testing.T) Input {
	t.Helper()
	dir := filepath.Join(tempDir(t), "top", "mid", "app")
	file := c.file
	if file == "" {
		file = ".devcontainer/devcontainer.json"
	}
	write(t, dir, file, c.config)
	if c.git != "" {
		git(t, filepath.Join(dir, c.git), "init", "-q")
	}
	loc := locate(t, dir)
	container := ContainerInfo{
		ID: "c1", Status: "running", Env: containerEnv,
		Labels: map[string]string{},
	}
	for key, value := range c.labels {
		container.Labels[key] = strings.NewReplacer("FOLDER", loc.Workspace, "CONFIG", loc.Config).
			Replace(value)
	}
	return Input{Location: loc, Container: container, LocalEnv: locals(hostEnv)}
}

// Resolve agrees with the reference, which gets the same container from a fake docker (EX-07,
// CF-05).
func TestResolveAgreesWithReference(t *testing.T) {
	bundle := reference.Bundle(t)
	var inputs []Input
	for _, c := range resolveCases {
		inputs = append(inputs, c.make(t))
	}
	answers := askReference(t, bundle, inputs)
	for i, c := range resolveCases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Resolve(t.Context(), inputs[i])
			if err != nil {
				t.Fatal(err)
			}
			answers[i].compare(t, got)
		})
	}
}

func resolve(t *testing.T, config string, c ContainerInfo) ExecConfig {
	t.Helper()
	r, err := Resolve(t.Context(), Input{
		Location: workspace(t, config), Container: c,
		LocalEnv: locals(hostEnv),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// User, environment and probe are those of `devcontainer exec` (EX-07).
func TestResolvePicks(t *testing.T) {
	r := resolve(t, `{"dockerComposeFile": "c", "service": "app", "userEnvProbe": "interactiveShell", "remoteEnv": {
		"NULL": null, "N": 1.50, "BIG": 1e21, "SMALL": 1e-7, "T": true, "L": [1, null, ["a"]], "O": {}, "E": "", "INF": -1e999, "Z": -0,
		"A=B": "x", "": "y", "NUL": "a\u0000b"}}`, ContainerInfo{User: "1000:5"})
	want := map[string]string{
		"NULL": "null", "N": "1.5", "BIG": "1e+21", "SMALL": "1e-7", "T": "true", "L": "1,,a", "O": "[object Object]", "E": "", "INF": "-Infinity", "Z": "0",
	}
	if !maps.Equal(r.RemoteEnv, want) {
		t.Errorf("environment %v, want %v", r.RemoteEnv, want)
	}
	if len(r.Warnings) != 3 || !strings.Contains(strings.Join(r.Warnings, "\n"), `"A=B"`) {
		t.Errorf("warnings %q, want one for each impossible variable", r.Warnings)
	}
	if r.User != "1000:5" || r.Probe != ProbeInteractiveShell ||
		r.WorkspaceFolder != "/" {
		t.Errorf("got %+v", r)
	}
	r = resolve(t, `{"image": "x"}`, ContainerInfo{})
	if r.User != "root" || r.Probe != ProbeLoginInteractiveShell ||
		r.WorkspaceFolder != "/workspaces/app" {
		t.Errorf("defaults: %+v", r)
	}
	if r := resolve(t, `{"image": "x", "remoteUser": "${containerEnv:NAME}"}`, ContainerInfo{Env: containerEnv}); r.User != "${containerEnv:NAME}" {
		t.Errorf("the user uses the container's variables: %q", r.User)
	}
	if r := resolve(t, `{"image": "x", "userEnvProbe": "fish"}`, ContainerInfo{}); r.Probe != ProbeNone || len(r.Warnings) != 1 {
		t.Errorf("unknown probe: %q, %q", r.Probe, r.Warnings)
	}
}

func TestResolveWithoutWorkspace(t *testing.T) {
	r, err := Resolve(t.Context(), Input{
		LocalEnv: locals(hostEnv),
		Container: ContainerInfo{User: "u", Env: containerEnv, Labels: map[string]string{
			LabelMetadata: `[{"remoteEnv": {"A": "${localEnv:TOKEN}", "B": "${containerEnv:NAME}", "C": "${containerWorkspaceFolder} ${localWorkspaceFolder} ${devcontainerId}"}}]`,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"A": "", "B": "value",
		"C": "${containerWorkspaceFolder} ${localWorkspaceFolder} ${devcontainerId}",
	}
	if r.User != "u" || r.WorkspaceFolder != "" || !maps.Equal(r.RemoteEnv, want) {
		t.Errorf("got %+v", r)
	}
}

// If the workspace is reached by a symlink, folder and variables are those of the container that
// was created by the real path.
func TestResolveThroughLink(t *testing.T) {
	own := workspace(t, `{"image": "x", "remoteEnv": {"LOCAL": "${localWorkspaceFolder}"}}`)
	link := filepath.Join(tempDir(t), "link")
	if err := os.Symlink(own.Workspace, link); err != nil {
		t.Fatal(err)
	}
	c := ContainerInfo{Labels: map[string]string{LabelFolder: own.Workspace, LabelConfig: own.Config}}
	got, err := Resolve(t.Context(), Input{Location: locate(t, link), Container: c})
	if err != nil || got.WorkspaceFolder != "/workspaces/app" ||
		got.RemoteEnv["LOCAL"] != own.Workspace {
		t.Errorf("folder %s, variables %v, %v", got.WorkspaceFolder, got.RemoteEnv, err)
	}
}

func TestResolve_LabelVariablesOfConfigOnly(t *testing.T) {
	label := map[string]string{LabelMetadata: `[{"remoteEnv": {"A": "${localEnv:TOKEN}", "B": "${localEnv:NESTED:default}"}}]`}
	r := resolve(t, `{"image": "x"}`, ContainerInfo{Labels: label})
	if r.RemoteEnv["A"] != "" || r.RemoteEnv["B"] != "default" || len(r.Warnings) != 2 ||
		!strings.Contains(r.Warnings[1], "TOKEN") {
		t.Errorf("environment %v, warnings %q", r.RemoteEnv, r.Warnings)
	}
	if want := []string{"NESTED", "TOKEN"}; !reflect.DeepEqual(r.LocalEnvNames, want) {
		t.Errorf("names %v, want %v", r.LocalEnvNames, want)
	}
	r = resolve(t, `{"image": "x", "runArgs": ["-e", "T=${localEnv:TOKEN}"]}`, ContainerInfo{Labels: label})
	if r.RemoteEnv["A"] != "secret" || len(r.Warnings) != 1 {
		t.Errorf("agreed to: environment %v, warnings %q", r.RemoteEnv, r.Warnings)
	}
}

func TestResolveRefuses(t *testing.T) {
	bomb := `{"remoteEnv": {"A": "` + strings.Repeat("${containerEnv:BIG}", 40_000) + `"}}`
	for _, test := range []struct{ name, config, label, want string }{
		{name: "broken file", config: `[`, want: "must hold an object"},
		{name: "variable without a name", config: `{"image": "x", "name": "${localEnv}"}`, want: "does not name a variable"},
		{name: "variable without a name in the label", config: `{}`, label: `{"remoteUser": "${containerEnv}"}`, want: "does not name a variable"},
		{name: "folder that is no string", config: `{"workspaceFolder": 5}`, want: "workspaceFolder is not a string"},
		{name: "user that is no string", config: `{"remoteUser": 1000}`, want: "remoteUser is not a string"},
		{name: "variables that grow", config: bomb, want: "variables have more than"},
		{name: "variables that grow in the label", config: `{}`, label: bomb, want: "variables have more than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := ContainerInfo{
				Env:    []string{"BIG=" + strings.Repeat("x", 100_000)},
				Labels: map[string]string{LabelMetadata: test.label},
			}
			_, err := Resolve(t.Context(), Input{Location: workspace(t, test.config), Container: c})
			if dray.CodeOf(err) != dray.CodeContainerFailed || !strings.Contains(err.Error(), test.want) ||
				dray.AsError(err).Hint == "" {
				t.Errorf("got %v (%s)", err, dray.CodeOf(err))
			}
		})
	}
}

// The hash differs by configuration and does not depend on secrets (RS-02).
func TestConfigHash(t *testing.T) {
	loc := workspace(t, `{"image": "x", "remoteEnv": {"A": "${localEnv:TOKEN}"}}`)
	hash := func(label, token string) string {
		c := ContainerInfo{Labels: map[string]string{LabelMetadata: label}}
		r, err := Resolve(t.Context(), Input{
			Location: loc, Container: c,
			LocalEnv: locals(map[string]string{"TOKEN": token}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.ConfigHash
	}
	first := hash("", "a")
	if first != hash("", "b") {
		t.Error("the hash depends on the value of a variable of the host")
	}
	if len(first) != len("sha256:")+64 || first == hash("{}", "a") {
		t.Error("the hash does not depend on the label")
	}
	write(t, loc.Workspace, ".devcontainer/devcontainer.json", `{"image": "y"}`)
	if first == hash("", "a") {
		t.Error("the hash does not depend on the file")
	}
}

// Only bind mounts are mapped, also by the real path of their source (PM-14).
func TestBindMounts(t *testing.T) {
	dir := tempDir(t)
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/usr", link); err != nil {
		t.Fatal(err)
	}
	got := bindMounts([]MountInfo{
		{Type: "bind", Source: dir + "/", Destination: "/workspaces/app"},
		{Type: "volume", Source: "/var/lib/docker/volumes/v/_data", Destination: "/v"},
		{Type: "tmpfs", Source: "", Destination: "/t"},
		{Type: "bind", Source: "relative", Destination: "/r"},
		{Type: "bind", Source: link, Destination: "/l"},
	})
	want := []dray.Mount{
		{Host: dir, Container: "/workspaces/app"},
		{Host: link, Container: "/l"},
		{Host: "/usr", Container: "/l"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzLabel(f *testing.F) {
	for _, c := range resolveCases {
		f.Add(c.labels[LabelMetadata])
	}
	f.Add(`[{"mounts": [null, 5, {"target": {}}], "customizations": 5, "forwardPorts": {"a": 1}, "hostRequirements": [], "remoteEnv": [1]}, null, 7]`)
	f.Fuzz(func(t *testing.T, label string) {
		r, err := Resolve(t.Context(),
			Input{Container: ContainerInfo{Labels: map[string]string{LabelMetadata: label}}})
		if err == nil && r.User == "" {
			t.Error("no user")
		}
	})
}
