package workspace

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/enginetest"
)

const composeConfig = `{"dockerComposeFile": "compose.yml", "service": "app",
	"workspaceFolder": "/work"}`

// composeFile creates no network, which would outlive the containers.
const composeFile = `
version: "3"
services:
  app:
    image: "` + busybox + `"
    command: sleep 100000
    init: true
    network_mode: none
    volumes: [".:/work"]
`

// useOnce makes a call in a workspace with a daemon whose state is in a directory, ends the daemon,
// and returns the container. The agent uses the socket.
func useOnce(t *testing.T, dir, state string, trust bool) (id string) {
	t.Helper()
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Run("daemon", func(t *testing.T) {
		w := newFixture(t, Config{State: state})
		if trust {
			w.trustIt(dir)
		}
		if got := w.sh(request{workspace: dir}, "echo it runs"); got != "it runs" {
			t.Errorf("got %q", got)
		}
		env, err := w.env(request{workspace: dir})
		if err != nil {
			t.Fatal(err)
		}
		c := env.Capabilities().Container
		if id = c.ID; c.Channel != "socket" {
			t.Errorf("the agent uses %s %s", c.Transport, c.Channel)
		}
	})
	return id
}

// useCompose2 makes the docker CLI find compose 2, where scripts/setup has installed it.
func useCompose2(t *testing.T) {
	t.Helper()
	dir := os.Getenv("DRAY_TEST_COMPOSE2")
	if dir == "" {
		enginetest.SkipMissing(t, "compose 2 is not installed: DRAY_TEST_COMPOSE2 is not set")
	}
	t.Setenv("DOCKER_CONFIG", dir)
}

// upByHand runs `devcontainer up`, as a user does without dray, and returns the container.
func (w fixture) upByHand(dir string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.cfg.CLI, "up", "--workspace-folder", dir,
		"--buildkit", "never")
	out, err := cmd.Output()
	var result struct{ Outcome, ContainerID string }
	if jsonErr := json.Unmarshal(out, &result); err != nil || jsonErr != nil ||
		result.Outcome != "success" {
		w.t.Fatalf("devcontainer up: %v, %v: %s", err, jsonErr, out)
	}
	return result.ContainerID
}

// A container that dray created works without dray: with the state directory deleted, moved or of
// another user, `docker start` and `devcontainer up` use it as before, and so does a later daemon.
// dray adds no mount and no volume to it (EX-22).
func TestContainersOutliveState(t *testing.T) {
	lose := map[string]func(state string) (next string, err error){
		"deleted": func(state string) (string, error) { return state, os.RemoveAll(state) },
		"moved": func(state string) (string, error) {
			return state + "-moved", os.Rename(state, state+"-moved")
		},
		"of another user": func(state string) (string, error) {
			return state + "-new", exec.Command("chown", "-R", "4711:4711", state).Run()
		},
	}
	for kind, config := range map[string]string{
		"image":   `{"image": "` + busybox + `", "runArgs": ["--network=none"]}`,
		"compose": composeConfig, "compose 2": composeConfig,
	} {
		for what, loseState := range lose {
			t.Run(kind+" "+what, func(t *testing.T) {
				if kind == "compose 2" {
					useCompose2(t)
				}
				w := newFixture(t, Config{})
				dir := w.project(config)
				compose := filepath.Join(dir, "compose.yml")
				if err := os.WriteFile(compose, []byte(composeFile), 0o600); err != nil {
					t.Fatal(err)
				}
				state := filepath.Join(t.TempDir(), "state")
				id := useOnce(t, dir, state, true)
				mounts := w.docker("inspect", "-f", "{{range .Mounts}}{{.Type}} {{.Source}};{{end}}", id)
				if mounts != "bind "+dir+";" {
					t.Errorf("the container mounts %s", mounts)
				}
				next, err := loseState(state)
				if err != nil {
					t.Fatal(err)
				}
				w.docker("stop", "-t", "0", id)
				w.docker("start", id)
				w.docker("stop", "-t", "0", id)
				if got := w.upByHand(dir); got != id {
					t.Errorf("devcontainer up made container %s of %s", got, id)
				}
				if got := useOnce(t, dir, next, false); got != id {
					t.Errorf("a later daemon uses container %s instead of %s", got, id)
				}
				if all := w.containers(devcontainer.LabelFolder + "=" + dir); len(all) != 1 {
					t.Errorf("there are %d containers", len(all))
				}
			})
		}
	}
}

// An engine that restarts, also by SIGKILL, starts a container with a restart policy again although
// the state directory was deleted, and a later daemon uses it (EX-22).
func TestContainersOutliveState_EngineRestart(t *testing.T) {
	own := enginetest.Start(t, enginetest.Options{Images: []string{busybox}})
	t.Setenv("DOCKER_HOST", own.Host())
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `", "runArgs": ["--network=none", "--restart=always"]}`)
	state := filepath.Join(t.TempDir(), "state")
	id := useOnce(t, dir, state, true)
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []func(testing.TB){
		own.Restart,
		func(tb testing.TB) { own.Kill(tb); own.StartAgain(tb) },
	} {
		restart(t)
		if got := w.docker("inspect", "-f", "{{.State.Running}}", id); got != "true" {
			t.Fatalf("the container runs: %s", got)
		}
		if got := useOnce(t, dir, state, false); got != id {
			t.Errorf("a later daemon uses container %s instead of %s", got, id)
		}
	}
}

// `up` of a workspace whose container an earlier version created, and whose directory is missing,
// starts that container (EX-22).
func TestUp_OldContainer(t *testing.T) {
	own := enginetest.Start(t, enginetest.Options{Images: []string{busybox}})
	t.Setenv("DOCKER_HOST", own.Host()) // another daemon would repair it too
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `", "runArgs": ["--network=none"]}`)
	volume := "dray-agent-" + filepath.Base(filepath.Dir(dir))
	agentDir := filepath.Join(t.TempDir(), "state", "run", volume)
	if err := os.MkdirAll(agentDir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.docker("volume", "create", "--label", "dev.dray.agent=1", "--opt", "type=none",
		"--opt", "o=bind,ro", "--opt", "device="+agentDir, volume)
	w.cfg.UpArgs = append(w.cfg.UpArgs, "--mount",
		"type=volume,source="+volume+",target=/.dray,external=true")
	w.trustIt(dir)
	w.sh(request{workspace: dir}, "true")
	id := w.containers(devcontainer.LabelFolder + "=" + dir)[0]
	w.docker("stop", "-t", "0", id)
	if err := os.RemoveAll(agentDir); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "docker", "start", id).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "no such file") {
		t.Fatalf("the container starts without its directory: %s", out)
	}
	if got := w.sh(request{workspace: dir}, "echo it runs"); got != "it runs" {
		t.Errorf("got %q", got)
	}
	if all := w.containers(devcontainer.LabelFolder + "=" + dir); len(all) != 1 || all[0] != id {
		t.Errorf("the containers are %q, want %s", all, id)
	}
	if err := os.RemoveAll(agentDir); err != nil { // so that the volume is removed with its container
		t.Fatal(err)
	}
	w.docker("rm", "-f", id)
	for found := "-"; found != "" && t.Context().Err() == nil; {
		found = w.docker("volume", "ls", "-q", "--filter", "name="+volume)
	}
}
