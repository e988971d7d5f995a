package transfer

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// Push copies allowed sources to their targets.
func TestPush(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	write(t, home+"/src/a", "alpha")
	write(t, home+"/.git/config", "the container's own matter")
	write(t, other+"/shared/b", "beta")
	trusted := func(c *Config) {
		c.HostRoots = []string{other}
		c.Trusted = func(_ context.Context, folder string) bool { return folder == home }
	}
	untrusted := func(c *Config) { c.HostRoots = []string{other} }
	for name, tc := range map[string]struct {
		change  func(*Config)
		req     Request
		want    map[string]string
		refused []string
	}{
		"the same step": {
			trusted,
			Request{Paths: []string{home + "/src"}},
			map[string]string{"src/a": "alpha"},
			nil,
		},
		"relative": {
			trusted,
			Request{Paths: []string{"src/a"}},
			map[string]string{"src/a": "alpha"},
			nil,
		},
		"all of it": {
			trusted,
			Request{Paths: []string{"."}},
			map[string]string{"src/a": "alpha", ".git/config": "the container's own matter"},
			nil,
		},
		"by name": {
			trusted,
			Request{Paths: []string{other + "/shared"}},
			map[string]string{"shared/b": "beta"},
			nil,
		},
		"in a destination": {
			trusted,
			Request{Paths: []string{"src"}, Destination: "in/side"},
			map[string]string{"in/side/src/a": "alpha"},
			nil,
		},
		"not trusted": {
			untrusted,
			Request{Paths: []string{"src"}},
			nil,
			[]string{"src denied"},
		},
		"not allowed": {
			trusted,
			Request{Paths: []string{"/etc/passwd"}},
			nil,
			[]string{"/etc/passwd denied"},
		},
		"out of the container": {
			trusted,
			Request{Paths: []string{"src"}, Destination: "../x"},
			nil,
			[]string{"../x path_invalid"},
		},
		"what the host has": {
			trusted,
			Request{Paths: []string{"src"}, Destination: "shown"},
			nil,
			[]string{"src denied"},
		},
		"a part the host has": {
			trusted,
			Request{Paths: []string{other + "/shown"}},
			nil,
			[]string{other + "/shown denied"},
		},
		"dray's own": {
			trusted,
			Request{Paths: []string{"src"}, Destination: ".dray-stage-1"},
			nil,
			[]string{"src denied"},
		},
		"nothing that is there": {
			trusted,
			Request{Paths: []string{"none"}},
			nil,
			[]string{home + "/none not_found"},
		},
		"only said": {trusted, Request{Paths: []string{"src"}, DryRun: true}, nil, nil},
		"a link out of its root": {
			trusted,
			Request{Paths: []string{"out/passwd"}},
			nil,
			[]string{home + "/out/passwd path_invalid"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, tc.change)
			w.box.caps.Mounts = []dray.Mount{{Host: "/srv/shown", Container: "/ws/shown"}}
			_ = os.Symlink("/etc", home+"/out")
			if name == "all of it" {
				_ = os.Remove(home + "/out")
			}
			tc.req.Workspace = home
			r, err := w.Push(t.Context(), w.box, tc.req)
			if got := refusedCodes(r); !slices.Equal(got, tc.refused) ||
				(err != nil) != (tc.refused != nil) {
				t.Errorf("got %+v, %v", r, err)
			}
			wantFiles(t, filepath.Join(w.box.base, "ws"), tc.want)
			changes := Changes(r, dray.KindContainer)
			for _, c := range changes {
				if name, ok := strings.CutPrefix(c.Path, "/ws/"); !ok || c.Environment != dray.KindContainer ||
					c.SHA256After != sum(tc.want[name]) {
					t.Errorf("changed %+v", c)
				}
			}
			if len(changes) != len(tc.want) {
				t.Errorf("%d changes are told, %d were made", len(changes), len(tc.want))
			}
		})
	}
}

// Files of the sandbox root may be pushed.
func TestPush_SandboxRoot(t *testing.T) {
	w := newFixture(t, nil)
	write(t, w.root+"/kept/a", "alpha")
	for range 2 { // the root stays open
		if _, err := w.Push(t.Context(), w.box,
			Request{Paths: []string{w.root + "/kept/a"}}); err != nil {
			t.Fatal(err)
		}
	}
	wantFiles(t, filepath.Join(w.box.base, "ws"), map[string]string{"a": "alpha"})
}

// Targets in a mount of the container are refused.
func TestPush_Mount(t *testing.T) {
	w, host := mountedFixture(t,
		func(c *Config) { c.Trusted = func(context.Context, string) bool { return true } })
	write(t, host+"/a", "alpha")
	r, err := w.Push(t.Context(), w.box, Request{Paths: []string{"a"}, Workspace: host})
	if dray.CodeOf(err) != dray.CodeSyncRefused ||
		!slices.Equal(refusedCodes(r), []string{"a denied"}) {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestPush_NoTarget(t *testing.T) {
	w := newFixture(t, nil)
	w.box.caps.WorkspaceFolder = ""
	if _, err := w.Push(t.Context(), w.box,
		Request{Paths: []string{"/x"}}); dray.CodeOf(err) != dray.CodeSyncRefused {
		t.Errorf("got %v", err)
	}
	w.box.caps.Kind = dray.KindHost
	if _, err := w.Push(t.Context(), w.box,
		Request{Paths: []string{"/x"}}); dray.CodeOf(err) != dray.CodeSyncRefused {
		t.Errorf("got %v", err)
	}
}
