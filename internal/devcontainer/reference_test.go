package devcontainer

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
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
	delete(want.Merged, "configFilePath")
	if r, _ := want.Merged["hostRequirements"].(entry); r["memory"] == "-Infinity" {
		delete(want.Merged, "hostRequirements") // the maximum of no entries at all
	}
	merged := throughJSON(t, got.Merged)
	for property := range merged {
		if !reflect.DeepEqual(merged[property], want.Merged[property]) {
			t.Errorf("%s is %v, the reference says %v", property, merged[property], want.Merged[property])
		}
		delete(want.Merged, property)
	}
	if len(want.Merged) > 0 {
		t.Errorf("missing: %v", want.Merged)
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
		"#!/bin/sh\ncase $1 in ps) echo "+c.ID+";; inspect) cat "+dir+"/inspect.json;; *) exit 1;; esac\n")
	if err := os.Chmod(docker, 0o700); err != nil {
		t.Fatal(err)
	}
	return docker
}

func throughJSON(t *testing.T, e entry) entry {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var out entry
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
