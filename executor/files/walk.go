package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/pack"
)

const (
	// maxDepth is the maximum depth of a walk below its start. Each level has an open fd.
	maxDepth = 128
	// maxPendingNames is the maximum number of names that a walk sorts and keeps, of all levels.
	maxPendingNames = 1 << 20
	// maxBatch is the maximum number of steps in one message.
	maxBatch = 1000
)

// step is one entry of a walk. The start has the depth 0, its entries 1, and so on.
type step struct {
	depth int
	info  dray.FileInfo
}

// enterable reports whether entries of this one may follow.
func (s step) enterable() bool { return s.info.Type == "directory" && s.info.Refused == nil }

// stepSource is a local or a remote walk.
type stepSource interface {
	// next returns the next step, io.EOF after the last one.
	next() (step, error)
	// skip omits the following steps that are deeper than depth.
	skip(depth int)
}

// runWalk calls visit for each step.
func runWalk(ctx context.Context, name string, from stepSource,
	visit func(string, dray.FileInfo) error,
) error {
	names := make([]string, 0, 16) // of the directories above the step, the start first
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
		switch err := handleVisit(visit(full, s.info), s, from); {
		case errors.Is(err, fs.SkipAll):
			return nil
		case err != nil:
			return err
		}
	}
}

// handleVisit handles the result of visit as fs.WalkDir does.
func handleVisit(result error, s step, from stepSource) error {
	switch {
	case !errors.Is(result, fs.SkipDir): // nil too
		return result
	case s.info.Type == "directory":
		from.skip(s.depth)
	case s.depth == 0:
		return fs.SkipAll
	default:
		from.skip(s.depth - 1)
	}
	return nil
}

// Walk implements dray.Files.
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

// refusal returns why the content of a directory is not visited.
func refusal(err error) *dray.Error {
	if errors.Is(err, fs.ErrPermission) {
		return dray.Errorf(dray.CodeDenied, "the user that tools run as may not read it")
	}
	return dray.AsError(classify(err))
}

// walker walks through local directories. It opens each directory relative to its parent and never
// through a symlink, so that concurrent renames lead it nowhere else.
type walker struct {
	first        *step
	levels       []*level // levels[d] has the entries with the depth d+1
	pendingNames int      // of all levels
	buf          []byte   // for names
}

type level struct {
	dir   fd
	names []string // that were not visited yet
	dev   uint64
}

// walker starts at a name. It follows a symlink with that name, as List and Open do, but none
// beneath it.
func (l *Local) walker(name string) (*walker, error) {
	dir, err := l.openFD(name)
	if errors.Is(err, unix.ENOTDIR) {
		info, err := l.Stat(name)
		return &walker{first: &step{info: info}}, err
	}
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
		info, err := w.visit(l, name)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return step{}, fmt.Errorf("inspect %s: %w", name, classify(err))
		}
		return step{depth, info}, nil
	}
	return step{}, io.EOF
}

// visit describes an entry, and enters it if it is a directory.
func (w *walker) visit(l *level, name string) (dray.FileInfo, error) {
	var st unix.Stat_t
	f, err := l.dir.inspect(name, &st)
	if err != nil {
		return dray.FileInfo{}, err
	}
	defer f.close()
	info := fileInfo(name, &st)
	if info.Type != "directory" {
		return info, nil
	}
	if len(w.levels) >= maxDepth {
		info.Refused = tree.LimitError("it is deeper than %d directories", maxDepth)
		return info, nil
	}
	dir, err := f.openDir()
	if errors.Is(err, fs.ErrPermission) {
		info.Refused = refusal(err)
		return info, nil
	}
	if err != nil {
		return info, err
	}
	return w.enter(dir, name, l.dev)
}

// enter makes a directory the deepest level, unless it cannot be read, and takes over its fd. It
// reads the names at once, because the entry of the directory says whether that failed.
func (w *walker) enter(dir fd, name string, parentDev uint64) (dray.FileInfo, error) {
	var st unix.Stat_t
	if err := linux.Stat(int(dir), &st); err != nil {
		dir.close()
		return dray.FileInfo{}, err
	}
	info := fileInfo(name, &st)
	err := refusePseudoFS(dir, parentDev, st.Dev)
	var names []string
	if err == nil {
		names, err = dir.names(w.buf, maxPendingNames-w.pendingNames)
	}
	if err == errTooMany { //nolint:errorlint // never wrapped
		err = tree.LimitError("it has more than %d entries", maxPendingNames-w.pendingNames)
	}
	if err != nil {
		dir.close()
		info.Refused = refusal(err)
		return info, nil
	}
	w.pendingNames += len(names)
	w.levels = append(w.levels, &level{dir, names, st.Dev})
	return info, nil
}

// refusePseudoFS refuses to enter /proc and /sys from another file system: reading there may block,
// or have effects. A walk can start there.
func refusePseudoFS(dir fd, parentDev, dev uint64) error {
	if parentDev == 0 || parentDev == dev {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir), &st); err != nil {
		return err
	}
	if st.Type == unix.PROC_SUPER_MAGIC || st.Type == unix.SYSFS_MAGIC {
		return dray.Errorf(dray.CodePathInvalid, "it is a pseudo file system of the kernel")
	}
	return nil
}

