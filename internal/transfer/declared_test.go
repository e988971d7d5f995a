package transfer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dray-dev/dray"
)

// mountedFixture makes the workspace of the fake container a bind mount.
func mountedFixture(t *testing.T, change func(*Config)) (w *fixture, host string) {
	t.Helper()
	w = newFixture(t, change)
	host = filepath.Join(w.box.base, "ws")
	w.box.caps.Mounts = []dray.Mount{{Host: host, Container: "/ws"}}
	return w, host
}

// Outputs in a mount are listed, others are copied, and missing ones are refused (SY-11).
func TestDeclared(t *testing.T) {
	w, host := mountedFixture(t, nil)
	w.put("/ws/sub/out/a", "alpha")
	w.put("/ws/sub/b", "beta")
	w.put("/tmp/log/c", "gamma")
	if err := os.Symlink("/etc/passwd", host+"/sub/out/link"); err != nil {
		t.Fatal(err)
	}
	r := w.FetchDeclared(t.Context(), w.box,
		Request{
			ID: "the-id", Dir: "/ws/sub", Workspace: host,
			Paths: []string{"out", "b", host + "/sub/b", "/tmp/log", "none", "/tmp/none", "/etc/x"},
		})
	want := []dray.SyncedFile{
		{
			Path: host + "/sub/out/a", Source: "/ws/sub/out/a", Size: 5, SHA256: sum("alpha"), Mode: "0644",
			Action: dray.FileMounted,
		},
		{
			Path: host + "/sub/b", Source: "/ws/sub/b", Size: 4, SHA256: sum("beta"), Mode: "0644",
			Action: dray.FileMounted,
		},
		{
			Path: w.root + "/the-id/tmp/log/c", Source: "/tmp/log/c", Size: 5, SHA256: sum("gamma"),
			Mode: "0600", Action: dray.FileCreated,
		},
	}
	if r.State != dray.SyncComplete || r.Error != nil || r.Bytes != 14 ||
		!slices.Equal(r.Files, want) {
		t.Errorf("got %+v", r)
	}
	if got, want := refusedCodes(r), []string{"/etc/x denied", "/tmp/none not_found", host +
		"/sub/none not_found", host +
		"/sub/out/link path_invalid"}; !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("refused %v, want %v", got, want)
	}
	if got := Changes(r, dray.KindHost); len(got) != 1 || got[0].Path != w.root+"/the-id/tmp/log/c" {
		t.Errorf("what is only named was not changed: %v", got)
	}
	w.wantRoot(map[string]string{"the-id/tmp/log/c": "gamma"})
}

// An output that a symlink leads out of the workspace, or that is below a file, is refused alone
// (SY-11).
func TestDeclared_Symlink(t *testing.T) {
	for _, root := range []string{"a root", ""} {
		w, host := mountedFixture(t, func(c *Config) {
			if root == "" {
				c.Root = ""
			}
		})
		w.put("/ws/a", "alpha")
		w.put("/ws/b", "beta")
		if err := os.Symlink("/etc", host+"/out"); err != nil {
			t.Fatal(err)
		}
		r := w.FetchDeclared(t.Context(), w.box,
			Request{ID: "the-id", Dir: "/ws", Paths: []string{"out/passwd", "b/c", "a"}})
		if r.State != dray.SyncComplete || len(r.Files) != 1 || r.Files[0].Path != host+"/a" {
			t.Errorf("got %+v", r)
		}
		if got, want := refusedCodes(r), []string{host + "/b/c path_invalid", host +
			"/out/passwd path_invalid"}; !slices.Equal(got, want) {
			t.Errorf("refused %v, want %v", got, want)
		}
	}
}

// Outputs of a workspace that is no mount are written to the same path in a directory of the call
// (SY-11).
func TestDeclared_Volume(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/ws/sub/out/a", "alpha")
	r := w.FetchDeclared(t.Context(), w.box,
		Request{ID: "the-id", Dir: "/ws/sub", Paths: []string{"out"}})
	if r.State != dray.SyncComplete {
		t.Errorf("got %+v", r)
	}
	w.wantRoot(map[string]string{"the-id/sub/out/a": "alpha"})
}

