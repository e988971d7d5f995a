package tool

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// fileScope is where a file tool works, in the environment's own paths.
type fileScope struct {
	files dray.Files
	// root is the folder that files is open beneath; dir is where relative paths begin.
	root, dir string
	kind      dray.EnvironmentKind
	// changes is where a tool that changes files notes it, as soon as it has happened.
	changes *[]dray.FileChange
	// rewrite is for the text of files that are read for the caller; nil where it stays as it is.
	rewrite func(io.Writer) dray.TextFilter
	locks   *fileLocks
}

// lockForWrite finds a file and waits until no other call changes it, or this one ends. A file that
// two environments share has a turn in each.
func (p fileScope) lockForWrite(ctx context.Context, given string) (file target, done func(),
	err error,
) {
	if file, err = p.locate(given); err != nil {
		return target{}, nil, err
	}
	done, err = p.locks.lock(ctx, string(p.kind)+":"+file.path)
	return file, done, err
}

// target is one file or folder: as Files wants it, and as callers do.
type target struct{ name, path string }

// locate finds what a path means. One outside the root is refused here with a sentence; that no
// link leads out is the matter of Files, which knows the links.
func (p fileScope) locate(given string) (target, error) {
	if strings.ContainsRune(given, 0) || slices.Contains(strings.Split(given, "/"), "..") {
		return target{}, dray.Errorf(dray.CodePathInvalid, `path %q holds NUL or ".."`, lexical.Truncate(given, maxMessage)).
			WithHint("write the path that is meant without ..: links decide where .. leads")
	}
	absolute := path.Clean(given)
	if !path.IsAbs(given) {
		absolute = path.Join(p.dir, given)
	}
	name, ok := lexical.Rel(p.root, absolute)
	if !ok {
		return target{}, dray.Errorf(dray.CodePathInvalid, "path %q is outside %s",
			lexical.Truncate(given, maxMessage), p.root).
			WithHint("file tools work in that folder: use exec or shell for files elsewhere")
	}
	return target{name, absolute}, nil
}

// reading opens a file for use, which ends with the call: what is read may be something that nobody
// writes.
func (p fileScope) reading(ctx context.Context, name string, offset int64,
	use func(io.Reader, dray.FileInfo) error,
) error {
	r, info, err := p.files.Open(name, offset)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	err = use(r, info)
	if stop() {
		_ = r.Close() // it was only read
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// wrapError says what was being done to which file, and what to do next. Files gives every error
// but these two its code.
func (t target) wrapError(doing string, err error) error {
	e := dray.Errorf(dray.CodeOf(err), "%s %s: %w", doing, t.path, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e = dray.Errorf(dray.CodePathInvalid, "%s %s: it does not exist", doing, t.path)
	case errors.Is(err, fs.ErrPermission):
		e = dray.Errorf(dray.CodeDenied, "%s %s: the user that tools run as may not", doing, t.path)
	}
	if coded := new(dray.Error); errors.As(err, &coded) && coded.Hint != "" {
		return e.WithHint("%s", coded.Hint) // whoever refused knows best
	}
	return e.WithHint("%s", fileHints[e.Code])
}

// fileHints is what to do next, by code.
var fileHints = map[dray.Code]string{
	dray.CodePathInvalid: "list_dir shows what there is; write_file makes no folders, and links that are absolute or lead out of the workspace are not followed",
	dray.CodeDenied:      "change the owner or the mode of the file or its folder, or work elsewhere",
	dray.CodeAgentLost:   "see with read_file whether it has happened before you repeat the call",
	dray.CodeDiskFull:    "make room and call again: the old content is untouched",
}

// wrongTypeError refuses a file of the wrong type.
func (t target) wrongTypeError(doing string, info dray.FileInfo, hint string) error {
	return dray.Errorf(dray.CodePathInvalid, "%s %s: it is a %s", doing, t.path, kindOf(info)).
		WithHint("%s", hint)
}

func kindOf(info dray.FileInfo) string {
	switch info.Type {
	case "directory":
		return "folder"
	case "symlink":
		return "link to " + info.Target
	case "file":
		return "file"
	default:
		return "pipe, socket or device"
	}
}

// fileLocks let those that change one file do it one after the other: an edit that is made of what
// another one is about to replace would be lost, or take the other's away. The zero value is ready.
type fileLocks struct {
	mu    sync.Mutex
	files map[string]*fileLock
}

// fileLock is the turn at one file, and how many have it or wait for it.
type fileLock struct {
	taken chan struct{} // holds one while somebody has it
	users int
}

// lock waits for the turn at a file, until the context ends. Whoever has it gives it up by calling
// done.
func (t *fileLocks) lock(ctx context.Context, file string) (done func(), err error) {
	one := t.acquire(file)
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.release(file, one)
		}, nil
	case <-ctx.Done():
		t.release(file, one)
		return nil, context.Cause(ctx)
	}
}

func (t *fileLocks) acquire(file string) *fileLock {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files == nil {
		t.files = map[string]*fileLock{}
	}
	one := t.files[file]
	if one == nil {
		one = &fileLock{taken: make(chan struct{}, 1)}
		t.files[file] = one
	}
	one.users++
	return one
}

func (t *fileLocks) release(file string, one *fileLock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.files, file)
	}
}
