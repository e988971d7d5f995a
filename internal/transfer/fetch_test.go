package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// fakeContainer is a container whose files are beneath a directory of the host.
type fakeContainer struct {
	base string
	caps dray.Capabilities
	// open may replace the result of Files.
	open func(dray.Files) dray.Files
}

func (b *fakeContainer) Start(context.Context, dray.ProcessSpec) (dray.Process, error) {
	return nil, errors.ErrUnsupported
}

func (b *fakeContainer) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

func (b *fakeContainer) Capabilities() dray.Capabilities { return b.caps }

func (b *fakeContainer) Files(_ context.Context, root string) (dray.Files, error) {
	f, err := files.Open(filepath.Join(b.base, root))
	if err != nil {
		return nil, err
	}
	if b.open != nil {
		return b.open(f), nil
	}
	return f, nil
}

// fixture is a Syncer with a sandbox root, and a fake container.
type fixture struct {
	*Syncer
	t    *testing.T
	root string
	box  *fakeContainer
}

func newFixture(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	w := &fixture{t: t, root: filepath.Join(t.TempDir(), "root")}
	cfg := Config{
		Root: w.root, Sources: []string{"/srv/out"}, Timeout: time.Minute,
		Limits: dray.TreeLimits{MaxFile: 1 << 20, MaxTotal: 2 << 20, MaxFiles: 50, MaxDepth: 4},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w.Syncer = s
	w.box = &fakeContainer{
		base: t.TempDir(),
		caps: dray.Capabilities{Kind: dray.KindContainer, WorkspaceFolder: "/ws"},
	}
	for _, dir := range []string{"/ws", "/tmp", "/srv/out", "/etc"} {
		if err := os.MkdirAll(filepath.Join(w.box.base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// put writes a file in the fake container.
func (w *fixture) put(name, content string) {
	w.t.Helper()
	write(w.t, filepath.Join(w.box.base, name), content)
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// content returns all files beneath a directory of the host.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		got[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (w *fixture) wantRoot(want map[string]string) {
	w.t.Helper()
	wantFiles(w.t, w.root, want)
}

func wantFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := content(t, dir)
	for name, c := range want {
		if got[name] != c {
			t.Errorf("%s: got %.80q, want %.80q", name, got[name], c)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is there too", name)
	}
}

func sum(content string) string {
	h := sha256.Sum256([]byte(content))
	return hex.EncodeToString(h[:])
}

func refusedCodes(r dray.SyncReport) []string {
	var list []string
	for _, p := range r.Refused {
		list = append(list, p.Path+" "+string(p.Code))
	}
	slices.Sort(list)
	return list
}

// Files and directories arrive unchanged, and the manifest is right (SY-01, SY-10).
func TestFetch(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/tmp/out/a.txt", "alpha")
	w.put("/tmp/out/deep/b\xff\n", "beta\x00\xff")
	w.put("/ws/report.csv", "1,2\n")
	write(t, w.root+"/out/a.txt", "old")
	if err := os.Chmod(w.root+"/out", 0o700); err != nil {
		t.Fatal(err)
	}
	req := Request{Paths: []string{"/tmp/out/", "report.csv"}, Dir: "/ws", DryRun: true}
	dry, err := w.Fetch(t.Context(), w.box, req)
	if err != nil {
		t.Fatal(err)
	}
	w.wantRoot(map[string]string{"out/a.txt": "old"})
	req.DryRun = false
	done, err := w.Fetch(t.Context(), w.box, req)
	if err != nil {
		t.Fatal(err)
	}
	w.wantRoot(map[string]string{
		"out/a.txt": "alpha", "out/deep/b\xff\n": "beta\x00\xff",
		"report.csv": "1,2\n",
	})
	for _, r := range []dray.SyncReport{dry, done} {
		want := []dray.SyncedFile{
			{
				Path: w.root + "/out/a.txt", Source: "/tmp/out/a.txt", Size: 5, SHA256: sum("alpha"),
				SHA256Before: sum("old"), Mode: "0600", Action: dray.FileReplaced,
			},
			{
				Path: w.root + "/out/deep/b\\xff\n", Source: "/tmp/out/deep/b\\xff\n", Size: 6,
				SHA256: sum("beta\x00\xff"), Mode: "0600", Action: dray.FileCreated,
			},
			{
				Path: w.root + "/report.csv", Source: "/ws/report.csv", Size: 4, SHA256: sum("1,2\n"),
				Mode: "0600", Action: dray.FileCreated,
			},
		}
		if r.State != dray.SyncComplete || r.Bytes != 15 || !slices.Equal(r.Files, want) {
			t.Errorf("got %+v", r)
		}
	}
	if !dry.DryRun || len(Changes(dry, dray.KindHost)) != 0 || len(Changes(done, dray.KindHost)) != 3 {
		t.Errorf("a dry run changes nothing: %+v", Changes(dry, dray.KindHost))
	}
	if want := []dray.SyncTarget{
		{Source: "/tmp/out", Path: w.root + "/out"},
		{Source: "/ws/report.csv", Path: w.root + "/report.csv"},
	}; !slices.Equal(done.Targets, want) {
		t.Errorf("landed %v", done.Targets)
	}
	again, err := w.Fetch(t.Context(), w.box, req)
	if err != nil || again.Files[0].Action != dray.FileUnchanged ||
		len(Changes(again, dray.KindHost)) != 0 {
		t.Errorf("got %+v, %v", again, err)
	}
}

// Refused sources are listed, and nothing is written; with on_refused skip the others are (SY-02).
func TestFetch_Refusals(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/ws/good", "good")
	w.put("/ws/d/good", "good")
	w.put("/ws/d/.git/hooks/pre-commit", "evil")
	w.put("/ws/d/.Envrc", "evil")
	w.put("/etc/shadow", "secret")
	d := w.box.base + "/ws/d"
	if err := errors.Join(os.Symlink("/etc/shadow", d+"/link"), syscall.Mkfifo(d+"/fifo", 0o600),
		os.Link(w.box.base+"/etc/shadow", d+"/hard")); err != nil {
		t.Fatal(err)
	}
	req := Request{Dir: "/ws", Paths: []string{
		"/ws/good", "/ws/d", "/etc/shadow", "../etc/shadow", "/ws/../etc/shadow", "/ws//good", "/ws/a\x00b", "/ws/none", "/", "", "/wsx/y",
	}}
	want := []string{
		" path_invalid", "../etc/shadow path_invalid", "/ denied", "/etc/shadow denied", "/ws/../etc/shadow path_invalid",
		"/ws//good path_invalid", "/ws/a\x00b path_invalid", "/wsx/y denied",
	}
	r, err := w.Fetch(t.Context(), w.box, req)
	if dray.CodeOf(err) != dray.CodeSyncRefused || r.State != dray.SyncRefused || len(r.Files) != 0 ||
		!slices.Equal(refusedCodes(r), slices.Sorted(slices.Values(want))) {
		t.Errorf("got %v\nwant %v\n%v", refusedCodes(r), want, err)
	}
	req.Paths = []string{"/ws/good", "/ws/d", "/ws/none"}
	want = []string{
		"/ws/d/.Envrc denied", "/ws/d/.git/hooks denied", "/ws/d/fifo path_invalid", "/ws/d/hard path_invalid", "/ws/d/link path_invalid", "/ws/none not_found",
	}
	r, err = w.Fetch(t.Context(), w.box, req)
	if dray.CodeOf(err) != dray.CodeSyncRefused || len(r.Files) != 0 ||
		!slices.Equal(refusedCodes(r), want) {
		t.Errorf("got %v, %v", refusedCodes(r), err)
	}
	w.wantRoot(nil)
	req.SkipRefused = true
	r, err = w.Fetch(t.Context(), w.box, req)
	if err != nil || !slices.Equal(refusedCodes(r), want) {
		t.Errorf("got %v, %v", refusedCodes(r), err)
	}
	w.wantRoot(map[string]string{"good": "good", "d/good": "good"})
	if wantLanded := []dray.SyncTarget{
		{Source: "/ws/good", Path: w.root + "/good"},
		{Source: "/ws/d/good", Path: w.root + "/d/good"},
	}; !slices.Equal(r.Targets, wantLanded) {
		t.Errorf("files of an incomplete directory are not listed: %v", r.Targets)
	}
}

// Relative paths need a workspace (SY-02).
func TestFetch_RelativePath(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/ws/a", "a")
	r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"a"}})
	if dray.CodeOf(err) != dray.CodeSyncRefused ||
		!slices.Equal(refusedCodes(r), []string{"a path_invalid"}) {
		t.Errorf("got %v, %v", r, err)
	}
}

// The targets of the sources.
func TestFetch_Targets(t *testing.T) {
	for name, tc := range map[string]struct {
		req     Request
		want    map[string]string
		refused []string
	}{
		"by name": {
			Request{Paths: []string{"/tmp/x", "/srv/out/y"}},
			map[string]string{"x/f": "x", "y": "y"},
			nil,
		},
		"in a destination": {
			Request{Paths: []string{"/tmp/x"}, Destination: "runs/1/"},
			map[string]string{"runs/1/x/f": "x"},
			nil,
		},
		"where a mapping leads": {
			Request{Paths: []string{"/data/z"}},
			map[string]string{"mapped/z": "z"},
			nil,
		},
		"a destination goes before": {
			Request{Paths: []string{"/data/z"}, Destination: "d"},
			map[string]string{"d/z": "z"},
			nil,
		},
		"twice the same": {
			Request{Paths: []string{"/tmp/x", "/tmp/x/"}},
			map[string]string{"x/f": "x"},
			nil,
		},
		"one within the other": {
			Request{Paths: []string{"/tmp/x", "/tmp/x/f"}},
			map[string]string{"x/f": "x", "f": "x"},
			nil,
		},
		"a workspace itself": {
			Request{Paths: []string{"/ws"}},
			map[string]string{"ws/w": "w"},
			nil,
		},
		"two in one place": {
			Request{Paths: []string{"/tmp/x", "/ws2/x"}},
			nil,
			[]string{"/ws2/x path_invalid"},
		},
		"outside the root": {
			Request{Paths: []string{"/tmp/x"}, Destination: "../x"},
			nil,
			[]string{"../x path_invalid"},
		},
		"an absolute destination": {
			Request{Paths: []string{"/tmp/x"}, Destination: "/x"},
			nil,
			[]string{"/x path_invalid"},
		},
		"an unclean destination": {
			Request{Paths: []string{"/tmp/x"}, Destination: "a//b"},
			nil,
			[]string{"a//b path_invalid"},
		},
		"a destination that counts": {
			Request{Paths: []string{"/tmp/hooks"}, Destination: ".git"},
			nil,
			[]string{"/tmp/hooks denied"},
		},
		"a stage folder": {
			Request{Paths: []string{"/tmp/x"}, Destination: ".dray-stage-1"},
			nil,
			[]string{"/tmp/x denied"},
		},
		"the host's name": {
			Request{Paths: []string{"/home/me/ws2/x"}},
			map[string]string{"x": "x2"},
			nil,
		},
		"a step in the workspace": {Request{
			Paths:     []string{"/home/me/app/w"},
			Workspace: "/home/me/app",
		}, map[string]string{"w": "w"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, nil)
			w.box.caps.Mounts = []dray.Mount{
				{
					Host: filepath.Join(w.root, "mapped"), Container: "/data",
					Configured: true,
				}, {Host: "/home/me/ws2", Container: "/ws2"},
			}
			for name, content := range map[string]string{
				"/tmp/x/f": "x", "/srv/out/y": "y", "/data/z": "z",
				"/ws/w": "w", "/ws2/x": "x2", "/tmp/hooks/h": "h",
			} {
				w.put(name, content)
			}
			r, err := w.Fetch(t.Context(), w.box, tc.req)
			if got := refusedCodes(r); !slices.Equal(got, tc.refused) ||
				(err != nil) != (tc.refused != nil) {
				t.Errorf("got %v, %v", got, err)
			}
			w.wantRoot(tc.want)
		})
	}
}

// A destination that leads elsewhere is refused with the code sync_refused (SY-03).
func TestFetch_DestinationIsSymlink(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/tmp/x/f", "x")
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(w.root, "d")); err != nil {
		t.Fatal(err)
	}
	r, err := w.Fetch(t.Context(), w.box,
		Request{Paths: []string{"/tmp/x"}, Destination: "d", SkipRefused: true})
	if dray.CodeOf(err) != dray.CodeSyncRefused || r.State != dray.SyncRefused ||
		len(r.Refused) != 1 || r.Refused[0].Code != dray.CodePathInvalid {
		t.Errorf("got %+v, %v", r, err)
	}
	wantFiles(t, outside, nil)
}

