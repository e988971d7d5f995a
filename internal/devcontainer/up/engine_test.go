package up

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
	"github.com/dray-dev/dray/internal/devcontainer/internal/reference"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
)

// upTest is a workspace that the real CLI brings up on the real engine.
type upTest struct {
	t     *testing.T
	loc   devcontainer.Location
	state string
	trust *trust.Store
	heard heard
	cli   string
	env   []string
}

// newUpTest makes a workspace of a name that nobody else has: docker compose names its project
// after the folder.
func newUpTest(t *testing.T, files map[string]string) *upTest {
	t.Helper()
	if testing.Short() {
		t.Skip("brings containers up")
	}
	cli := reference.CLI(t)
	if out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect",
		"dray-test/debian:latest", "dray-test/busybox:latest").CombinedOutput(); err != nil {
		t.Fatalf("no engine with the test images, run scripts/setup: %s", out)
	}
	dir := filepath.Join(devtest.TempDir(t), fmt.Sprintf("up%d", time.Now().UnixNano()))
	for name, content := range files {
		devtest.Write(t, dir, name, content)
	}
	u := &upTest{
		t: t, loc: devtest.Locate(t, dir), state: t.TempDir(), cli: cli,
		env: append(helper.Env(os.Environ()), "GREETING=hello"),
	}
	u.trust = trust.NewStore(u.state, nil, devtest.Compose(t, u.env))
	t.Cleanup(u.clean)
	return u
}

