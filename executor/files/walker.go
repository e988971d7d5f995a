package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// walker goes through a folder of this machine. Each folder is opened in the one that it lies in and never through a link, so that whoever
// moves things about meanwhile leads it nowhere else. What it holds open is as deep as where it is.
type walker struct {
	first        *step
	levels       []*level // levels[d] has what lies at depth d+1
	pendingNames int      // names of all levels that are still to come
	buf          []byte   // for names
}

type level struct {
	dir   descriptor
	names []string
	dev   uint64
}

// walker begins at a name. A link to it is followed, as List and Open do; what is beneath it is not.
func (l *Local) walker(name string) (*walker, error) {
	top, err := l.root.OpenFile(clean(name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if errors.Is(err, syscall.ENOTDIR) {
		info, err := l.Stat(name)
		return &walker{first: &step{info: info}}, err
	}
	if err != nil {
		return nil, classify(err)
	}
	defer func() { _ = top.Close() }()
	dir, err := descriptor(top.Fd()).at(".", syscall.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, classify(err)
	}
	w := &walker{buf: newNamesBuffer()}
	info, err := w.enter(dir, path.Base(clean(name)), 0)
	if err != nil {
		return nil, classify(err)
	}
	w.first = &step{info: info}
	return w, nil
}

// Close ends the walk.
func (w *walker) Close() error {
	w.skip(0)
	return nil
}

func (w *walker) skip(depth int) {
	for len(w.levels) > depth {
		l := w.levels[len(w.levels)-1]
		w.pendingNames -= len(l.names)
		l.dir.close()
		w.levels = w.levels[:len(w.levels)-1]
	}
}

func (w *walker) next() (step, error) {
	if s := w.first; s != nil {
		w.first = nil
		return *s, nil
	}
	for len(w.levels) > 0 {
		depth := len(w.levels)
		l := w.levels[depth-1]
		if len(l.names) == 0 {
			w.skip(depth - 1)
			continue
		}
		name := l.names[0]
		l.names = l.names[1:]
		w.pendingNames--
		info, err := w.look(l, name)
		if errors.Is(err, fs.ErrNotExist) { // it went meanwhile
			continue
		}
		if err != nil {
			return step{}, fmt.Errorf("looking at %s: %w", name, classify(err))
		}
		return step{depth, info}, nil
	}
	return step{}, io.EOF
}

// look says what an entry is and enters a folder.
func (w *walker) look(l *level, name string) (dray.FileInfo, error) {
	var st syscall.Stat_t
	there, err := l.dir.look(name, &st)
	if err != nil {
		return dray.FileInfo{}, err
	}
	defer there.close()
	info := fileInfo(name, &st)
	if info.Type != "directory" {
		return info, nil
	}
	if len(w.levels) >= maxDepth {
		info.Refused = exceeded("it lies more than %d folders deep", maxDepth)
		return info, nil
	}
	dir, err := there.at(".", syscall.O_RDONLY|syscall.O_DIRECTORY)
	if errors.Is(err, fs.ErrPermission) {
		info.Refused = refusal(err)
		return info, nil
	}
	if err != nil {
		return info, err
	}
	return w.enter(dir, name, l.dev)
}

// enter makes a folder the deepest level, unless it may not be read; it takes the descriptor over. Its names are read now, so that what is told
// of it tells whether they could be.
func (w *walker) enter(dir descriptor, name string, above uint64) (dray.FileInfo, error) {
	var st syscall.Stat_t
	if err := dir.stat(&st); err != nil {
		dir.close()
		return dray.FileInfo{}, err
	}
	info := fileInfo(name, &st)
	err := refusePseudoFS(dir, above, st.Dev)
	var names []string
	if err == nil {
		names, err = dir.names(w.buf, maxPendingNames-w.pendingNames)
	}
	if err == errTooMany { //nolint:errorlint // our own, never wrapped
		err = exceeded("it has more than %d entries", maxPendingNames-w.pendingNames)
	}
	if err != nil {
		dir.close()
		info.Refused = refusal(err)
		return info, nil
	}
	slices.Sort(names)
	w.pendingNames += len(names)
	w.levels = append(w.levels, &level{dir, names, st.Dev})
	return info, nil
}

// The file systems in which the kernel shows itself (statfs(2)). What is read there may wait for ever, or do something.
const (
	procMagic = 0x9fa0
	sysMagic  = 0x62656572
)

// refusePseudoFS refuses to enter the kernel's own file systems from another one. Who begins a walk in there gets it.
func refusePseudoFS(dir descriptor, above, dev uint64) error {
	if above == 0 || above == dev {
		return nil
	}
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(int(dir), &st); err != nil {
		return err
	}
	if st.Type == procMagic || st.Type == sysMagic {
		return dray.Errorf(dray.CodePathInvalid, "it is a file system of the kernel's own")
	}
	return nil
}

// fileInfo describes a file, but for the target of a link.
func fileInfo(name string, st *syscall.Stat_t) dray.FileInfo {
	return dray.FileInfo{Name: name, Type: kindOf(st.Mode), Size: st.Size, Mode: modeOf(st), Modified: time.Unix(st.Mtim.Unix()).UTC()}
}

func kindOf(mode uint32) string {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return "file"
	case syscall.S_IFDIR:
		return "directory"
	case syscall.S_IFLNK:
		return "symlink"
	default:
		return "other"
	}
}
