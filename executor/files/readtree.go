package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
	"github.com/dray-dev/dray/internal/linux"
)

// ReadTree reads files and directories beneath the root, those of a directory in the order of their
// names, files with several hard links last. An entry describes an open fd, whatever was swapped in
// meanwhile, and only regular files are opened for reading. A file with more hard links than the
// tree has is refused: one of them may be outside of the directory. A file that changes while it is
// read ends the tree with transfer_failed. The end of the context ends the tree with its cause.
func (l *Local) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error) {
	sources, err := tree.Sources(what.Names)
	if err != nil {
		return nil, err
	}
	if err := contextError(ctx); err != nil {
		return nil, err
	}
	root, err := l.openFD(".")
	if err != nil {
		return nil, fmt.Errorf("open the root: %w", classify(err))
	}
	return &localTree{current: noItem, treeReader: treeReader{
		root: root, sources: sources, what: what, buf: newNamesBuffer(),
		stopErr: func() error { return contextError(ctx) },
	}}, nil
}

// contextError returns an error with the cause if the context has ended.
func contextError(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("read the tree: %w", context.Cause(ctx))
}

// localTree is a tree of local files.
type localTree struct {
	treeReader
	current item
	left    int64 // bytes of the current file
	err     error // that ended the tree
}

// Next closes the current file and returns the next entry.
func (t *localTree) Next() (dray.TreeEntry, error) {
	t.closeFile()
	if t.err == nil {
		it, err := t.next()
		if err != nil {
			return dray.TreeEntry{}, t.fail(err)
		}
		t.current, t.left = it, it.entry.Size-it.entry.Offset
	}
	return t.current.entry, t.err
}

// Read reads the current file. It returns io.EOF only if the file has not changed since it was
// opened.
func (t *localTree) Read(p []byte) (int, error) {
	switch {
	case t.err != nil && t.err != io.EOF: //nolint:errorlint // never wrapped
		return 0, t.err
	case t.current.file == noFD:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	n, err := t.read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // never wrapped
		return n, err
	}
	t.closeFile()
	return 0, t.fail(err)
}

func (t *localTree) read(p []byte) (int, error) {
	if err := t.stopErr(); err != nil {
		return 0, err
	}
	name := t.current.entry.Name
	if t.left == 0 {
		return 0, t.verifyUnchanged()
	}
	n, err := t.current.file.read(p[:min(int64(len(p)), t.left)])
	if err != nil {
		return 0, readError(name, err)
	}
	if n == 0 {
		return 0, changedError(name)
	}
	t.left -= int64(n)
	return n, nil
}

func readError(name string, err error) *dray.Error {
	return dray.Errorf(dray.CodeTransferFailed, "read %.200q: %w", name, err).
		WithHint("check the disk of this file, then repeat the call")
}

// verifyUnchanged returns io.EOF if the file is unchanged and has ended. Files of /proc have the
// size 0 and do not end there.
func (t *localTree) verifyUnchanged() error {
	var now unix.Stat_t
	statErr := linux.Stat(int(t.current.file), &now)
	n, err := t.current.file.read(make([]byte, 1))
	if statErr != nil || err != nil || n != 0 || version(&now) != t.current.entry.Version {
		return changedError(t.current.entry.Name)
	}
	return io.EOF
}

func changedError(name string) error {
	return dray.Errorf(dray.CodeTransferFailed, "%.200q changed while it was read", name).
		WithHint("repeat the call when no program writes this file")
}

func (t *localTree) closeFile() {
	t.current.file.close()
	t.current = noItem
}

// fail records why the tree ended, and closes its directories.
func (t *localTree) fail(err error) error {
	if t.err == nil {
		t.err = err
		t.closeDirs()
	}
	return t.err
}

// Close closes the tree. It can be closed before its end.
func (t *localTree) Close() error {
	t.closeFile()
	_ = t.fail(errTreeClosed)
	return nil
}

var errTreeClosed = dray.Errorf(dray.CodeTransferFailed, "the tree was closed before its end: %w",
	fs.ErrClosed)

// item is an entry with the fd of a file.
type item struct {
	entry dray.TreeEntry
	file  fd
}

var noItem = item{file: noFD}

func refused(name string, why *dray.Error) (item, error) {
	if why.Hint == "" {
		why = why.WithHint("%s", tree.Hint(why.Code))
	}
	return item{entry: dray.TreeEntry{Name: name, Refused: why}, file: noFD}, nil
}

