package host

import (
	"context"
	"io"
	"io/fs"

	"github.com/dray-dev/dray"
)

// readFiles are the operations of dray.Files that change nothing. Others are not had by embedding it, so that one that is new has to be refused here
// before this compiles.
type readFiles interface {
	Stat(name string) (dray.FileInfo, error)
	Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error)
	List(name string, limit int) ([]dray.FileInfo, bool, error)
	ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error)
	Walk(ctx context.Context, name string, visit func(string, dray.FileInfo) error) error
	Close() error
}

// readOnly are the files of a folder outside every root: they may be looked at.
type readOnly struct {
	readFiles
	root string
}

func (r readOnly) denyWrite() error {
	return denied("nothing may be changed on the host in %s: it lies outside host.roots", r.root)
}

// Create is denied.
func (r readOnly) Create(string, fs.FileMode) (io.WriteCloser, error) { return nil, r.denyWrite() }

// Rename is denied.
func (r readOnly) Rename(string, string) error { return r.denyWrite() }

// Remove is denied.
func (r readOnly) Remove(string) error { return r.denyWrite() }

// WriteTree is denied, also when it would write nothing.
func (r readOnly) WriteTree(context.Context, dray.Tree, dray.WriteTreeOptions) ([]dray.WrittenFile, error) {
	return nil, r.denyWrite()
}
