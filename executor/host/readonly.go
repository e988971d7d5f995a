package host

import (
	"io"
	"io/fs"

	"github.com/dray-dev/dray/executor/files"
)

// readOnly are the files of a folder outside every root: they may be looked at.
type readOnly struct {
	*files.Local
	root string
}

func (r readOnly) refuse() error {
	return denied("nothing may be changed on the host in %s: it lies outside host.roots", r.root)
}

// Create is denied.
func (r readOnly) Create(string, fs.FileMode) (io.WriteCloser, error) { return nil, r.refuse() }

// Rename is denied.
func (r readOnly) Rename(string, string) error { return r.refuse() }

// Remove is denied.
func (r readOnly) Remove(string) error { return r.refuse() }
