package transfer

import (
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// FuzzSources checks that every source is in an allowed directory, and every target beneath the
// root.
func FuzzSources(f *testing.F) {
	for _, given := range []string{
		"/ws/a", "/tmp", "/tmp/../etc", "a/b/", "./a", "..", "/", "", "//tmp/x", "/ws/\x00", "/home/me/app/x", "/data/z", "/tmpfoo", "C:\\x", "/ws/..a", "/srv/root/x",
	} {
		for _, destination := range []string{"", "d", "../d", "/d", "d/../..", ".", "d//e", "..d"} {
			f.Add(given, destination, true)
		}
	}
	s, err := Open(f.Context(), Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	s.cfg.Root, s.cfg.Sources = "/srv/root", []string{"/opt/out"}
	at := &fakeContainer{caps: dray.Capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: "/ws",
		Mounts: []dray.Mount{
			{Host: "/srv/root/in", Container: "/data", Configured: true}, {
				Host:      "/home/me/app",
				Container: "/ws/app",
			}, {Container: "/ws/app/cache"},
		},
	}}
	f.Fuzz(func(t *testing.T, given, destination string, declared bool) {
		j, err := s.newJob(at, Request{
			ID: "id", Dir: "/ws", Workspace: "/home/me/app", Destination: destination,
			Paths: []string{given, "/tmp/other"},
		})
		if err != nil {
			t.Fatal(err)
		}
		j.declared = declared
		if j.destination, err = checkDestination(destination, "/srv/root"); err != nil {
			return
		}
		j.findSources()
		j.dedupe()
		if len(j.sources)+len(j.refused) < 1 || len(j.sources) > 2 {
			t.Fatalf("got %+v, %+v", j.sources, j.refused)
		}
		for _, src := range j.sources {
			if !filepath.IsLocal(src.name) || !filepath.IsLocal(src.target) ||
				path.Clean(src.path) != src.path || path.Join(src.root, src.name) != src.path {
				t.Errorf("%q to %q: got %+v", given, destination, src)
			}
			if _, _, ok := nearest(src.path, []string{"/ws", "/tmp", "/opt/out", "/data"}); !ok ||
				strings.Contains(src.path, "\x00") {
				t.Errorf("%q: got %+v", given, src)
			}
		}
	})
}

// FuzzDenied checks that a denied name is denied at any depth and in any case.
func FuzzDenied(f *testing.F) {
	for _, name := range []string{"a", "a/b", "x\xff", ".git", "..", "\u017f"} {
		f.Add(name)
	}
	d, err := newDenyList(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, around string) {
		for _, name := range []string{".git/hooks", ".ENVRC", ".vscode"} {
			for _, full := range []string{around + "/" + name, name + "/" + around, strings.ToUpper(around) +
				"/" + name + "/x"} {
				if _, refused := d.find(full, true); !refused {
					t.Errorf("%q may be written", full)
				}
			}
		}
	})
}
