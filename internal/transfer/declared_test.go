package transfer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dray-dev/dray"
)

// mountedWorld makes the workspace of a box a folder of the host that it shows.
func mountedWorld(t *testing.T, change func(*Config)) (w *fixture, host string) {
	t.Helper()
	w = newFixture(t, change)
	host = filepath.Join(w.box.base, "ws")
	w.box.caps.Mounts = []dray.Mount{{Host: host, Container: "/ws"}}
	return w, host
}

// SY-11: what the host sees through a mount is named, what it does not see comes home, and what is
// not there is listed.
func TestDeclared(t *testing.T) {
	w, host := mountedWorld(t, nil)
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
	if got, want := refusedAs(r), []string{"/etc/x denied", "/tmp/none not_found", host +
		"/sub/none not_found", host +
		"/sub/out/link path_invalid"}; !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("refused %v, want %v", got, want)
	}
	if got := Changes(r, dray.KindHost); len(got) != 1 || got[0].Path != w.root+"/the-id/tmp/log/c" {
		t.Errorf("what is only named was not changed: %v", got)
	}
	w.wantRoot(map[string]string{"the-id/tmp/log/c": "gamma"})
}

// SY-11: an output that a link leads out of the workspace, or that lies below a file, is refused by
// itself: the others come.
func TestDeclaredBehindALink(t *testing.T) {
	for _, root := range []string{"a root", ""} {
		w, host := mountedWorld(t, func(c *Config) {
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
		if got, want := refusedAs(r), []string{host + "/b/c path_invalid", host +
			"/out/passwd path_invalid"}; !slices.Equal(got, want) {
			t.Errorf("refused %v, want %v", got, want)
		}
	}
}

// SY-11: where the workspace is no mount its outputs land at the same step, below a folder of the
// call.
func TestDeclaredOfAVolume(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/ws/sub/out/a", "alpha")
	r := w.FetchDeclared(t.Context(), w.box,
		Request{ID: "the-id", Dir: "/ws/sub", Paths: []string{"out"}})
	if r.State != dray.SyncComplete {
		t.Errorf("got %+v", r)
	}
	w.wantRoot(map[string]string{"the-id/sub/out/a": "alpha"})
}

// SY-11: a mount is believed only where both sides see the same file: with an engine elsewhere the
// host's folder is another.
func TestDeclaredOfAMountElsewhere(t *testing.T) {
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

// SY-11: what a mount shows needs no sandbox root; the rest says that there is none.
func TestDeclaredWithoutARoot(t *testing.T) {
	w, host := mountedWorld(t, func(c *Config) { c.Root = "" })
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

// SY-01: the caps are those of all that is declared, seen or copied.
func TestDeclaredCaps(t *testing.T) {
	w, _ := mountedWorld(t, func(c *Config) { c.Limits = dray.TreeLimits{MaxFiles: 3} })
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

// SY-11: on the host the files are there already, and are named.
func TestDeclaredOnTheHost(t *testing.T) {
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
		!slices.Equal(refusedAs(r), []string{"/etc/passwd denied", dir + "/none not_found"}) {
		t.Errorf("got %+v", r)
	}
	w.wantRoot(nil)
}