func (u *upTest) docker(args ...string) string {
	u.t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		u.t.Fatalf("docker %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// clean removes the containers, networks and images of the workspace, by id.
func (u *upTest) clean() {
	filter := "label=" + devcontainer.LabelFolder + "=" + u.loc.Workspace
	project := "label=com.docker.compose.project=" + filepath.Base(u.loc.Workspace) + "_devcontainer"
	for _, list := range []struct{ list, remove []string }{
		{[]string{"ps", "-aq", "--filter", filter}, []string{"rm", "-f", "-v"}},
		{[]string{"ps", "-aq", "--filter", project}, []string{"rm", "-f", "-v"}},
		{[]string{"network", "ls", "-q", "--filter", project}, []string{"network", "rm"}},
		{[]string{"image", "ls", "-q", "--filter", "reference=vsc-" + filepath.Base(u.loc.Workspace) +
			"-*"}, []string{"image", "rm", "-f"}},
		{[]string{
			"image", "ls", "--format", "{{.Repository}}", "--filter", "reference=" +
				filepath.Base(u.loc.Workspace) + "_devcontainer*",
		}, []string{"image", "rm"}}, // by name: the id can be that of the test image
	} {
		for id := range strings.FieldsSeq(u.docker(list.list...)) {
			u.docker(append(list.remove, id)...)
		}
	}
}

// containers asks the engine for what devcontainer.Location.Match chooses from.
func (u *upTest) containers() []devcontainer.ContainerInfo {
	u.t.Helper()
	ids := strings.Fields(u.docker("ps", "-aq", "--filter", "label="+devcontainer.LabelFolder))
	var out []devcontainer.ContainerInfo
	for _, id := range ids {
		text, err := exec.Command("docker", "inspect", "--type", "container", id).Output()
		if err != nil {
			continue // another test has removed it meanwhile
		}
		var details []struct {
			ID      string `json:"Id"`
			Created time.Time
			State   struct{ Status string }
			Config  struct {
				Labels map[string]string
				Env    []string
				User   string
			}
			Mounts []devcontainer.MountInfo
		}
		if err := json.Unmarshal(text, &details); err != nil {
			u.t.Fatal(err)
		}
		d := details[0]
		out = append(out, devcontainer.ContainerInfo{
			ID: d.ID, Created: d.Created, Status: d.State.Status, Labels: d.Config.Labels,
			Env: d.Config.Env, User: d.Config.User, Mounts: d.Mounts,
		})
	}
	return out
}

// up trusts what stands there and brings it up.
func (u *upTest) up() (Result, error) {
	u.t.Helper()
	approval := approve(u.t, u.trust, u.loc)
	existing, _ := u.loc.Match(u.t.Context(), u.containers())
	return Run(u.t.Context(), Options{
		CLI: u.cli, State: u.state, Approval: approval, Container: existing, ExtraArgs: []string{"--buildkit", "never"},
		Env: u.env, Start: execStart,
	}, u.heard.progress)
}

// resolve resolves the container that Match chooses.
func (u *upTest) resolve() (devcontainer.ContainerInfo, devcontainer.ExecConfig) {
	u.t.Helper()
	c, ok := u.loc.Match(u.t.Context(), u.containers())
	if !ok {
		u.t.Fatal("no container matches")
	}
	r, err := devcontainer.Resolve(u.t.Context(), devcontainer.Input{
		Location: u.loc, Container: c,
		LocalEnv: func(name string) (string, bool) { return "hello", name == "GREETING" },
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return c, r
}

// wantUp brings it up and checks that what the CLI says of user and folder is what
// devcontainer.Resolve says.
func (u *upTest) wantUp() (Result, devcontainer.ExecConfig) {
	u.t.Helper()
	result, err := u.up()
	if err != nil {
		u.t.Fatalf("%v\n%s", err, strings.Join(u.heard.lines, "\n"))
	}
	c, r := u.resolve()
	if c.ID != result.ContainerID || r.User != result.RemoteUser ||
		r.WorkspaceFolder != result.RemoteWorkspaceFolder {
		u.t.Errorf("resolved %s, %q in %q; up says %+v", c.ID, r.User, r.WorkspaceFolder, result)
	}
	return result, r
}

func (u *upTest) wantProgress(lines ...string) {
	u.t.Helper()
	for _, line := range lines {
		if !u.heard.has(line) {
			u.t.Errorf("no progress %q in\n%s", line, strings.Join(u.heard.lines, "\n"))
		}
	}
}

func TestUpImage(t *testing.T) {
	t.Parallel()
	u := newUpTest(t, map[string]string{".devcontainer/devcontainer.json": `{
		// with a comment
		"image": "dray-test/debian:latest", "remoteUser": "vscode", "updateRemoteUserUID": false, "remoteEnv": {"WHO": "${localEnv:GREETING} ${containerEnv:NAME}"},
		"containerEnv": {"NAME": "box"}, "initializeCommand": "echo on the host; touch initialized", "onCreateCommand": "echo in the container", "mounts": ["type=volume,target=/v"],
	}`})
	devtest.Git(t, u.loc.Workspace, "init", "-q")
	result, r := u.wantUp()
	if r.RemoteEnv["WHO"] != "hello box" || r.Probe != devcontainer.ProbeLoginInteractiveShell ||
		len(r.Warnings) != 0 {
		t.Errorf("resolved %+v", r)
	}
	if len(r.Mounts) != 1 || r.Mounts[0] != (dray.Mount{
		Host:      u.loc.Workspace,
		Container: r.WorkspaceFolder,
	}) {
		t.Errorf("mounts %v", r.Mounts)
	}
	if _, err := os.Stat(filepath.Join(u.loc.Workspace, "initialized")); err != nil {
		t.Error(err)
	}
	u.wantProgress("initializeCommand: on the host", "create: creating the container",
		"onCreateCommand: in the container")
	u.docker("stop", "-t", "0", result.ContainerID)
	again, _ := u.wantUp()
	if again.ContainerID != result.ContainerID {
		t.Error("a stopped container was replaced")
	}
	u.wantProgress("start: starting the container")
}

func TestUpDockerfileInSubfolderOfRepository(t *testing.T) {
	t.Parallel()
	u := newUpTest(t, map[string]string{
		".devcontainer.json": `{"build": {"dockerfile": "docker/Dockerfile"}, "remoteEnv": {"F": "${containerWorkspaceFolder}"}}`,
		"docker/Dockerfile":  "FROM dray-test/busybox:latest\nENV BAKED=in\n",
	})
	devtest.Git(t, filepath.Dir(u.loc.Workspace), "init", "-q")
	_, r := u.wantUp()
	want := "/workspaces/" + filepath.Base(filepath.Dir(u.loc.Workspace)) + "/" +
		filepath.Base(u.loc.Workspace)
	if r.WorkspaceFolder != want || r.RemoteEnv["F"] != want {
		t.Errorf("resolved %+v, want the folder %s", r, want)
	}
	u.wantProgress("build: building the image")
}

// useCompose selects a version of compose for the workspace.
func (u *upTest) useCompose(dockerConfig string) {
	u.env = append(u.env, dockerConfig)
	u.trust = trust.NewStore(u.state, nil, devtest.Compose(u.t, u.env))
}

// Compose uses the model that was trusted, even if its files have changed since (RT-09). Values of
// variables are in no progress.
func TestUpCompose(t *testing.T) {
	t.Parallel()
	reference.Compose(t, func(t *testing.T, dockerConfig string) {
		u := newUpTest(t, map[string]string{
			".devcontainer/devcontainer.json": `{"dockerComposeFile": "compose.yml", "service": "app", "workspaceFolder": "/work",
				"remoteEnv": {"FROM": "${containerEnv:FROM}", "DOLLAR": "${containerEnv:DOLLAR}"}, "containerEnv": {"CONTAINER": "canary-1"}, "onCreateCommand": "echo created"}`,
			".devcontainer/compose.yml": `
version: "3"
services:
  app: {image: "dray-test/busybox:latest", command: sleep 1000, init: true, volumes: ["..:/work"], env_file: [app.env], environment: {GREETING: "${GREETING}", DOLLAR: "a$$b"}}
  other: {build: other, command: sleep 1000}
`,
			".devcontainer/app.env":          "FROM=canary-2\n",
			".devcontainer/other/Dockerfile": "FROM dray-test/busybox:latest\n",
		})
		u.useCompose(dockerConfig)
		result, r := u.wantUp()
		if r.RemoteEnv["FROM"] != "canary-2" || r.RemoteEnv["DOLLAR"] != "a$b" || len(r.Mounts) != 1 ||
			r.Mounts[0].Container != "/work" || r.Mounts[0].Host != u.loc.Workspace {
			t.Errorf("resolved %+v", r)
		}
		project := u.docker("inspect", "--format", `{{index .Config.Labels "com.docker.compose.project"}}`,
			result.ContainerID)
		if want := filepath.Base(u.loc.Workspace) + "_devcontainer"; project != want {
			t.Errorf("project %s, want %s", project, want)
		}
		u.wantProgress("create: creating the containers", "onCreateCommand: created")
		if text := strings.Join(u.heard.lines, "\n"); strings.Contains(text, "canary") ||
			strings.Contains(text, "environment") {
			t.Errorf("the progress has values of variables:\n%s", text)
		}
		u.docker("rm", "-f", result.ContainerID)
		approval := approve(t, u.trust, u.loc)
		devtest.Write(t, u.loc.Workspace, ".devcontainer/compose.yml", `
version: "3"
services:
  app: {image: "dray-test/busybox:latest", command: sleep 1000, privileged: true, volumes: ["/:/work"]}
`)
		devtest.Write(t, u.loc.Workspace, ".devcontainer/.env", "COMPOSE_PROJECT_NAME=another\n")
		result, err := Run(t.Context(), Options{
			CLI: u.cli, State: u.state, Approval: approval, ExtraArgs: []string{"--buildkit", "never"},
			Env: u.env, Start: execStart,
		}, u.heard.progress)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.docker("inspect", "--format", "{{.HostConfig.Privileged}} {{range .Mounts}}{{.Source}}{{end}}",
			result.ContainerID); got != "false "+u.loc.Workspace {
			t.Errorf("the container has %s", got)
		}
	})
}

// The message of a failed start has no values of variables.
func TestUpCompose_FailsWithoutValues(t *testing.T) {
	t.Parallel()
	reference.Compose(t, func(t *testing.T, dockerConfig string) {
		u := newUpTest(t, map[string]string{
			".devcontainer/devcontainer.json": `{"dockerComposeFile": "compose.yml", "service": "app", "containerEnv": {"CONTAINER": "canary-1\ncanary-2"}}`,
			".devcontainer/compose.yml": `
version: "3"
services:
  app: {image: "dray-test/busybox:latest", command: [/none], entrypoint: [], volumes: ["/proc/none:/x"], environment: {E: canary-3}}
`,
		})
		u.useCompose(dockerConfig)
		_, err := u.up()
		text := fmt.Sprint(err, "\n", strings.Join(u.heard.lines, "\n"))
		if err == nil || strings.Contains(text, "canary") {
			t.Errorf("got %s", text)
		}
	})
}

// After a failed onCreateCommand Up replaces the container, which the reference would reuse.
func TestUpAfterFailedOnCreate(t *testing.T) {
	t.Parallel()
	u := newUpTest(t, map[string]string{".devcontainer/devcontainer.json": `{
		"image": "dray-test/busybox:latest", "onCreateCommand": "echo preparing; test -e /workspaces/*/ready && touch /created"}`})
	_, err := u.up()
	if dray.CodeOf(err) != dray.CodeContainerFailed ||
		!strings.Contains(err.Error(), "onCreateCommand from devcontainer.json failed") ||
		!strings.Contains(err.Error(), "\npreparing\n") {
		t.Fatalf("got %v (%s)", err, dray.CodeOf(err))
	}
	c, _ := u.resolve()
	note, err := NewAttemptStore(u.state).Last(t.Context(), u.loc)
	if err != nil || !note.Failed() || !note.Incomplete(c) || note.Container != c.ID {
		t.Fatalf("noted %+v, %v for the container %s", note, err, c.ID)
	}
	if _, err := u.up(); err == nil {
		t.Fatal("the second attempt reuses the incomplete container")
	}
	devtest.Write(t, u.loc.Workspace, "ready", "")
	result, _ := u.wantUp()
	u.docker("exec", result.ContainerID, "test", "-e", "/created")
	if result.ContainerID == c.ID {
		t.Error("the incomplete container is still there")
	}
}

func TestUpMissingDockerfile(t *testing.T) {
	t.Parallel()
	u := newUpTest(t, map[string]string{".devcontainer/devcontainer.json": `{"build": {"dockerfile": "Dockerfile"}}`})
	_, err := u.up()
	if dray.CodeOf(err) != dray.CodeContainerFailed ||
		!strings.Contains(err.Error(),
			"no such file or directory, open '"+filepath.Dir(u.loc.Config)+"/Dockerfile'") {
		t.Errorf("got %v (%s)", err, dray.CodeOf(err))
	}
	if hint := dray.AsError(err).Hint; strings.Contains(hint, "incomplete") ||
		!strings.Contains(hint, "dray workspace up "+u.loc.Workspace) {
		t.Errorf("hint %q", hint)
	}
}

// Up uses the configuration that was trusted, even if the file has changed since.
func TestUpUsesTrustedConfig(t *testing.T) {
	t.Parallel()
	u := newUpTest(t, map[string]string{".devcontainer/devcontainer.json": `{"image": "dray-test/busybox:latest", "initializeCommand": "touch good"}`})
	devtest.Git(t, u.loc.Workspace, "init", "-q")
	approval := approve(t, u.trust, u.loc)
	devtest.Write(t, u.loc.Workspace, ".devcontainer/devcontainer.json", `{"image": "dray-test/busybox:latest", "initializeCommand": "touch evil", "runArgs": ["--privileged"]}`)
	devtest.Git(t, u.loc.Workspace, "config", "core.worktree", "/")
	_, err := Run(t.Context(), Options{
		CLI: u.cli, State: u.state, Approval: approval,
		ExtraArgs: []string{
			"--buildkit",
			"never",
		}, Env: helper.Env(os.Environ()), Start: execStart,
	}, u.heard.progress)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(u.loc.Workspace, "evil")); err == nil {
		t.Error("the changed initializeCommand ran on the host")
	}
	if _, err := os.Stat(filepath.Join(u.loc.Workspace, "good")); err != nil {
		t.Error(err)
	}
	c, ok := u.loc.Match(t.Context(), u.containers())
	if !ok || len(c.Mounts) != 1 || c.Mounts[0].Source != u.loc.Workspace ||
		c.Labels[devcontainer.LabelConfig] != u.loc.Config {
		t.Errorf("container %+v", c)
	}
}
