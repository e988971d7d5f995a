package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// A workspace has two configurations, and one of them two compose services. A call reaches each by
// its name; up, stop and rm act on all, and up brings up none if one is not trusted; rm leaves
// nothing that `docker compose down` removes, and no volume but the named one, as that does.
func TestSeveralContainers(t *testing.T) {
	useCompose2(t)
	w := newFixture(t, Config{})
	dir := w.project("")
	configs := map[string]string{
		"a": `{"dockerComposeFile": "compose.yml", "service": "app", "workspaceFolder": "/"}`,
		"b": `{"image": "` + busybox + `", "init": true, "runArgs": ["--network=none"]}`,
	}
	named := map[string]Named{}
	for name, text := range configs {
		path := filepath.Join(dir, ".devcontainer", name, "devcontainer.json")
		writeFile(t, path, text)
		named[name] = Named{Workspace: dir, Config: path}
	}
	writeFile(t, filepath.Join(dir, ".devcontainer", "a", "compose.yml"), severalServices)
	named["db"] = Named{Workspace: dir, Config: named["a"].Config, Service: "db"}
	w.cfg.Named = named
	if err := os.Remove(filepath.Join(dir, ".devcontainer.json")); err != nil {
		t.Fatal(err)
	}

	w.trustIt(dir)
	_, err := w.Run(t.Context(), ActionUp, dir, noProgress)
	wantCode(t, "the second configuration", err, dray.CodeWorkspaceUntrusted)
	if hint := dray.AsError(err).Hint; !strings.Contains(hint, "trust --show --container b") {
		t.Errorf("the hint is %q", hint)
	}
	w.trustIt("b")
	if _, err := w.Run(t.Context(), ActionUp, dir, noProgress); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, name := range []string{"a", "b", "db"} {
		if got := w.sh(request{name: name}, "echo in "+name); got != "in "+name {
			t.Errorf("got %q", got)
		}
		env, err := w.env(request{name: name})
		if err != nil {
			t.Fatal(err)
		}
		ids[env.Capabilities().Container.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("the containers are %v", ids)
	}
	info, err := w.Run(t.Context(), ActionStop, dir, noProgress)
	if err != nil || info.State != Stopped {
		t.Errorf("stop: %s, %v", info.State, err)
	}
	for id := range ids {
		if c, err := w.engine.Inspect(t.Context(), id); err != nil || c.Running() {
			t.Errorf("%s is %s, %v", c.Name, c.Status, err)
		}
	}
	c, err := w.engine.Inspect(t.Context(), w.containers(devcontainer.LabelComposeService + "=db")[0])
	if err != nil {
		t.Fatal(err)
	}
	filter := "label=" + devcontainer.LabelComposeProject + "=" + c.Label(devcontainer.LabelComposeProject)
	volumes := w.docker("volume", "ls", "-q", "--filter", filter)
	t.Cleanup(func() { w.docker("volume", "rm", volumes) })
	if _, err := w.Run(t.Context(), ActionRemove, dir, noProgress); err != nil {
		t.Error(err)
	}
	for id := range ids {
		if _, err := w.engine.Inspect(t.Context(), id); dray.CodeOf(err) != dray.CodeContainerNotFound {
			t.Errorf("%s was not removed: %v", id, err)
		}
	}
	if left := w.docker("network", "ls", "-q", "--filter", filter); left != "" {
		t.Errorf("the networks %s are left", left)
	}
	if left := w.docker("volume", "ls", "-q", "--filter", filter); left != volumes || left == "" {
		t.Errorf("the volumes are %q, were %q", left, volumes)
	}
}

const severalServices = `
version: "3"
services:
  app: {image: dray-test/busybox:latest, command: sleep 1000000, init: true}
  db:
    image: dray-test/busybox:latest
    command: sleep 1000000
    init: true
    volumes: ["data:/data", "/anonymous"]
volumes: {data: {}}
`

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