// Each limit is named by its key (SY-01).
func TestFetch_Limits(t *testing.T) {
	for name, tc := range map[string]struct {
		limits dray.TreeLimits
		says   string
	}{
		"a large file":    {dray.TreeLimits{MaxFile: 4}, "max_file"},
		"too much":        {dray.TreeLimits{MaxTotal: 9}, "max_total"},
		"too many":        {dray.TreeLimits{MaxFiles: 3}, "max_files"},
		"too deep":        {dray.TreeLimits{MaxDepth: 1}, "max_depth"},
		"exactly allowed": {dray.TreeLimits{MaxFile: 5, MaxTotal: 10, MaxFiles: 5, MaxDepth: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, func(c *Config) { c.Limits = tc.limits })
			w.put("/tmp/x/a", "12345")
			w.put("/tmp/x/d/e/f", "12345")
			r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp/x"}})
			if tc.says == "" {
				if err != nil || len(r.Files) != 2 {
					t.Errorf("got %+v, %v", r, err)
				}
				return
			}
			if e := dray.AsError(err); e == nil || e.Code != dray.CodeLimitExceeded ||
				!strings.Contains(e.Hint+e.Message, tc.says) || r.State != dray.SyncFailed {
				t.Errorf("got %+v, %+v", r, e)
			}
			w.wantRoot(nil)
		})
	}
}

func TestFetch_NoRoot(t *testing.T) {
	w := newFixture(t, func(c *Config) { c.Root, c.ConfigFile = "", "/c.yaml" })
	r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp/x"}})
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeSyncRefused ||
		!strings.Contains(e.Hint, "sandbox.root in /c.yaml") || r.State != dray.SyncRefused {
		t.Errorf("got %+v, %+v", r, e)
	}
}

func TestFetch_Host(t *testing.T) {
	w := newFixture(t, nil)
	w.box.caps.Kind = dray.KindHost
	if _, err := w.Fetch(t.Context(), w.box,
		Request{Paths: []string{"/tmp/x"}}); dray.CodeOf(err) != dray.CodeSyncRefused || !strings.Contains(err.Error(), "already") {
		t.Errorf("got %v", err)
	}
}
