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

	"github.com/dray-dev/dray"
)

// Bounds of a walk.
const (
	// maxDepth is how many folders below its beginning a walk goes: each of them is a descriptor while it is there.
	maxDepth = 128
	// maxPendingNames is how many names of folders that it is in a walk may hold, to give them in order.
	maxPendingNames = 1 << 20
)

// step is one entry of a walk. Its depth is zero for where the walk begins, one for what lies there, and so on.
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
func runWalk(ctx context.Context, name string, from stepSource, visit func(string, dray.FileInfo) error) error {
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
func (l *Local) Walk(ctx context.Context, name string, visit func(name string, info dray.FileInfo) error) error {
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

// orderChecker holds the steps that a helper tells against the order of a walk, so that nobody else has to. It remembers the last name of each depth.
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
