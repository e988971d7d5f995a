package tool

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// fileScope is where a file tool works, in the paths of the environment.
type fileScope struct {
	files dray.Files
	// root is the directory beneath which files is open. Relative paths begin at dir.
	root, dir string
	kind      dray.EnvironmentKind
	// changes receives each change of a file as soon as it has happened.
	changes *[]dray.FileChange
	// rewrite returns a filter for text that is read for the caller. Nil leaves it unchanged.
	rewrite func(io.Writer) dray.TextFilter
	locks   *fileLocks
	// checkWrite returns why a file may not be written; nil allows all that Files does.
	checkWrite func(path string) error
}

// writeCheck returns checkWrite of a scope.
func (r *Registry) writeCheck(ctx context.Context, kind dray.EnvironmentKind) func(string) error {
	host, code := kind == dray.KindHost, madeByCode(ctx)
	if r.Transfer == nil || !host && !code {
		return nil
	}
	return func(file string) error {
		if host {
			if err := r.Transfer.CheckHostWrite(file); err != nil {
				return err
			}
		}
		if !code {
			return nil
		}
		if dir, err := filepath.EvalSymlinks(path.Dir(file)); host && err == nil {
			file = path.Join(dir, path.Base(file))
		}
		return r.Transfer.CheckHostChange(file, false)
	}
}

// lockForWrite locates a file and blocks until no other call changes it, or ctx ends. A file that
// two environments share has a lock in each.
func (p fileScope) lockForWrite(ctx context.Context, given string) (target, func(), error) {
	file, err := p.locate(given)
	if err == nil && p.checkWrite != nil {
		err = p.checkWrite(file.path)
	}
	if err != nil {
		return target{}, nil, err
	}
	done, err := p.locks.lock(ctx, string(p.kind)+":"+file.path)
	return file, done, err
}

// target is a file or directory: its name as Files takes it, and its path.
type target struct{ name, path string }

// locate returns the target of a path. It fails with path_invalid if the path is outside the root.
// Files itself refuses symlinks that lead out.
func (p fileScope) locate(given string) (target, error) {
	if strings.ContainsRune(given, 0) || slices.Contains(strings.Split(given, "/"), "..") {
		return target{}, dray.Errorf(dray.CodePathInvalid, `path %q contains NUL or ".."`,
			lexical.Truncate(given, maxMessage)).
			WithHint("write the path without ..: symlinks would decide where it leads")
	}
	absolute := path.Clean(given)
	if !path.IsAbs(given) {
		absolute = path.Join(p.dir, given)
	}
	name, ok := lexical.Rel(p.root, absolute)
	if !ok {
		return target{}, dray.Errorf(dray.CodePathInvalid, "path %q is outside %s",
			lexical.Truncate(given, maxMessage), p.root).
			WithHint("file tools work beneath that directory: use exec or shell for other files")
	}
	return target{name, absolute}, nil
}

// reading opens a file for use and closes it when ctx ends: a FIFO may never have a writer.
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

// wrapError adds the operation and the path to an error of Files, and a hint for its code.
func (t target) wrapError(doing string, err error) error {
	e := dray.Errorf(dray.CodeOf(err), "%s %s: %w", doing, t.path, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e = dray.Errorf(dray.CodePathInvalid, "%s %s: no such file or directory", doing, t.path)
	case errors.Is(err, fs.ErrPermission):
		e = dray.Errorf(dray.CodeDenied, "%s %s: permission denied for the user that tools run as",
			doing, t.path)
	}
	if coded := new(dray.Error); errors.As(err, &coded) && coded.Hint != "" {
		return e.WithHint("%s", coded.Hint) // more specific
	}
	return e.WithHint("%s", fileHints[e.Code])
}

// fileHints are the hints by code.
var fileHints = map[dray.Code]string{
	dray.CodePathInvalid: "list_dir shows what exists; write_file creates no directories, and " +
		"symlinks that are absolute or lead out of the workspace are not followed",
	dray.CodeDenied: "change the owner or the mode of the file or its directory, " +
		"or use another path",
	dray.CodeAgentLost: "check with read_file whether it happened before you repeat the call",
	dray.CodeDiskFull:  "free disk space and repeat the call: the old content is unchanged",
}

func (t target) wrongTypeError(doing string, info dray.FileInfo, hint string) error {
	return dray.Errorf(dray.CodePathInvalid, "%s %s: is a %s", doing, t.path, kindOf(info)).
		WithHint("%s", hint)
}

func kindOf(info dray.FileInfo) string {
	switch info.Type {
	case "file", "directory":
		return info.Type
	case "symlink":
		return "symlink to " + info.Target
	default:
		return "pipe, socket or device"
	}
}

// fileLocks serialize changes of the same file: an edit based on content that another call is about
// to replace would be lost. The zero value is ready to use.
type fileLocks struct {
	files sync.Map // a path to the chan struct{} that is closed when the file is unlocked
}

// locks are those of the process: when the configuration is reloaded, calls of the previous and of
// the new registry change the same files.
var locks fileLocks

// lock blocks until the file is locked, or ctx ends. The caller releases the lock with done.
func (t *fileLocks) lock(ctx context.Context, file string) (done func(), err error) {
	unlocked := make(chan struct{})
	for {
		other, locked := t.files.LoadOrStore(file, unlocked)
		if !locked {
			return func() {
				t.files.Delete(file)
				close(unlocked)
			}, nil
		}
		select {
		case <-other.(chan struct{}): //nolint:forcetypeassert,errcheck // the only type
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
