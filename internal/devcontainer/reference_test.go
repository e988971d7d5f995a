package devcontainer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// referenceAnswer is what `devcontainer read-configuration` prints.
type referenceAnswer struct {
	Workspace struct{ WorkspaceFolder string }
	Merged    entry `json:"mergedConfiguration"`
}

func (want referenceAnswer) compare(t *testing.T, got ExecConfig) {
	t.Helper()
	if got.WorkspaceFolder != want.Workspace.WorkspaceFolder {
		t.Errorf("workspace folder %q, the reference says %q", got.WorkspaceFolder,
			want.Workspace.WorkspaceFolder)
	}
	if user, ok := want.Merged["remoteUser"].(string); ok && user != got.User &&
		!strings.Contains(got.User, "${") { // the reference prints it with the container's variables
		t.Errorf("user %q, the reference says %q", got.User, user)
	}
	if probe := cmp.Or(want.Merged["userEnvProbe"], any("loginInteractiveShell")); probe !=
		string(got.Probe) {
		t.Errorf("probe %q, the reference says %q", got.Probe, probe)
	}
	env := map[string]string{}
	values, _ := want.Merged["remoteEnv"].(entry)
	for name, value := range values {
		env[name] = textOf(value)
	}
	if !maps.Equal(got.RemoteEnv, env) {
		t.Errorf("environment %q, the reference says %q", got.RemoteEnv, env)
	}
}

// askReference runs read-configuration for each input.
func askReference(t *testing.T, bundle string, inputs []Input) []referenceAnswer {
	t.Helper()
	commands := make([][]string, len(inputs))
	for i, in := range inputs {
		commands[i] = []string{
			"read-configuration", "--include-merged-configuration", "--docker-path", fakeDocker(t,
				in.Container), "--workspace-folder", in.Location.Workspace,
		}
	}
	input, err := json.Marshal(commands)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", "testdata/reference.js", bundle)
	cmd.Env, cmd.Stdin, cmd.Stderr = os.Environ(), bytes.NewReader(input), &stderr
	for key, value := range hostEnv {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the reference: %v: %s", err, stderr.String())
	}
	var runs []struct {
		Code   int
		Stdout string
	}
	if err := json.Unmarshal(out, &runs); err != nil || len(runs) != len(inputs) {
		t.Fatalf("%d answers to %d commands: %v", len(runs), len(inputs), err)
	}
	answers := make([]referenceAnswer, len(runs))
	for i, run := range runs {
		if err := json.Unmarshal([]byte(run.Stdout), &answers[i]); err != nil || run.Code != 0 {
			t.Fatalf("the reference on %s: code %d, %v: %s", inputs[i].Location.Config, run.Code, err,
				stderr.String())
		}
	}
	return answers
}

// fakeDocker is a docker that knows one container and does nothing.
func fakeDocker(t *testing.T, c ContainerInfo) string {
	t.Helper()
	inspect, err := json.Marshal([]any{entry{
		"Id": c.ID, "State": entry{"Status": c.Status}, "NetworkSettings": entry{"Ports": entry{}},
		"Config": entry{"Env": c.Env, "Labels": c.Labels, "User": c.User},
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "inspect.json", string(inspect))
	docker := write(t, dir, "docker",
		"#!/bin/sh\ncase $1 in ps) echo "+c.ID+";; inspect) cat "+dir+"/inspect.json;; *) exit 1;; "+
			"esac\n")
	if err := os.Chmod(docker, 0o700); err != nil {
		t.Fatal(err)
	}
	return docker
}
