package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// Bounds of a walk.
const (
	// maxDepth is how many folders below its beginning a walk goes: each of them is a descriptor while
	// it is there.
	maxDepth = 128
	// maxPendingNames is how many names of folders that it is in a walk may hold, to give them in
	// order.
	maxPendingNames = 1 << 20
)

// step is one entry of a walk. Its depth is zero for where the walk begins, one for what lies
// there, and so on.
type step struct {
	depth int
	info  dray.FileInfo
}

// enterable says that what a folder holds may come next.
func (s step) enterable() bool { return s.info.Type == "directory" && s.info.Refused == nil }

// stepSource are where a walk comes from: the kernel or a helper.
type stepSource interface {
	// next gives the next step, io.EOF behind the last one.
	next() (step, error)
	// skip passes over what is deeper than depth, up to the next step that is not.
	skip(depth int)
}

// runWalk takes a visitor along.
func runWalk(ctx context.Context, name string, from stepSource,
	visit func(string, dray.FileInfo) error,
) error {
	names := make([]string, 0, 16) // of the folders that lead to the step, the beginning first
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s, err := from.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		full := name
		if s.depth > 0 {
			full = path.Join(names[s.depth-1], s.info.Name)
		}
		names = append(names[:s.depth], full)
		if err := handleVisit(visit(full, s.info), s, from); err != nil {
			return ignoring(err, fs.SkipAll)
		}
	}
}

// handleVisit does what a visitor answered, as fs.WalkDir does.
func handleVisit(answer error, s step, from stepSource) error {
	switch {
	case !errors.Is(answer, fs.SkipDir): // nil too
		return answer
	case s.info.Type == "directory":
		from.skip(s.depth)
	case s.depth == 0:
		return fs.SkipAll
	default:
		from.skip(s.depth - 1)
	}
	return nil
}

func ignoring(err, one error) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}

// Walk visits what lies beneath a name, as dray.Files has it.
func (l *Local) Walk(ctx context.Context, name string,
	visit func(name string, info dray.FileInfo) error,
) error {
	w, err := l.walker(name)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	return runWalk(ctx, clean(name), w, visit)
}

// refusal is why what a folder holds does not come.
func refusal(err error) *dray.Error {
	if errors.Is(err, fs.ErrPermission) {
		return dray.Errorf(dray.CodeDenied, "the user that tools run as may not read it")
	}
	return dray.AsError(classify(err))
}

// orderChecker holds the steps that a helper tells against the order of a walk, so that nobody else
// has to. It remembers the last name of each depth.
type orderChecker struct{ last []step }

func (t *orderChecker) check(s step) error {
	deepest := 0
	if n := len(t.last); n > 0 {
		if deepest = n - 1; t.last[n-1].enterable() {
			deepest = n
		}
		if s.depth == 0 {
			return fmt.Errorf("it begins again")
		}
	}
	switch {
	case s.depth < 0 || s.depth > min(deepest, maxDepth):
		return fmt.Errorf("its depth is %d", s.depth)
	case s.depth > 0 && !validName(s.info.Name):
		return fmt.Errorf("its name is %.100q", s.info.Name)
	case !slices.Contains(types, s.info.Type):
		return fmt.Errorf("its type is %.100q", s.info.Type)
	case s.depth < len(t.last) && s.info.Name <= t.last[s.depth].info.Name:
		return fmt.Errorf("its name %.100q comes behind %.100q", s.info.Name, t.last[s.depth].info.Name)
	}
	t.last = append(t.last[:s.depth], s)
	return nil
}

var types = []string{"file", "directory", "symlink", "other"}

func validName(name string) bool {
	if name == "" || name == "." || name == ".." {
		return false
	}
	return !strings.ContainsAny(name, "/\x00")
}

// walker goes through a folder of this machine. Each folder is opened in the one that it lies in
// and never through a link, so that whoever moves things about meanwhile leads it nowhere else.
// What it holds open is as deep as where it is.
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

// walker begins at a name. A link to it is followed, as List and Open do; what is beneath it is
// not.
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

// enter makes a folder the deepest level, unless it may not be read; it takes the descriptor over.
// Its names are read now, so that what is told of it tells whether they could be.
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

// The file systems in which the kernel shows itself (statfs(2)). What is read there may wait for
// ever, or do something.
const (
	procMagic = 0x9fa0
	sysMagic  = 0x62656572
)

// refusePseudoFS refuses to enter the kernel's own file systems from another one. Who begins a walk
// in there gets it.
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
	return dray.FileInfo{
		Name: name, Type: kindOf(st.Mode), Size: st.Size, Mode: modeOf(st),
		Modified: time.Unix(st.Mtim.Unix()).UTC(),
	}
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