// fileInfo describes a file without the target of a symlink.
func fileInfo(name string, st *unix.Stat_t) dray.FileInfo {
	info := dray.FileInfo{
		Name: name, Type: "other", Size: st.Size, Mode: permOf(st),
		Modified: time.Unix(st.Mtim.Unix()).UTC(),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type = "file"
	case unix.S_IFDIR:
		info.Type = "directory"
	case unix.S_IFLNK:
		info.Type = "symlink"
	}
	return info
}

// wireStep is a step in a message.
type wireStep struct {
	step
	refused *wireError
}

func packStep(f *pack.Fields, t *wireStep) {
	pack.Int(f, &t.depth)
	packInfo(f, &t.info)
	pack.Optional(f, &t.refused, packError)
}

// walk starts a walk and returns its first steps.
func (s *server) walk(name string) (response, error) {
	w, err := s.local.walker(name)
	if err != nil {
		return response{}, err
	}
	handle, err := s.addHandle(w)
	if err != nil {
		return response{}, err
	}
	return s.walkNext(handle, maxDepth)
}

// walkNext returns the next steps of a walk, after omitting those that are deeper than depth. It
// closes a walk that has ended.
func (s *server) walkNext(handle, depth int) (response, error) {
	w, ok := s.open[handle].(*walker)
	if !ok {
		return response{}, errNoHandle
	}
	w.skip(max(depth, 0))
	resp := response{Handle: handle}
	for size := 0; len(resp.WalkSteps) < maxBatch && size < maxListing; {
		next, err := w.next()
		if errors.Is(err, io.EOF) {
			resp.EOF = true
			return resp, s.closeHandle(handle)
		}
		if err != nil {
			_ = s.closeHandle(handle)
			return response{}, err
		}
		t := wireStep{step: next}
		if why := next.info.Refused; why != nil {
			t.refused = newWireError(why)
		}
		resp.WalkSteps = append(resp.WalkSteps, t)
		size += len(next.info.Name)
	}
	return resp, nil
}

// Walk implements dray.Files.
func (c *Client) Walk(ctx context.Context, name string,
	visit func(name string, info dray.FileInfo) error,
) error {
	w := &remoteWalk{client: c}
	if err := w.fetch(request{Op: opWalk, Name: name}); err != nil {
		return err
	}
	err := runWalk(ctx, clean(name), w, visit)
	if !w.done {
		err = errors.Join(err, handle{c, w.id}.Close())
	}
	return err
}

// remoteWalk receives the steps of a helper.
type remoteWalk struct {
	client    *Client
	id        int
	batch     []wireStep
	done      bool // the helper has closed the walk
	order     orderChecker
	skipDepth int // deeper steps are omitted; the next request passes it to the helper
}

func (w *remoteWalk) fetch(req request) error {
	resp, _, err := w.client.call(req, nil)
	if err != nil {
		w.done = true
		return err
	}
	w.id, w.batch, w.done, w.skipDepth = resp.Handle, resp.WalkSteps, resp.EOF, maxDepth
	if len(w.batch) == 0 && !w.done {
		return lost(io.ErrNoProgress)
	}
	return nil
}

func (w *remoteWalk) next() (step, error) {
	for {
		for len(w.batch) == 0 {
			if w.done {
				return step{}, io.EOF
			}
			if err := w.fetch(request{Op: opWalkNext, Handle: w.id, Limit: w.skipDepth}); err != nil {
				return step{}, err
			}
		}
		s, why := w.batch[0].step, w.batch[0].refused
		w.batch = w.batch[1:]
		if why != nil {
			s.info.Refused = refusal(why.err())
		}
		if err := w.order.check(s); err != nil {
			return step{}, lost(fmt.Errorf("invalid step of a walk: %w", err))
		}
		if s.depth <= w.skipDepth {
			w.skipDepth = maxDepth
			return s, nil
		}
	}
}

func (w *remoteWalk) skip(depth int) { w.skipDepth = depth }

// orderChecker validates the order of the steps of a helper. last has the last step of each depth.
type orderChecker struct{ last []step }

func (c *orderChecker) check(s step) error {
	deepest := 0
	if n := len(c.last); n > 0 {
		if deepest = n - 1; c.last[n-1].enterable() {
			deepest = n
		}
		if s.depth == 0 {
			return errors.New("the start is repeated")
		}
	}
	switch {
	case s.depth < 0 || s.depth > min(deepest, maxDepth):
		return fmt.Errorf("the depth is %d", s.depth)
	case s.depth > 0 && !validName(s.info.Name):
		return fmt.Errorf("the name is %.100q", s.info.Name)
	case !slices.Contains([]string{"file", "directory", "symlink", "other"}, s.info.Type):
		return fmt.Errorf("the type is %.100q", s.info.Type)
	case s.depth < len(c.last) && s.info.Name <= c.last[s.depth].info.Name:
		return fmt.Errorf("the name %.100q follows %.100q", s.info.Name, c.last[s.depth].info.Name)
	}
	c.last = append(c.last[:s.depth], s)
	return nil
}

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}