func tooMany(limit int) *dray.Error {
	return tree.LimitError("there are more than %d files and directories", limit)
}

func permOf(st *unix.Stat_t) fs.FileMode { return fs.FileMode(st.Mode) & fs.ModePerm }

// version identifies the content of a file. Only root with a wrong clock can change the content and
// neither size nor times.
func version(st *unix.Stat_t) string {
	b := strconv.AppendUint(make([]byte, 0, 64), st.Ino, 36)
	for _, n := range [...]int64{st.Size, st.Mtim.Nano(), st.Ctim.Nano()} {
		b = strconv.AppendInt(append(b, '.'), n, 36)
	}
	return string(b)
}

// treeReader reads sources depth first. Each step opens one component, relative to the open
// directory above it and never through a symlink, so that no name leads out of the root. openat2
// would do the same, but a sandbox may forbid it.
type treeReader struct {
	root    fd
	sources []string
	what    dray.ReadTreeOptions
	stopErr func() error

	stack  []openDir
	count  int   // of the names
	total  int64 // bytes of the files
	linked hardLinks
	buf    []byte // for names
}

// openDir is a directory that is being read.
type openDir struct {
	fd    fd
	name  string   // empty for the root
	names []string // that were not visited yet
}

// errSkip is returned by a step without an entry.
var errSkip = errors.New("no entry")

func (r *treeReader) closeDirs() {
	for _, dir := range r.stack {
		dir.fd.close()
	}
	r.root.close()
	r.stack, r.sources, r.root = nil, nil, noFD
}

// next returns the next entry, io.EOF after the last.
func (r *treeReader) next() (item, error) {
	for {
		if err := r.stopErr(); err != nil {
			return noItem, err
		}
		if it, err := r.step(); err != errSkip { //nolint:errorlint // never wrapped
			return it, err
		}
	}
}

// step visits one name.
func (r *treeReader) step() (item, error) {
	if len(r.stack) > 0 {
		dir := &r.stack[len(r.stack)-1]
		if len(dir.names) == 0 {
			dir.fd.close()
			r.stack = r.stack[:len(r.stack)-1]
			return noItem, errSkip
		}
		component := dir.names[0]
		dir.names = dir.names[1:]
		name := component
		if dir.name != "" {
			name = dir.name + "/" + component
		}
		return r.visit(dir.fd, component, name)
	}
	if len(r.sources) > 0 {
		source := r.sources[0]
		r.sources = r.sources[1:]
		return r.source(source)
	}
	return r.linked.next(r)
}

func (r *treeReader) source(name string) (item, error) {
	if name == "." {
		dir, err := r.root.openDir()
		if err != nil {
			return noItem, classify(err)
		}
		if err := r.pushDir(dir, ""); err != nil {
			return noItem, err
		}
		return noItem, errSkip
	}
	dir, component, err := r.descend(name)
	if err != nil {
		r.count++
		return r.openError(name, err)
	}
	defer dir.close()
	return r.visit(dir, component, name)
}

// descend opens the directory of a name.
func (r *treeReader) descend(name string) (dir fd, last string, err error) {
	components := strings.Split(name, "/")
	dir, err = r.root.open(".", unix.O_PATH|unix.O_DIRECTORY)
	for _, component := range components[:len(components)-1] {
		if err != nil {
			break
		}
		var next fd
		next, err = dir.open(component, unix.O_PATH|unix.O_DIRECTORY)
		dir.close()
		dir = next
	}
	return dir, components[len(components)-1], err
}

// visit returns the entry of a name. A file with several hard links is returned last.
func (r *treeReader) visit(dir fd, component, name string) (item, error) {
	r.count++
	if limit := r.what.Limits.MaxFiles; limit > 0 && r.count > limit {
		return noItem, tooMany(limit)
	}
	if err := tree.CheckName(name); err != nil {
		return noItem, tree.LimitError("the path %.200q is too long", name)
	}
	if limit := r.what.Limits.MaxDepth; limit > 0 && len(r.stack)-1 > limit {
		return refused(name, tree.LimitError("%.200q is deeper than %d directories", name, limit))
	}
	var st unix.Stat_t
	f, err := dir.inspect(component, &st)
	if err != nil {
		return r.openError(name, err)
	}
	defer f.close()
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		return r.dir(f, name, &st)
	case kind != unix.S_IFREG:
		return refused(name, dray.Errorf(dray.CodePathInvalid, "%.200q is a %s", name, kindName(kind)))
	case st.Nlink > 1:
		r.linked.add(name, &st)
		return noItem, errSkip
	default:
		return r.file(f, name, &st)
	}
}

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "FIFO"
	case unix.S_IFSOCK:
		return "socket"
	default:
		return "device"
	}
}

