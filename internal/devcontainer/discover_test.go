package devcontainer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
)

func TestLocate(t *testing.T) {
	dir := tempDir(t)
	for _, folder := range []string{"both", "file", "named", "none", "folder"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "both/.devcontainer/devcontainer.json", "{}")
	write(t, dir, "both/.devcontainer.json", "{}")
	write(t, dir, "file/.devcontainer.json", "{}")
	write(t, dir, "named/.devcontainer/go/devcontainer.json", "{}")
	write(t, dir, "named/other/config.json", "{}")
	write(t, dir, "folder/.devcontainer/devcontainer.json/x", "{}")
	write(t, dir, "folder/.devcontainer.json", "{}")
	write(t, dir, "plain/.devcontainer", "no folder")
	write(t, dir, "nothing/.devcontainer/devcontainer.json/x", "{}")
	for name, put := range map[string]func(path string) error{
		"dangling": func(path string) error { return os.Symlink("/no/such/file", path) },
		"fifo":     func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		folder := filepath.Join(dir, name, ".devcontainer")
		if err := errors.Join(os.MkdirAll(folder, 0o755),
			put(filepath.Join(folder, "devcontainer.json"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		folder, config, want string
		code                 dray.Code
		hint                 string
	}{
		{folder: "both", want: "both/.devcontainer/devcontainer.json"},
		{folder: "both/../both/", want: "both/.devcontainer/devcontainer.json"},
		{folder: "file", want: "file/.devcontainer.json"},
		{folder: "folder", want: "folder/.devcontainer.json"},
		{folder: "both", config: ".devcontainer.json", want: "both/.devcontainer.json"},
		{folder: "none", config: dir + "/file/.devcontainer.json", want: "file/.devcontainer.json"},
		{
			folder: "named", config: ".devcontainer/go/devcontainer.json",
			want: "named/.devcontainer/go/devcontainer.json",
		},
		{folder: "named", code: dray.CodeNoDevcontainer, hint: ".devcontainer/go/devcontainer.json"},
		{folder: "named", config: "other/config.json", code: dray.CodeInvalidRequest, hint: "rename"},
		{
			folder: "named", config: ".devcontainer/rust/devcontainer.json", code: dray.CodeNoDevcontainer,
			hint: "check the path",
		},
		{
			folder: "folder", config: ".devcontainer/devcontainer.json", code: dray.CodeNoDevcontainer,
			hint: "check the path",
		},
		{folder: "none", code: dray.CodeNoDevcontainer, hint: "none/.devcontainer/devcontainer.json"},
		{
			folder: "plain", code: dray.CodeContainerFailed,
			hint: "remove it",
		}, // RT-02: what stands there and cannot be read is never "none"
		{folder: "nothing", code: dray.CodeContainerFailed, hint: "remove it"},
		{folder: "dangling", code: dray.CodeContainerFailed, hint: "remove it"},
		{folder: "fifo", code: dray.CodeContainerFailed, hint: "remove it"},
		{folder: "gone", code: dray.CodeWorkspaceNotFound, hint: "check the path"},
		{folder: "file/.devcontainer.json", code: dray.CodeWorkspaceNotFound, hint: "use the directory"},
		{folder: "file/.devcontainer.json/x", code: dray.CodeWorkspaceNotFound, hint: "check the path"},
	} {
		t.Run(test.folder+" "+test.config, func(t *testing.T) {
			loc, err := Locate(t.Context(), dir+"/"+test.folder, test.config)
			if test.code == "" {
				want := Location{filepath.Join(dir, test.folder), filepath.Join(dir, test.want)}
				if err != nil || loc != want {
					t.Fatalf("got %v, %v, want %v", loc, err, want)
				}
				return
			}
			if dray.CodeOf(err) != test.code || !strings.Contains(dray.AsError(err).Hint, test.hint) {
				t.Errorf("got %v (%s, %q), want %s with a hint of %q", err, dray.CodeOf(err), dray.AsError(err).
					Hint, test.code, test.hint)
			}
		})
	}
	if _, err := Locate(t.Context(), "relative", ""); dray.CodeOf(err) != dray.CodeInvalidRequest {
		t.Errorf("a relative workspace: %v", err)
	}
}

func TestFindWorkspace(t *testing.T) {
	dir := tempDir(t)
	write(t, dir, "a/.devcontainer.json", "{}")
	write(t, dir, "a/b/.devcontainer/devcontainer.json", "{}")
	write(t, dir, "a/b/c/d/file", "")
	write(t, dir, "x/y/file", "")
	for from, want := range map[string]string{
		"a": "a", "a/b": "a/b", "a/b/c/d": "a/b",
		"a/b/../b/c": "a/b",
	} {
		if loc, err := FindWorkspace(t.Context(), filepath.Join(dir, from)); err != nil ||
			loc.Workspace != filepath.Join(dir, want) {
			t.Errorf("from %s: %v, %v, want %s", from, loc, err, want)
		}
	}
	if _, err := FindWorkspace(t.Context(), dir+"/x/y"); dray.CodeOf(err) != dray.CodeNoDevcontainer ||
		dray.AsError(err).Hint == "" {
		t.Errorf("without any configuration: %v", err)
	}
	if _, err := FindWorkspace(t.Context(), filepath.Join(dir,
		"gone")); dray.CodeOf(err) != dray.CodeWorkspaceNotFound {
		t.Errorf("from a folder that does not exist: %v", err)
	}
}

func TestNearestStopsAtRoot(t *testing.T) {
	dir := tempDir(t)
	write(t, dir, ".devcontainer.json", "{}")
	write(t, dir, "a/b/c/file", "")
	if folder, ok := Nearest(t.Context(), dir+"/a/b/c", filepath.Join(dir, "a")); ok {
		t.Errorf("found %s above the root", folder)
	}
	if folder, ok := Nearest(t.Context(), dir+"/a/b/c", dir); !ok || folder != dir {
		t.Errorf("got %s, %v, want the root itself", folder, ok)
	}
}

// A configuration that cannot be examined does not count as absent: the call would run on the host
// (RT-02).
func TestLocate_UnreadableDirectoryIsAnError(t *testing.T) {
	dir := tempDir(t)
	write(t, dir, "file", "")
	// a loop: ELOOP for root as well
	if err := os.Symlink(".devcontainer", filepath.Join(dir, ".devcontainer")); err != nil {
		t.Fatal(err)
	}
	if folder, ok := Nearest(t.Context(), dir, dir); !ok || folder != dir {
		t.Errorf("got %s, %v: the folder was passed over", folder, ok)
	}
	if _, err := Locate(t.Context(), dir, ""); dray.CodeOf(err) != dray.CodeContainerFailed {
		t.Errorf("got %v (%s)", err, dray.CodeOf(err))
	}
}

func TestReadConfig_InvalidFile(t *testing.T) {
	for content, want := range map[string]string{
		"[]":                     "line 1, column 1: the file must hold an object, not an array",
		"":                       "line 1, column 1: the file holds no value",
		"\n// only a comment":    "line 2, column 18: the file holds no value",
		strings.Repeat(" ", 2e6): "too large",
	} {
		_, err := ReadConfig(t.Context(), workspace(t, content))
		if dray.CodeOf(err) != dray.CodeContainerFailed || !strings.Contains(err.Error(), want) ||
			dray.AsError(err).Hint == "" {
			t.Errorf("%.20q: %v (%s), want %q", content, err, dray.CodeOf(err), want)
		}
	}
	loc := workspace(t, "{}")
	if err := os.Remove(loc.Config); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(t.Context(), loc); dray.CodeOf(err) != dray.CodeNoDevcontainer {
		t.Errorf("a file that is gone: %v", err)
	}
	mkfifo(t, loc.Config)
	// and it did not wait for a writer
	if _, err := ReadConfig(t.Context(), loc); dray.CodeOf(err) != dray.CodeContainerFailed {
		t.Errorf("a FIFO: %v", err)
	}
}
