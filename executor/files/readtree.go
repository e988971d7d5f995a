package files

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// ReadTree gives files and folders beneath the root, those of a folder in the order of their names,
// files with several names last. An entry is what an open descriptor says that it is, whatever was
// swapped in meanwhile, and nothing but a regular file is opened to be read. A file with more names
// than were come to is refused: what it shares with a place outside is not the folder's own. One
// that changes while it is read ends the tree with transfer_failed. When the context is done, the
// tree ends with its cause.
func (l *Local) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error) {
	root, err := l.root.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the root: %w", classify(err))
	}
	defer func() { _ = root.Close() }()
	over := func() error { return contextError(ctx) }
	c, err := newCollecting(descriptor(root.Fd()), what, over)
	if err != nil {
		return nil, err
	}
	return &localTree{next: c.next, stopErr: over, close: c.close, now: noItem}, nil
}

// contextError is what ended a collection from outside, if anything did.
func contextError(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("collecting files: %w", context.Cause(ctx))
}

// item is an entry, and the descriptor of a file.
type item struct {
	entry dray.TreeEntry
	file  descriptor
}

var noItem = item{file: nowhere}

// refused is an entry that is not taken.
func refused(name string, why *dray.Error) (item, error) {
	if why.Hint == "" {
		why = why.WithHint("%s", tree.Hint(why.Code))
	}
	return item{entry: dray.TreeEntry{Name: name, Refused: why}, file: nowhere}, nil
}

func exceeded(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, format, args...).
		WithHint("%s", tree.Hint(dray.CodeLimitExceeded))
}

func tooMany(limit int) *dray.Error {
	return exceeded("there are more than %d files and folders", limit)
}

func modeOf(s *syscall.Stat_t) fs.FileMode { return fs.FileMode(s.Mode) & fs.ModePerm }

// version is a word that changes with a file's content: a change that leaves no trace in size and
// times takes root and a wrong clock.
func version(s *syscall.Stat_t) string {
	b := make([]byte, 0, 64)
	b = strconv.AppendUint(b, s.Ino, 36)
	for _, n := range [...]int64{s.Size, s.Mtim.Nano(), s.Ctim.Nano()} {
		b = strconv.AppendInt(append(b, '.'), n, 36)
	}
	return string(b)
}

// localTree is a dray.Tree of what is come to.
type localTree struct {
	next    func() (item, error)
	stopErr func() error // what ends the tree from outside
	close   func()

	now  item
	left int64 // of the current file
	err  error
}

// Next closes the current file and goes to the next entry.
func (c *localTree) Next() (dray.TreeEntry, error) {
	c.closeFile()
	if c.err == nil {
		it, err := c.next()
		if err != nil {
			return dray.TreeEntry{}, c.fail(err)
		}
		c.now, c.left = it, it.entry.Size-it.entry.Offset
	}
	return c.now.entry, c.err
}

// Read reads the current file, and says that it ended only if it is still what it was when it was
// opened.
func (c *localTree) Read(p []byte) (int, error) {
	switch {
	case c.err != nil && c.err != io.EOF: //nolint:errorlint // our own, never wrapped
		return 0, c.err
	case c.now.file == nowhere:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	n, err := c.read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // our own, never wrapped
		return n, err
	}
	c.closeFile()
	return 0, c.fail(err)
}

func (c *localTree) read(p []byte) (int, error) {
	if err := c.stopErr(); err != nil {
		return 0, err
	}
	if c.left == 0 {
		return 0, c.unchanged()
	}
	n, err := c.now.file.read(p[:min(int64(len(p)), c.left)])
	if err != nil {
		return 0, dray.Errorf(dray.CodeTransferFailed, "reading %.200q: %w", c.now.entry.Name, err).
			WithHint("look at the disk that it lies on; repeat the call")
	}
	if n == 0 {
		return 0, changed(c.now.entry.Name)
	}
	c.left -= int64(n)
	return n, nil
}

// unchanged gives io.EOF for a file that is as it was, and that ends where it says: one of the
// kernel's own, made as it is read, says that it is empty.
func (c *localTree) unchanged() error {
	var now syscall.Stat_t
	err := c.now.file.stat(&now)
	n, readErr := c.now.file.read(make([]byte, 1))
	if err != nil || readErr != nil || n != 0 || version(&now) != c.now.entry.Version {
		return changed(c.now.entry.Name)
	}
	return io.EOF
}

func changed(name string) error {
	return dray.Errorf(dray.CodeTransferFailed, "%.200q changed while it was read", name).
		WithHint("repeat it when nothing writes the file any more")
}

// closeFile closes the current file.
func (c *localTree) closeFile() {
	c.now.file.close()
	c.now = noItem
}

// fail keeps why the tree ended, and lets go of what was open.
func (c *localTree) fail(err error) error {
	if c.err == nil {
		c.err = err
		c.close()
	}
	return c.err
}

// Close gives the tree up.
func (c *localTree) Close() error {
	c.closeFile()
	_ = c.fail(errTreeClosed)
	return nil
}

var errTreeClosed = dray.Errorf(dray.CodeTransferFailed, "the files were given up: %w",
	fs.ErrClosed)

// hardLinks are the files with several names that were come to. Whether all of their names were, is
// known at the end.
type hardLinks struct {
	names []linkName
	seen  map[inode]uint64 // how many names of a file were come to
}

type linkName struct {
	name  string
	inode inode
}

// inode is a file whatever its names.
type inode struct{ dev, ino uint64 }

func inodeOf(s *syscall.Stat_t) inode { return inode{s.Dev, s.Ino} }

func (s *hardLinks) add(name string, stat *syscall.Stat_t) {
	if s.seen == nil {
		s.seen = map[inode]uint64{}
	}
	s.seen[inodeOf(stat)]++
	s.names = append(s.names, linkName{name, inodeOf(stat)})
}

// next gives the next of the names, io.EOF after the last.
func (s *hardLinks) next(c *treeReader) (item, error) {
	if len(s.names) == 0 {
		return noItem, io.EOF
	}
	n := s.names[0]
	s.names = s.names[1:]
	dir, element, err := c.descend(n.name)
	if err != nil {
		return c.openError(n.name, err)
	}
	defer dir.close()
	var stat syscall.Stat_t
	there, err := dir.look(element, &stat)
	if err != nil {
		return c.openError(n.name, err)
	}
	defer there.close()
	switch {
	case stat.Mode&syscall.S_IFMT != syscall.S_IFREG || inodeOf(&stat) != n.inode:
		return noItem, changed(n.name)
	case uint64(stat.Nlink) != s.seen[n.inode]: //nolint:unconvert // it is shorter on arm64
		return refused(n.name, dray.Errorf(dray.CodePathInvalid,
			"%.200q has %d names, of which %d are taken: a hard link to elsewhere",
			n.name, stat.Nlink, s.seen[n.inode]))
	default:
		return c.file(there, n.name, &stat)
	}
}
