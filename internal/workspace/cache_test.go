package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// A tool that removes the configuration through the mount does not route the next call to the host,
// not even after a restart of the daemon (RT-02).
func TestNearest_ConfigurationRemoved(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "dray-test/busybox:latest", "remoteUser": "root"}`)
	w.trustIt(dir)
	if got := w.sh(request{workspace: dir},
		"rm /workspaces/"+filepath.Base(dir)+"/.devcontainer.json; id -u"); got != "0" {
		t.Fatalf("got %q", got)
	}
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{dir, sub} {
		if folder, ok := w.Nearest(t.Context(), from, "/"); !ok || folder != dir {
			t.Errorf("from %s: got %q, %v", from, folder, ok)
		}
	}
	_, err := w.env(request{workspace: dir})
	wantCode(t, "without its configuration", err, dray.CodeNoDevcontainer)
	restarted := newFixture(t, Config{})
	if folder, ok := restarted.Nearest(t.Context(), sub, "/"); !ok || folder != dir {
		t.Errorf("after a restart: got %q, %v", folder, ok)
	}
	if folder, ok := restarted.Nearest(t.Context(), t.TempDir(), "/"); ok {
		t.Errorf("the workspace of a directory without a container is %q", folder)
	}
}

// A container whose image sets the labels of a workspace receives none of its calls, even if it is
// newer than the workspace's own (EX-01).
func TestFindByLabels_LabelsOfImage(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "dray-test/busybox:latest", "remoteUser": "root"}`)
	w.trustIt(dir)
	own := w.sh(request{workspace: dir}, "hostname")
	build := t.TempDir()
	dockerfile := "FROM dray-test/busybox:latest\nLABEL " + devcontainer.LabelFolder + "=" + dir +
		" " + devcontainer.LabelConfig + "=" + dir + "/.devcontainer.json\n"
	if err := os.WriteFile(build+"/Dockerfile", []byte(dockerfile), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_BUILDKIT", "0") // the classic builder needs neither registry nor plugin
	const image = "dray-test/impostor:latest"
	w.docker("build", "-q", "-t", image, build)
	t.Cleanup(func() { w.docker("rmi", "-f", image) })
	impostor := w.docker("run", "-d", "--init", "--network", "none", image, "sleep", "1000000")
	t.Cleanup(func() { w.docker("rm", "-f", impostor) })
	w.retry(request{workspace: dir})
	if got := w.sh(request{workspace: dir}, "hostname"); got != own {
		t.Errorf("the call went to %q, not to %q", got, own)
	}
	_, err := w.env(request{workspace: dir, name: impostor})
	wantCode(t, "the impostor by its id", err, dray.CodeRouteConflict)
}
