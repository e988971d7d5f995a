package command

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
)

// makeTree creates directories (names that end with a slash) and empty files, and returns their
// root.
func makeTree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"remoteEnv": {"A": "${localEnv:DRAY_TEST_A}", "B": "${env:DRAY_TEST_B:x}"}} // ${localEnv:DRAY_TEST_UNSET}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCallFlagsResolvePaths(t *testing.T) {
	root := makeTree(t, "app/.devcontainer/devcontainer.json", "app/sub/x",
		"app/inner/.devcontainer.json", "app/inner/x", "plain/x")
	at := func(name string) string { return filepath.Join(root, name) }
	tests := map[string]struct {
		from           string
		to             callFlags
		workspace, cwd string
	}{
		"in the workspace": {"app", callFlags{}, at("app"), at("app")},
		"below it":         {"app/sub", callFlags{}, at("app"), at("app/sub")},
		"in one within":    {"app/inner", callFlags{}, at("app/inner"), at("app/inner")},
		"outside":          {"plain", callFlags{}, "", at("plain")},
		"another folder":   {"app", callFlags{cwd: "sub"}, at("app"), at("app/sub")},
		"another folder's workspace": {
			"plain",
			callFlags{cwd: "../app/sub"},
			at("app"),
			at("app/sub"),
		},
		"a folder that is not there": {"app", callFlags{cwd: "none"}, at("app"), at("app/none")},
		"a folder of the container":  {"app/sub", callFlags{cwd: "/"}, at("app"), "/"},
		"on the host":                {"app/sub", callFlags{host: true}, at("app"), at("app/sub")},
		"a named workspace":          {"plain", callFlags{workspace: at("app")}, at("app"), ""},
		"one relative to here":       {"plain", callFlags{workspace: "../app"}, at("app"), ""},
		"named from within": {
			"app/sub",
			callFlags{workspace: at("app")},
			at("app"),
			at("app/sub"),
		},
		"named, and a folder of it": {
			"plain",
			callFlags{workspace: at("app"), cwd: "sub"},
			at("app"),
			"sub",
		},
		"named from within, and more": {
			"app/inner",
			callFlags{workspace: at("app"), cwd: "sub"},
			at("app"), "sub",
		},
		"a container":                {"app/sub", callFlags{container: "c"}, "", ""},
		"a container and its folder": {"app/sub", callFlags{container: "c", cwd: "/srv"}, "", "/srv"},
		"a container and its workspace": {
			"plain",
			callFlags{container: "c", workspace: at("app")},
			at("app"), "",
		},
	}
	t.Setenv("DRAY_TEST_A", "secret")
	t.Setenv("DRAY_TEST_B", "")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(at(tt.from))
			call, err := tt.to.call(newTestCommand(t), "exec", nil)
			if err != nil {
				t.Fatal(err)
			}
			if call.Workspace != tt.workspace || call.Cwd != tt.cwd || call.Container != tt.to.container {
				t.Errorf("workspace %q, cwd %q; want %q, %q", call.Workspace, call.Cwd, tt.workspace, tt.cwd)
			}
			if host := call.Environment == dray.ChooseHost; host != tt.to.host {
				t.Errorf("environment %q", call.Environment)
			}
			want := map[string]string{}
			if tt.workspace != "" && !tt.to.host {
				want = map[string]string{"DRAY_TEST_A": "secret", "DRAY_TEST_B": ""}
			}
			if !maps.Equal(call.LocalEnv, want) {
				t.Errorf("EX-06: local variables %v, want %v", call.LocalEnv, want)
			}
		})
	}
}

func TestCallFlags_CurrentDirectoryRemoved(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if _, err := (&callFlags{}).call(newTestCommand(t), "exec",
		nil); dray.CodeOf(err) != dray.CodeBadCwd {
		t.Errorf("got %v", err)
	}
}

// newTestCommand returns a command with the context of a test.
func newTestCommand(t *testing.T) *cobra.Command {
	t.Helper()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	return cmd
}
