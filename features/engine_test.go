package features

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// docker runs the docker CLI, with which these tests inspect containers independently of dray.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// containersOf lists all containers of a workspace, also those that do not run.
func containersOf(ctx context.Context, workspace string) ([]string, error) {
	out, err := docker(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter",
		"label=devcontainer.local_folder="+workspace)
	return strings.Fields(out), err
}

// removeContainers removes the containers of a workspace and the images that were built for
// them.
func removeContainers(t testing.TB, workspace string) {
	ctx := context.WithoutCancel(t.Context())
	ids, err := containersOf(ctx, workspace)
	if err != nil {
		t.Error(err)
		return
	}
	for _, id := range ids {
		if err := removeContainer(ctx, id); err != nil {
			t.Error(err)
		}
	}
}

func removeContainer(ctx context.Context, id string) error {
	const what = `{{.Config.Image}},{{index .Config.Labels "com.docker.compose.project"}}`
	out, err := docker(ctx, "inspect", "--format", what, id)
	if err != nil {
		return err
	}
	if _, err := docker(ctx, "rm", "--force", "--volumes", id); err != nil {
		return err
	}
	image, project, _ := strings.Cut(out, ",")
	if strings.HasPrefix(image, "vsc-") {
		_, _ = docker(ctx, "rmi", image)
		_, _ = docker(ctx, "rmi", strings.TrimSuffix(image, "-uid")) // not every image has one
	}
	if project != "" {
		return removeProject(ctx, project)
	}
	return nil
}

// removeProject removes the other containers and the network of a docker compose project.
func removeProject(ctx context.Context, project string) error {
	out, err := docker(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter",
		"label=com.docker.compose.project="+project)
	for id := range strings.FieldsSeq(out) {
		if _, err := docker(ctx, "rm", "--force", "--volumes", id); err != nil {
			return err
		}
	}
	_, _ = docker(ctx, "network", "rm", project+"_default") // the services share it
	return err
}

// writeFiles writes files below a directory, and creates their directories.
func writeFiles(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := writeFile(filepath.Join(folder, name), content); err != nil {
			t.Fatal(err)
		}
	}
}

// writeFile replaces a file in one step and gives it a new inode, as editors do.
func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// newDir creates a directory that users of a container can enter, with a path without symlinks. The
// end of the test removes it.
func newDir(t testing.TB) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func makeExecutable(t testing.TB, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func makeLink(t testing.TB, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func gitInit(t testing.TB, folder string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", folder).
		CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
}
