package stage

import (
	"bytes"
	"io"
	"io/fs"

	"github.com/dray-dev/dray"
)

// made is an entry of a tree in a test.
type made struct {
	name    string
	content string
	mode    fs.FileMode
	dir     bool
	// before is called when the entry is read.
	before func()
	// entry modifies the entry; nil for none.
	entry func(*dray.TreeEntry)
	// after is an error that follows the content; nil for none.
	after error
}

// madeTree is a dray.Tree in memory.
type madeTree struct {
	list []made
	at   int
	rest io.Reader
}

func treeOf(list ...made) *madeTree { return &madeTree{list: list} }

func (t *madeTree) Next() (dray.TreeEntry, error) {
	if t.at == len(t.list) {
		return dray.TreeEntry{}, io.EOF
	}
	m := t.list[t.at]
	t.at++
	if m.before != nil {
		m.before()
	}
	e := dray.TreeEntry{Name: m.name, Type: "file", Size: int64(len(m.content)), Mode: m.mode}
	if m.dir {
		e.Type, e.Size = "directory", 0
	}
	if m.entry != nil {
		m.entry(&e)
	}
	t.rest = bytes.NewReader([]byte(m.content))
	if m.after != nil {
		t.rest = io.MultiReader(t.rest, failing{m.after})
	}
	return e, nil
}

func (t *madeTree) Read(p []byte) (int, error) { return t.rest.Read(p) }
func (t *madeTree) Close() error               { return nil }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func mkdir(name string) made         { return made{name: name, dir: true, mode: 0o755} }
func file(name, content string) made { return made{name: name, content: content, mode: 0o644} }
