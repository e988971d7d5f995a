package features

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

const filesDevcontainer = `{"image": "DEBIAN", "remoteUser": "vscode", "updateRemoteUserUID": false, "userEnvProbe": "none"}`

// newFilesFixture creates a workspace with all kinds of files, its container and a daemon.
func newFilesFixture(t *testing.T) *fixture {
	t.Helper()
	needsEngine(t)
	root := newDir(t)
	app := root + "/app"
	writeFiles(t, root, map[string]string{
		"app/.devcontainer/devcontainer.json": withImages(filesDevcontainer), "outside": "x", "app/log": "/workspaces/app/a.go:12:3: no /workspaces/apple\n",
		"app/tree/main.go": "\npackage main\n\nfunc main() {}\n", "app/tree/a/x.go": "package a\n", "app/tree/a-b/y.go": "package y\r\n\xff\xfe\n", "app/tree/.github/ci.yml": "on: push\n",
		"app/tree/.git/hook.go": "package a\n", "app/locked/closed/secret": "secret\n", "app/locked/open": "no secret\n", "app/tree/binary": "package a\x00\n", "app/made/.keep": "",
		"app/hostile/odd\xff\n\x1b[31m": "needle\n",
	})
	err := errors.Join(
		os.Symlink("main.go", app+"/tree/link"), os.Symlink("/workspaces/app/tree/a",
			app+"/tree/absolute"), os.Symlink("a", app+"/tree/to-a"),
		os.Symlink("/etc", app+"/hostile/etc"), os.Symlink("/etc/passwd",
			app+"/hostile/passwd"), os.Symlink("../..", app+"/hostile/up"),
		os.Symlink("loop", app+"/hostile/loop"), syscall.Mkfifo(app+"/hostile/pipe", 0o666),
		os.Chmod(app+"/tree/main.go", 0o640), os.Chown(app+"/tree/main.go", 0,
			1000), os.Chmod(app+"/locked/closed", 0o700), os.Chmod(app+"/made", 0o777), os.Chmod(app+"/tree", 0o777),
	)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		daemon: startDaemon(t, "host: {roots: ["+app+"]}\ntrust: {workspaces: ["+app+"]}\n"),
		root:   root, names: map[string]string{"workspace": app, "root": root},
	}
	t.Cleanup(func() { removeContainers(t, app) })
	r, err := f.daemon.call(t.Context(), "?wait_ms=60000",
		map[string]any{
			"tool": "exec", "input": map[string]any{"argv": []string{"true"}},
			"workspace": app,
		})
	if err != nil || r.at("/status") != "succeeded" {
		t.Fatalf("the workspace does not start: %v, %s", err, r.raw)
	}
	f.names["container"] = fmt.Sprint(r.at("/metadata/container/id"))
	return f
}

func TestFiles(t *testing.T) {
	f := newFilesFixture(t)
	t.Run("Alike", func(t *testing.T) { filesAlike(t, f) })
	runFeature(t, "files.feature", f)
}

// The same input has the same output, or the same error, on the host and in the container (EX-17).
func filesAlike(t *testing.T, f *fixture) {
	for _, call := range []struct{ tool, input string }{
		{"glob", `{"pattern": "tree/**"}`},
		{"glob", `{"pattern": "hostile/**"}`},
		{"glob", `{"pattern": "*", "path": "tree"}`},
		{"glob", `{"pattern": "**/", "path": "{workspace}/tree"}`},
		{"glob", `{"pattern": "*.go", "path": "tree/to-a"}`},
		{"glob", `{"pattern": ".git/*", "path": "tree"}`},
		{"glob", `{"pattern": "*", "path": "tree/absolute"}`},
		{"glob", `{"pattern": "*", "path": "none"}`},
		{"grep", `{"pattern": "package", "path": "tree/a"}`},
		{"grep", `{"pattern": ".", "path": "tree/a-b"}`},
		{"grep", `{"pattern": "package", "path": "tree/binary"}`},
		{"grep", `{"pattern": "package", "path": "tree/link"}`},
		{"grep", `{"pattern": "package", "path": "none"}`},
		{"grep", `{"pattern": "x", "path": "hostile/loop"}`},
		{"stat", `{"path": "tree/a"}`},
		{"stat", `{"path": "{workspace}/tree/absolute"}`},
		{"stat", `{"path": "hostile/passwd"}`},
		{"stat", `{"path": "hostile/pipe"}`},
		{"stat", `{"path": "hostile/loop"}`},
		{"stat", `{"path": "tree/main.go/x"}`},
		{"list_dir", `{"path": "tree"}`},
		{"list_dir", `{"path": "hostile"}`},
		{"read_file", `{"path": "tree/a-b/y.go"}`},
		{"read_file", `{"path": "tree/link"}`},
		{"read_file", `{"path": "hostile/up/outside"}`},
		{"edit_file", `{"path": "tree/link", "edits": [{"old": "a", "new": "b"}]}`},
		{"edit_file", `{"path": "tree", "edits": [{"old": "a", "new": "b"}]}`},
		{"edit_file", `{"path": "tree/none", "patch": "@@ -1 +1 @@\n-a\n+b\n"}`},
		{"edit_file", `{"path": "tree/a/x.go", "edits": [{"old": "nowhere", "new": "b"}]}`},
		{"write_file", `{"path": "tree/none/x", "content": ""}`},
	} {
		got := map[string]string{}
		for _, where := range []string{"host", "container"} {
			body := map[string]any{
				"tool": call.tool,
				"input": json.RawMessage(strings.ReplaceAll(call.input, "{workspace}",
					f.names["workspace"])), "workspace": f.names["workspace"], "environment": where,
			}
			a, err := f.daemon.call(t.Context(), "", body)
			if err != nil {
				t.Fatal(err)
			}
			said := fmt.Sprintf("%v %v %v %v", a.at("/status"), a.at("/output"), a.at("/error/code"),
				a.at("/error/message"))
			got[where] = strings.ReplaceAll(said, "/workspaces/app", f.names["workspace"])
		}
		if got["host"] != got["container"] {
			t.Errorf("%s %s:\non the host      %s\nin the container %s", call.tool, call.input, got["host"],
				got["container"])
		}
	}
}