func (r *treeReader) dir(f fd, name string, st *unix.Stat_t) (item, error) {
	dir, err := f.reopen(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		return r.openError(name, err)
	}
	e := dray.TreeEntry{Name: name, Type: "directory", Mode: permOf(st)}
	return item{entry: e, file: noFD}, r.pushDir(dir, name)
}

// pushDir makes a directory the next one to read, and takes over its fd.
func (r *treeReader) pushDir(dir fd, name string) error {
	allowed, limit := math.MaxInt, r.what.Limits.MaxFiles
	if limit > 0 {
		allowed = limit - r.count
	}
	names, err := dir.names(r.buf, allowed)
	if err == nil {
		r.stack = append(r.stack, openDir{dir, name, names})
		return nil
	}
	dir.close()
	if err == errTooMany { //nolint:errorlint // never wrapped
		return tooMany(limit)
	}
	return readError(name, err)
}

func (r *treeReader) file(f fd, name string, st *unix.Stat_t) (item, error) {
	limits := r.what.Limits
	if limits.MaxFile > 0 && st.Size > limits.MaxFile {
		return refused(name, tree.LimitError("%.200q has %d bytes (maximum %d)", name, st.Size,
			limits.MaxFile))
	}
	if r.total += st.Size; limits.MaxTotal > 0 && r.total > limits.MaxTotal {
		return noItem, tree.LimitError("the files have more than %d bytes in total", limits.MaxTotal)
	}
	file, err := f.reopen(unix.O_RDONLY)
	if err != nil {
		return r.openError(name, err)
	}
	e := dray.TreeEntry{
		Name: name, Type: "file", Size: st.Size, Mode: permOf(st), Version: version(st),
	}
	if p := r.what.Partial[name]; p.Version == e.Version && p.Bytes > 0 && p.Bytes <= e.Size {
		if _, err := unix.Seek(int(file), p.Bytes, io.SeekStart); err == nil {
			e.Offset = p.Bytes
		}
	}
	return item{entry: e, file: file}, nil
}

// openError returns a refused entry for a name that could not be opened, or ends the tree.
func (r *treeReader) openError(name string, err error) (item, error) {
	code := dray.CodeTransferFailed
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE):
		code = dray.CodeNotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		code = dray.CodeDenied
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return refused(name, dray.Errorf(dray.CodePathInvalid,
			"%.200q leads through a symlink, or through a file that is no directory", name))
	}
	failure := dray.Errorf(code, "open %.200q: %w", name, err)
	if code == dray.CodeTransferFailed {
		return noItem,
			failure.WithHint("check the disk of this file and the limit of open files, then repeat the call")
	}
	return refused(name, failure)
}

// hardLinks has the files with several hard links. At the end of the tree it is known whether all
// of them are in it.
type hardLinks struct {
	names []linkName
	seen  map[inode]uint64 // number of names in the tree
}

type linkName struct {
	name  string
	inode inode
}

type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

func (h *hardLinks) add(name string, st *unix.Stat_t) {
	if h.seen == nil {
		h.seen = map[inode]uint64{}
	}
	h.seen[inodeOf(st)]++
	h.names = append(h.names, linkName{name, inodeOf(st)})
}

// next returns the entry of the next name, io.EOF after the last.
func (h *hardLinks) next(r *treeReader) (item, error) {
	if len(h.names) == 0 {
		return noItem, io.EOF
	}
	n := h.names[0]
	h.names = h.names[1:]
	dir, component, err := r.descend(n.name)
	if err != nil {
		return r.openError(n.name, err)
	}
	defer dir.close()
	var st unix.Stat_t
	f, err := dir.inspect(component, &st)
	if err != nil {
		return r.openError(n.name, err)
	}
	defer f.close()
	switch seen := h.seen[n.inode]; {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || inodeOf(&st) != n.inode:
		return noItem, changedError(n.name)
	case uint64(st.Nlink) != seen: //nolint:unconvert // it is uint32 on arm64
		return refused(n.name, dray.Errorf(dray.CodePathInvalid,
			"%.200q has %d hard links, of which only %d are in the tree", n.name, st.Nlink, seen))
	default:
		return r.file(f, n.name, &st)
	}
}
