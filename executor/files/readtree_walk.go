package files

import (
	"io"
	"math"
	"slices"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// treeReader goes through the sources of a collection, depth first. Every step opens one element of
// a name, from the open folder before it and never through a link, so that no way leads out of the
// root: not through a link, wherever one is swapped in, nor through "..", which no element is. That
// costs one open for each name, as openat2 would, which a sandbox may forbid.
type treeReader struct {
	root    descriptor
	sources []string
	what    dray.ReadTreeOptions
	stopErr func() error

	stack  []folder
	count  int   // of the names come to
	total  int64 // bytes of the files given
	shared hardLinks
	buf    []byte // for names
}

// folder is one that is being gone through.
type folder struct {
	dir   descriptor
	name  string   // "" is the root
	names []string // of what lies in it and was not come to yet
}

// errSkip is a step that gave no entry.
var errSkip = dray.Errorf(dray.CodeInternal, "no entry yet")

// newCollecting goes through what was asked for beneath a folder, which it keeps open by itself.
func newCollecting(root descriptor, what dray.ReadTreeOptions, over func() error) (*treeReader,
	error,
) {
	sources, err := tree.Sources(what.Names)
	if err != nil {
		return nil, err
	}
	if err := over(); err != nil {
		return nil, err
	}
	dir, err := root.at(".", syscall.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, classify(err)
	}
	return &treeReader{root: dir, sources: sources, what: what, stopErr: over, buf: newNamesBuffer()},
		nil
}

// close lets go of every folder.
func (c *treeReader) close() {
	for _, f := range c.stack {
		f.dir.close()
	}
	c.root.close()
	c.stack, c.sources, c.root = nil, nil, nowhere
}

// next gives the next entry, io.EOF after the last.
func (c *treeReader) next() (item, error) {
	for {
		if err := c.stopErr(); err != nil {
			return noItem, err
		}
		if it, err := c.step(); err != errSkip { //nolint:errorlint // our own, never wrapped
			return it, err
		}
	}
}

// step goes one name further.
func (c *treeReader) step() (item, error) {
	if len(c.stack) > 0 {
		f := &c.stack[len(c.stack)-1]
		if len(f.names) == 0 {
			f.dir.close()
			c.stack = c.stack[:len(c.stack)-1]
			return noItem, errSkip
		}
		element := f.names[0]
		f.names = f.names[1:]
		return c.visit(f.dir, element, join(f.name, element))
	}
	if len(c.sources) > 0 {
		source := c.sources[0]
		c.sources = c.sources[1:]
		return c.source(source)
	}
	return c.shared.next(c)
}

func join(folder, element string) string {
	if folder == "" {
		return element
	}
	return folder + "/" + element
}

// source comes to a source.
func (c *treeReader) source(name string) (item, error) {
	if name == "." {
		dir, err := c.root.at(".", syscall.O_RDONLY|syscall.O_DIRECTORY)
		if err != nil {
			return noItem, classify(err)
		}
		return noItem, c.pushDir(dir, "", errSkip)
	}
	dir, element, err := c.descend(name)
	if err != nil {
		c.count++
		return c.openError(name, err)
	}
	defer dir.close()
	return c.visit(dir, element, name)
}

// descend opens the folder that a name lies in.
func (c *treeReader) descend(name string) (dir descriptor, last string, err error) {
	elements := strings.Split(name, "/")
	dir, err = c.root.at(".", oPath|syscall.O_DIRECTORY)
	for _, element := range elements[:len(elements)-1] {
		if err != nil {
			break
		}
		var next descriptor
		next, err = dir.at(element, oPath|syscall.O_DIRECTORY)
		dir.close()
		dir = next
	}
	return dir, elements[len(elements)-1], err
}

// visit looks at a name and gives its entry, unless it is one of several names of a file, which are
// told of last.
func (c *treeReader) visit(dir descriptor, element, name string) (item, error) {
	c.count++
	if limit := c.what.Limits.MaxFiles; limit > 0 && c.count > limit {
		return noItem, tooMany(limit)
	}
	if err := tree.CheckName(name); err != nil {
		return noItem, exceeded("%.200q has a longer path than can be taken", name)
	}
	if limit := c.what.Limits.MaxDepth; limit > 0 && len(c.stack)-1 > limit {
		return refused(name, exceeded("%.200q lies deeper than %d folders", name, limit))
	}
	var stat syscall.Stat_t
	there, err := dir.look(element, &stat)
	if err != nil {
		return c.openError(name, err)
	}
	defer there.close()
	switch kind := stat.Mode & syscall.S_IFMT; {
	case kind == syscall.S_IFDIR:
		return c.folder(there, name, &stat)
	case kind != syscall.S_IFREG:
		return refused(name, dray.Errorf(dray.CodePathInvalid, "%.200q is a %s", name, kindName(kind)))
	case stat.Nlink > 1:
		c.shared.add(name, &stat)
		return noItem, errSkip
	default:
		return c.file(there, name, &stat)
	}
}

// kindName says what is not taken.
func kindName(kind uint32) string {
	switch kind {
	case syscall.S_IFLNK:
		return "symbolic link"
	case syscall.S_IFIFO:
		return "FIFO"
	case syscall.S_IFSOCK:
		return "socket"
	default:
		return "device"
	}
}

// folder opens a folder to go through it next.
func (c *treeReader) folder(there descriptor, name string, stat *syscall.Stat_t) (item, error) {
	dir, err := there.reopen(syscall.O_RDONLY | syscall.O_DIRECTORY)
	if err != nil {
		return c.openError(name, err)
	}
	return item{
		entry: dray.TreeEntry{Name: name, Type: "directory", Mode: modeOf(stat)},
		file:  nowhere,
	}, c.pushDir(dir, name, nil)
}

// pushDir reads the names in a folder. It fails with `then` if all is well.
func (c *treeReader) pushDir(dir descriptor, name string, then error) error {
	names, err := c.names(dir)
	if err != nil {
		dir.close()
		return err
	}
	slices.Sort(names)
	c.stack = append(c.stack, folder{dir, name, names})
	return then
}

// names are those in a folder, as long as there are not more than may come.
func (c *treeReader) names(dir descriptor) ([]string, error) {
	most := math.MaxInt
	if limit := c.what.Limits.MaxFiles; limit > 0 {
		most = limit - c.count
	}
	names, err := dir.names(c.buf, most)
	switch {
	case err == errTooMany: //nolint:errorlint // our own, never wrapped
		return nil, tooMany(c.what.Limits.MaxFiles)
	case err != nil:
		return nil, dray.Errorf(dray.CodeTransferFailed, "reading a folder: %w", err).
			WithHint("look at the disk that it lies on; repeat the call")
	default:
		return names, nil
	}
}

// file opens a file.
func (c *treeReader) file(there descriptor, name string, stat *syscall.Stat_t) (item, error) {
	limits := c.what.Limits
	if limits.MaxFile > 0 && stat.Size > limits.MaxFile {
		return refused(name, exceeded("%.200q has %d bytes, more than %d", name, stat.Size,
			limits.MaxFile))
	}
	if c.total += stat.Size; limits.MaxTotal > 0 && c.total > limits.MaxTotal {
		return noItem, exceeded("the files have more than %d bytes in all", limits.MaxTotal)
	}
	file, err := there.reopen(syscall.O_RDONLY)
	if err != nil {
		return c.openError(name, err)
	}
	e := dray.TreeEntry{
		Name: name, Type: "file", Size: stat.Size, Mode: modeOf(stat),
		Version: version(stat),
	}
	if held := c.what.Partial[name]; held.Version == e.Version && held.Bytes > 0 &&
		held.Bytes <= e.Size {
		if _, err := syscall.Seek(int(file), held.Bytes, io.SeekStart); err == nil {
			e.Offset = held.Bytes
		}
	}
	return item{entry: e, file: file}, nil
}

// openError tells of a name that could not be opened.
func (c *treeReader) openError(name string, err error) (item, error) {
	code := dray.CodeTransferFailed
	switch err { //nolint:errorlint // as package syscall gives it
	case syscall.ENOENT, syscall.ESTALE:
		code = dray.CodeNotFound
	case syscall.EACCES, syscall.EPERM:
		code = dray.CodeDenied
	case syscall.ENOTDIR, syscall.ELOOP:
		return refused(name, dray.Errorf(dray.CodePathInvalid,
			"a link, or what is no folder, stands in %.200q", name))
	}
	failure := dray.Errorf(code, "opening %.200q: %w", name, err)
	if code == dray.CodeTransferFailed {
		return noItem,
			failure.WithHint("look at the disk that it lies on, and at the limit of open files; repeat the call")
	}
	return refused(name, failure)
}
