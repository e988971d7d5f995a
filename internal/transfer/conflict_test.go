package transfer

import (
	"context"
	"os"
	"testing"

	"github.com/dray-dev/dray"
)

// racingFiles calls a function at the end of each tree.
type racingFiles struct {
	dray.Files
	ends func()
}

func (m racingFiles) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error) {
	tree, err := m.Files.ReadTree(ctx, what)
	return racingTree{tree, m.ends}, err
}

type racingTree struct {
	dray.Tree
	ends func()
}

func (t racingTree) Next() (dray.TreeEntry, error) {
	e, err := t.Tree.Next()
	if isEOF(err) {
		t.ends()
	}
	return e, err
}

// After a conflict with another sync of the same files a sync is repeated, and all files have the
// content of one sync (SY-06).
func TestFetch_Conflict(t *testing.T) {
	for name, tc := range map[string]struct {
		meddles, attempts int
		code              dray.Code
	}{
		"once": {1, 2, ""}, "seven times": {7, 8, ""}, "always": {100, 8, dray.CodeTransferFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, nil)
			w.put("/tmp/out/a", "alpha")
			w.put("/tmp/out/b", "beta")
			attempts := 0
			w.box.open = func(f dray.Files) dray.Files {
				attempts++
				// equal when the tree is read, and different when it is committed
				write(t, w.root+"/out/a", "alpha")
				if err := os.Chmod(w.root+"/out/a", 0o600); err != nil {
					t.Fatal(err)
				}
				return racingFiles{f, func() {
					if attempts <= tc.meddles {
						write(t, w.root+"/out/a", "another's")
					}
				}}
			}
			r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp/out"}})
			if dray.CodeOf(err) != tc.code || attempts != tc.attempts {
				t.Errorf("%d attempts, got %+v, %v", attempts, r, err)
			}
			if tc.code != "" {
				w.wantRoot(map[string]string{"out/a": "another's"})
				return
			}
			w.wantRoot(map[string]string{"out/a": "alpha", "out/b": "beta"})
			if len(r.Files) != 2 || r.Files[1].Path != w.root+"/out/b" {
				t.Errorf("got %+v", r.Files)
			}
		})
	}
}

// Declared outputs are copied after a conflict as well (SY-11).
func TestDeclared_Conflict(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/tmp/a", "alpha")
	home := w.root + "/the-id/tmp/a"
	for _, folder := range []string{"/the-id", "/the-id/tmp"} {
		if err := os.Mkdir(w.root+folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	attempts := 0
	w.box.open = func(f dray.Files) dray.Files {
		attempts++
		write(t, home, "alpha")
		if err := os.Chmod(home, 0o600); err != nil {
			t.Fatal(err)
		}
		return racingFiles{f, func() {
			if attempts == 1 {
				write(t, home, "another's")
			}
		}}
	}
	r := w.FetchDeclared(t.Context(), w.box, Request{ID: "the-id", Paths: []string{"/tmp/a"}})
	if r.State != dray.SyncComplete || len(r.Files) != 1 || attempts != 2 {
		t.Errorf("%d attempts, got %+v", attempts, r)
	}
	w.wantRoot(map[string]string{"the-id/tmp/a": "alpha"})
}
