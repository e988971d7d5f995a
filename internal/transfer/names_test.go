package transfer

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/executortest"
)

// makeNames calls create with many paths of almost 4 KB of control characters, relative to a
// directory in which they can be created.
func makeNames(t *testing.T, dir string, count int, create func(dir *os.Root, name string) error) {
	t.Helper()
	root := executortest.DeepDir(t, dir, strings.Repeat("\x01", 255), 15)
	for i := range count {
		if err := create(root, fmt.Sprintf("%s%05d", strings.Repeat("\x01", 200), i)); err != nil {
			t.Fatal(err)
		}
	}
}

// The report of a sync with thousands of long refused names is bounded, and has their number.
func TestFetch_ManyRefusedNames(t *testing.T) {
	const count = 9900
	w := newFixture(t, func(c *Config) { c.Limits = dray.TreeLimits{MaxFiles: 10_000, MaxDepth: 64} })
	makeNames(t, w.box.base+"/tmp", count, func(dir *os.Root, name string) error {
		return dir.Symlink("x", name)
	})
	for _, skip := range []bool{false, true} {
		r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp"}, SkipRefused: skip})
		if (err == nil) != skip {
			t.Errorf("got %v", err)
		}
		b, err := json.Marshal(r)
		if err != nil || len(b) > maxRefused+4<<10 {
			t.Errorf("the report has %d bytes, %v", len(b), err)
		}
		if got := len(r.Refused) + r.RefusedOmitted; got != count || len(r.Refused) == 0 {
			t.Errorf("%d of %d are listed, and %d omitted", len(r.Refused), count, r.RefusedOmitted)
		}
	}
}

// Files whose names need a longer manifest are not written, because a report has all files.
func TestFetch_LongManifest(t *testing.T) {
	w := newFixture(t, func(c *Config) { c.Limits = dray.TreeLimits{MaxDepth: 64} })
	makeNames(t, w.box.base+"/ws", 1000, func(dir *os.Root, name string) error {
		return dir.WriteFile(name, nil, 0o644)
	})
	r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/ws"}, SkipRefused: true})
	if dray.CodeOf(err) != dray.CodeLimitExceeded || len(r.Files) > 0 {
		t.Errorf("got %d files, %v", len(r.Files), err)
	}
	w.wantRoot(nil)
	w.box.caps.Mounts = []dray.Mount{{Host: w.box.base + "/ws", Container: "/ws"}}
	r = w.FetchDeclared(t.Context(), w.box, Request{ID: "id", Paths: []string{"/ws"}})
	if b, err := json.Marshal(r); err != nil || len(b) > 2*maxManifest {
		t.Errorf("the report has %d bytes, %v", len(b), err)
	}
	if r.State != dray.SyncFailed || r.Error.Code != dray.CodeLimitExceeded {
		t.Errorf("got %s, %v", r.State, r.Error)
	}
}
