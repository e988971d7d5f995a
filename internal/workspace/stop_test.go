package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

const twoServices = `
version: "3"
services:
  app: {image: dray-test/busybox:latest, command: sleep 1000000, init: true}
  db: {image: dray-test/busybox:latest, command: sleep 1000000, init: true}
`

// eachCompose runs a test with both versions of docker compose that scripts/setup installs.
func eachCompose(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	for name, config := range map[string]string{
		"compose 1": t.TempDir(), "compose 2": "../../.tools/compose",
	} {
		t.Run(name, func(t *testing.T) {
			dockerConfig, err := filepath.Abs(config)
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("DOCKER_CONFIG", dockerConfig)
			run(t)
		})
	}
}

// A project that makes compose use much memory is refused, and compose is ended (RT-09).
func TestTrust_ComposeIsBounded(t *testing.T) {
	eachCompose(t, func(t *testing.T) {
		w := newFixture(t, Config{})
		dir := w.project(`{"dockerComposeFile": "compose.yml", "service": "app"}`)
		var env strings.Builder
		env.WriteString("A0=0123456789abcdef\n")
		for i := range 32 { // to 64 GiB
			fmt.Fprintf(&env, "A%d=${A%d}${A%d}\n", i+1, i, i)
		}
		project := "version: '3'\nservices: {app: {image: x, env_file: a.env, labels: {a: '${A32}'}}}"
		for name, text := range map[string]string{
			"compose.yml": project, ".env": env.String(), "a.env": env.String(),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := w.trustPresent(dir)
		wantCode(t, "a project that grows", err, dray.CodeWorkspaceUntrusted)
	})
}

// What compose prints for a project may have 16 MiB: a truncated project is not trusted (RT-09).
func TestTrust_ComposeOutputIsBounded(t *testing.T) {
	eachCompose(t, func(t *testing.T) {
		w := newFixture(t, Config{})
		dir := w.project(`{"dockerComposeFile": "compose.yml", "service": "s0"}`)
		var project strings.Builder
		fmt.Fprintf(&project, "version: '3'\nservices:\n  s0: &s {image: x, labels: {a: %s}}\n",
			strings.Repeat("x", 900<<10))
		for i := range 20 {
			fmt.Fprintf(&project, "  s%d: *s\n", i+1)
		}
		if err := os.WriteFile(dir+"/compose.yml", []byte(project.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		err := w.trustPresent(dir)
		wantCode(t, "a project that compose prints with 18 MiB", err, dray.CodeWorkspaceUntrusted)
		if err != nil && !strings.Contains(err.Error(), "printed more than 16 MiB") {
			t.Errorf("got %v", err)
		}
	})
}

// Stopping a compose workspace stops all services of its project, but not the container of another
// workspace in the project (RT-07).
func TestStop_ComposeProject(t *testing.T) {
	eachCompose(t, func(t *testing.T) {
		w := newFixture(t, Config{})
		dir := w.project(`{"dockerComposeFile": "compose.yml", "service": "app", "workspaceFolder": "/"}`)
		if err := os.WriteFile(dir+"/compose.yml", []byte(twoServices), 0o600); err != nil {
			t.Fatal(err)
		}
		w.trustIt(dir)
		info, err := w.Run(t.Context(), ActionUp, dir, func(string, string) {})
		if err != nil {
			t.Fatal(err)
		}
		c, err := w.engine.Inspect(t.Context(), info.Container)
		if err != nil {
			t.Fatal(err)
		}
		project := c.Label(devcontainer.LabelComposeProject)
		label := devcontainer.LabelComposeProject + "=" + project
		t.Cleanup(func() { w.docker("network", "rm", project+"_default") })
		t.Cleanup(func() { w.removeAll(label) })
		other := w.docker("run", "-d", "--init", "--network", "none", "--label", label,
			"--label", devcontainer.LabelComposeNumber+"=1",
			"--label", devcontainer.LabelFolder+"=/other", busybox, "sleep", "1000000")
		if all := w.containers(label); len(all) != 3 {
			t.Fatalf("the project has the containers %v", all)
		}
		var progress []string
		info, err = w.Run(t.Context(), ActionStop, dir, func(phase, message string) {
			progress = append(progress, phase+": "+message)
		})
		if err != nil || info.State != Stopped {
			t.Fatalf("state %s, %v", info.State, err)
		}
		for _, id := range w.containers(label) {
			c, err := w.engine.Inspect(t.Context(), id)
			if err != nil || c.Running() != (id == other) {
				t.Errorf("%s is %s, %v", c.Name, c.Status, err)
			}
			if said := slices.Contains(progress, "stop: stopping "+c.Name); said == (id == other) {
				t.Errorf("reported %s", strings.Join(progress, ", "))
			}
		}
		if _, err := w.Run(t.Context(), ActionStop, dir, func(string, string) {}); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}
