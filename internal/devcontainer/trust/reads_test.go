package trust

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
)

// The engine follows the symlinks of a mount's source when a container starts: one that a tool puts
// there ends the trust (RT-09).
func TestTrust_MountSources(t *testing.T) {
	compose := map[string]string{
		".devcontainer.json": `{"dockerComposeFile": "compose.yml", "service": "app"}`,
		"compose.yml":        "version: '3'\nservices:\n  app: {image: x, volumes: ['./data/a:/data']}\n",
	}
	image := func(more string) map[string]string {
		return map[string]string{".devcontainer.json": `{"image": "x", ` + more + `}`}
	}
	for name, files := range map[string]map[string]string{
		"mounts": image(`"mounts": ["type=bind,source=${localWorkspaceFolder}/data/a,target=/data"]`),
		"mount as an object": image(
			`"mounts": [{"type": "bind", "source": "${localWorkspaceFolder}/data/a", "target": "/data"}]`),
		"runArgs": image(`"runArgs": ["-v", "${localWorkspaceFolder}/data/a:/data:ro"]`),
		"compose": compose,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(devtest.TempDir(t), "app")
			for file, content := range files {
				devtest.Write(t, dir, file, content)
			}
			devtest.Write(t, dir, "data/a/file", "")
			loc, store := devtest.Locate(t, dir), trustStore(t)
			mustTrust(t, store, loc)
			approval, err := store.Approve(t.Context(), loc)
			if err != nil || !slices.Contains(approval.Reads(), dir+"/data") {
				t.Fatalf("approved %q, %v", approval.Reads(), err)
			}
			devtest.Write(t, dir, "data/a/another", "")
			if _, err := store.Approve(t.Context(), loc); err != nil {
				t.Errorf("a new file in it: %v", err)
			}
			if err := os.Rename(dir+"/data", dir+"/was"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/", dir+"/data"); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Approve(t.Context(), loc); dray.CodeOf(err) != dray.CodeWorkspaceUntrusted {
				t.Errorf("a symlink in its place: %v", err)
			}
		})
	}
}
