package assets

import (
	"context"
	"path/filepath"
	"sync"
	"time"
)

// Folder is what one verification has found: files and folders whose content was pinned, and that
// no other user may change.
type Folder struct {
	// seen are all files and folders that were verified, by absolute path.
	seen map[string]identity
	// parents are the folders above them.
	parents []string
	// settled says that a later change of any of them is visible in its identity.
	settled bool
}

// VerifyFolder verifies that a folder has these files and no others. Names may not have a slash. A
// failed verification has a [*Problem] in its chain.
func VerifyFolder(ctx context.Context, dir string, files []File) (*Folder, error) {
	v := newVerification(dir)
	for _, f := range files {
		v.files = append(v.files, expected{File: f, path: filepath.Join(dir, f.Name), source: "dray"})
	}
	if err := v.folder(dir); err != nil {
		return nil, err
	}
	return v.finish(ctx)
}

// Unchanged reports whether all files and folders are those that were verified, as far as their
// identities show it: it is false for two seconds after the last change. A new file changes the
// time of its folder. A nil Folder has changed.
func (f *Folder) Unchanged() bool {
	if f == nil || !f.settled {
		return false
	}
	for name, id := range f.seen {
		if now, err := identify(name); err != nil || now != id {
			return false
		}
	}
	return checkParents(f.parents) == nil
}

// verification collects what one verification has seen.
type verification struct {
	dir     string
	started time.Time
	folders []string
	files   []expected
	unused  string // a file that may be there and is not verified

	mu   sync.Mutex
	seen map[string]identity
}

func newVerification(dir string) *verification {
	return &verification{dir: dir, started: time.Now(), seen: map[string]identity{}}
}

// finish verifies what is expected in the folders that were checked.
func (v *verification) finish(ctx context.Context) (*Folder, error) {
	if err := v.noOthers(); err != nil {
		return nil, err
	}
	if err := v.hashAll(ctx); err != nil {
		return nil, err
	}
	parents := append(parentsOf(v.dir), parentsOf(v.files[0].path)...)
	if err := checkParents(parents); err != nil {
		return nil, err
	}
	return &Folder{v.seen, parents, v.settled()}, nil
}