// A file in a mount must be the same on both sides: with a remote engine the host's file is another
// one (SY-11).
func TestDeclared_RemoteEngine(t *testing.T) {
	w := newFixture(t, nil)
	other := t.TempDir()
	w.box.caps.Mounts = []dray.Mount{{Host: other, Container: "/ws"}}
	w.put("/ws/a", "theirs")
	write(t, filepath.Join(other, "a"), "ours, of another length")
	r := w.FetchDeclared(t.Context(), w.box, Request{ID: "the-id", Dir: "/ws", Paths: []string{"a"}})
	if r.State != dray.SyncComplete || len(r.Files) != 1 || r.Files[0].Action != dray.FileCreated {
		t.Errorf("got %+v", r)
	}
	w.wantRoot(map[string]string{"the-id/a": "theirs"})
}

// Outputs in a mount need no sandbox root. For others the error says that there is none (SY-11).
func TestDeclared_NoRoot(t *testing.T) {
	w, host := mountedFixture(t, func(c *Config) { c.Root = "" })
	w.put("/ws/a", "alpha")
	w.put("/tmp/b", "beta")
	r := w.FetchDeclared(t.Context(), w.box, Request{ID: "the-id", Dir: "/ws", Paths: []string{"a"}})
	if r.State != dray.SyncComplete || len(r.Files) != 1 || r.Files[0].Path != host+"/a" {
		t.Errorf("got %+v", r)
	}
	r = w.FetchDeclared(t.Context(), w.box,
		Request{ID: "the-id", Dir: "/ws", Paths: []string{"a", "/tmp/b"}})
	if r.State != dray.SyncRefused || r.Error == nil || r.Error.Code != dray.CodeSyncRefused ||
		len(r.Files) != 1 || r.Files[0].Action != dray.FileMounted {
		t.Errorf("got %+v", r)
	}
}

// The limits apply to all declared files, mounted or copied (SY-01).
func TestDeclared_Limits(t *testing.T) {
	w, _ := mountedFixture(t, func(c *Config) { c.Limits = dray.TreeLimits{MaxFiles: 3} })
	for _, name := range []string{"/ws/a", "/ws/b", "/tmp/c", "/tmp/d"} {
		w.put(name, "x")
	}
	r := w.FetchDeclared(t.Context(), w.box,
		Request{ID: "the-id", Dir: "/ws", Paths: []string{"a", "b", "/tmp/c", "/tmp/d"}})
	if r.State != dray.SyncFailed || r.Error == nil || r.Error.Code != dray.CodeLimitExceeded ||
		len(r.Files) != 2 {
		t.Errorf("got %+v", r)
	}
	w.wantRoot(nil)
}

// Outputs of a call on the host are listed, and those that do not exist are missing (SY-11).
func TestDeclared_Host(t *testing.T) {
	w := newFixture(t, nil)
	w.box.caps.Kind = dray.KindHost
	w.box.caps.WorkspaceFolder = w.box.base + "/ws"
	w.box.base = "/"
	dir := w.box.caps.WorkspaceFolder
	write(t, dir+"/out/a", "alpha")
	r := w.FetchDeclared(t.Context(), w.box,
		Request{ID: "the-id", Dir: dir, Paths: []string{"out", "none", "/etc/passwd"}})
	want := []dray.SyncedFile{{
		Path: dir + "/out/a", Source: dir + "/out/a", Size: 5,
		SHA256: sum("alpha"), Mode: "0644", Action: dray.FileMounted,
	}}
	if r.State != dray.SyncComplete || !slices.Equal(r.Files, want) ||
		!slices.Equal(refusedCodes(r), []string{"/etc/passwd denied", dir + "/none not_found"}) ||
		!slices.Equal(r.Missing, []string{dir + "/none"}) {
		t.Errorf("got %+v", r)
	}
	w.wantRoot(nil)
}
