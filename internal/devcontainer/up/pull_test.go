package up

import (
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// A failed pull is one message with image, reason and what to do, also if a build or compose pulls.
// The attempts of the CLI are not progress.
func TestUp_FailedPull(t *testing.T) {
	t.Parallel()
	const image = "dray.invalid/none:1"
	for name, files := range map[string]map[string]string{
		"image": {".devcontainer.json": `{"image": "` + image + `"}`},
		"Dockerfile": {
			".devcontainer.json": `{"build": {"dockerfile": "Dockerfile"}}`,
			"Dockerfile":         "FROM " + image + "\nRUN true\n",
		},
		"compose service": {
			".devcontainer.json": `{"dockerComposeFile": "compose.yml", "service": "app"}`,
			"compose.yml": "version: '3'\nservices:\n  app: {image: 'dray-test/busybox:latest', network_mode: none, " +
				"depends_on: [db]}\n  db: {image: '" + image + "', network_mode: none}\n",
		},
	} {
		u := newUpTest(t, files)
		_, err := u.up()
		if dray.CodeOf(err) != dray.CodeContainerFailed ||
			!strings.HasPrefix(err.Error(), "could not pull the image "+image+": ") ||
			!strings.Contains(err.Error(), "no such host") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v (%s)", name, err, dray.CodeOf(err))
		}
		if hint := dray.AsError(err).Hint; !strings.Contains(hint, "docker login") ||
			!strings.Contains(hint, "dray workspace up "+u.loc.Workspace) {
			t.Errorf("%s: hint %q", name, hint)
		}
		if slices.ContainsFunc(u.heard.lines, func(line string) bool {
			return strings.Contains(line, "Retrying") || strings.Contains(line, "Command failed")
		}) {
			t.Errorf("%s: progress\n%s", name, strings.Join(u.heard.lines, "\n"))
		}
	}
}

// The lines are those of Docker 20.10, Podman 4.3, and compose 1.29 and 2.40.
func TestPullLog(t *testing.T) {
	tests := map[string]struct {
		pulled, message string
		lines           []string
		want            string
	}{
		"podman": {"a/b", "Command failed: podman pull a/b", []string{
			"Trying to pull a/b...", "Error: initializing source docker://a/b: denied",
		}, "could not pull the image a/b: initializing source docker://a/b: denied"},
		"compose 2": {"", "Command failed: docker compose --project-name x up -d", []string{
			"db Pulling", "db Error pull access denied for a/b", "Error response from daemon: pull access denied",
		}, "could not pull the image of service db: pull access denied"},
		"compose after a pull": {"", "Command failed: docker-compose up -d", []string{
			"Pulling db (a/b:)...", "latest: Pulling from a/b", "Status: Downloaded newer image for a/b",
			"ERROR: for app  Cannot start service app",
		}, ""},
		"another command after a pull": {"a/b", "Command failed: docker run a/b", []string{
			"Error response from daemon: no such device",
		}, ""},
		"another message": {"a/b", "it broke", []string{"Error: x"}, ""},
	}
	for name, tt := range tests {
		p := pullLog{image: tt.pulled}
		for _, line := range tt.lines {
			p.output(line)
		}
		if text, fix := p.failure(tt.message); text != tt.want || (fix == "") != (text == "") {
			t.Errorf("%s: got %q, %q, want %q", name, text, fix, tt.want)
		}
	}
}
