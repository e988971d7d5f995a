package assets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// lockRetry is the interval at which a fetch tries to get the lock of another one.
const lockRetry = 100 * time.Millisecond

// FetchOptions is where files come from.
type FetchOptions struct {
	// From is a folder with the packages, an asset folder, or wheels. If it is set, nothing is
	// downloaded.
	From string
	// Plan is called before a download, Progress during it. Nil means neither.
	Plan     func(Plan)
	Progress func(Progress)

	downloader *downloader // for tests
}

// Plan is what a fetch will download.
type Plan struct {
	Dir string
	// Packages are written as "pyodide@314.0.7". Bytes are those that are not there yet.
	Packages []string
	Bytes    int64
}

// Progress is the progress of a fetch. Done and Total are bytes of all packages of the plan.
type Progress struct {
	Package     string
	Done, Total int64
	// Waiting is the reason of a wait, for example an interrupted download.
	Waiting string
}

// Fetched is the result of a fetch.
type Fetched struct {
	Assets
	// Root is the asset folder. Downloaded are the bytes that came over the network.
	Root       string
	Downloaded int64
	// Reused says that everything was there already.
	Reused bool
}

// fetch is one run of Fetch.
type fetch struct {
	store *Store
	opts  FetchOptions
	// dir is the asset folder. work is the folder beside it for downloads; next is in it, and replaces
	// dir.
	dir, work string
	next      *os.Root
	// differs is the first file of opts.From that has the name of a pinned one and not its content.
	differs *Problem
	// total, done and downloaded are bytes of the download.
	total, done, downloaded int64
}

// Fetch makes the asset folder complete: it keeps the files that match their pins, copies those of
// opts.From, and downloads the rest. The folder changes as a whole or not at all. After an
// interruption the next call continues the download. Concurrent calls, also of other processes,
// wait for each other.
func (s *Store) Fetch(ctx context.Context, opts FetchOptions) (Fetched, error) {
	f := &fetch{store: s, opts: opts}
	f.setDefaults()
	found, err := f.run(ctx)
	switch p, isProblem := asProblem(err); {
	case err == nil:
		return found, nil
	case errors.Is(err, syscall.ENOSPC):
		return Fetched{}, dray.Errorf(dray.CodeDiskFull, "fetch Pyodide: %w", err).
			WithHint("free 300 MB at %s, and run it again", filepath.Dir(f.dir))
	case errors.As(err, new(*dray.Error)):
		return Fetched{}, err
	case isProblem:
		return Fetched{}, dray.Errorf(dray.CodeTransferFailed, "%w", err).WithHint("%s", p.fix())
	default:
		return Fetched{}, dray.Errorf(dray.CodeTransferFailed, "fetch Pyodide: %w", err).
			WithHint("repair the cause, and run it again")
	}
}

func (f *fetch) setDefaults() {
	if f.opts.Plan == nil {
		f.opts.Plan = func(Plan) {}
	}
	if f.opts.Progress == nil {
		f.opts.Progress = func(Progress) {}
	}
	if f.opts.downloader == nil {
		f.opts.downloader = newDownloader()
	}
}

func (f *fetch) run(ctx context.Context) (Fetched, error) {
	if f.opts.From == "" {
		if found, err := f.store.Open(ctx); err == nil {
			return Fetched{Assets: found, Root: filepath.Dir(found.Dir), Reused: true}, nil
		}
	} else if err := isDir(f.opts.From); err != nil {
		return Fetched{}, err
	}
	if err := f.place(); err != nil {
		return Fetched{}, err
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		return Fetched{}, err
	}
	defer unlock()
	if f.opts.From == "" { // another fetch may have ended meanwhile
		if found, err := f.store.Open(ctx); err == nil {
			return Fetched{Assets: found, Root: f.dir, Reused: true}, f.removeWork()
		}
	}
	if err := f.assemble(ctx); err != nil {
		return Fetched{}, err
	}
	found, err := f.store.Open(ctx)
	if err != nil {
		return Fetched{}, err
	}
	return Fetched{Assets: found, Root: f.dir, Downloaded: f.downloaded}, f.removeWork()
}

func isDir(name string) error {
	info, err := os.Stat(name)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return dray.Errorf(dray.CodeNotFound, "read the folder with the files: %w", err).
			WithHint("name a folder with the packages, an asset folder, or wheels")
	}
	return nil
}

// place finds the folder to change. It fails with conflict if the folder has other files.
func (f *fetch) place() error {
	dir, err := f.store.resolve()
	if p, ok := asProblem(err); ok && f.store.dir != "" && p.Kind == Missing {
		dir, err = f.store.dir, nil
	}
	if err != nil {
		return err
	}
	f.dir = dir
	if err := checkParents(parentsOf(dir)); err != nil {
		return err
	}
	f.work = filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".fetch")
	there, err := names(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range there {
		if !slices.Contains([]string{denoName, pyodideName, extraName}, name) {
			return dray.Errorf(dray.CodeConflict, "%s is in the asset folder %s, which fetch would replace",
				name, dir).WithHint("move it away, or set python.pyodide.assets to a folder of its own")
		}
	}
	if f.store.configured { // by an operator, perhaps for a daemon of another user
		return os.MkdirAll(filepath.Dir(dir), 0o755) //nolint:gosec // nothing in it is secret
	}
	return os.MkdirAll(filepath.Dir(dir), 0o700)
}

// lock makes the working folder and blocks until this fetch has its lock. The lock is on the folder
// itself, which a fetch removes if it succeeds; then lock starts over.
func (f *fetch) lock(ctx context.Context) (unlock func(), err error) {
	for {
		if err := os.Mkdir(f.work, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		dir, err := os.OpenFile(f.work, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = linux.Retry(func() error { return unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
		if err == nil && f.isWork(dir) {
			return func() { _ = dir.Close() }, f.removeLeftovers()
		}
		_ = dir.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.work, err)
		}
		if err != nil {
			f.opts.Progress(Progress{Waiting: "another fetch is running"})
			if err := pause(ctx, lockRetry); err != nil {
				return nil, err
			}
		}
	}
}

// isWork reports whether an open folder still has the name of the working folder.
func (f *fetch) isWork(dir *os.File) bool {
	open, err := identifyOpen(dir)
	if err != nil {
		return false
	}
	named, err := identify(f.work)
	return err == nil && named.dev == open.dev && named.ino == open.ino
}

// newPrefix is the prefix of the names of incomplete folders.
const newPrefix = "new-"

// removeLeftovers removes the incomplete folders of a fetch that was killed, and keeps its
// downloads.
func (f *fetch) removeLeftovers() error {
	there, err := names(f.work)
	for _, name := range there {
		if strings.HasPrefix(name, newPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.work, name)))
		}
	}
	return err
}

func (f *fetch) removeWork() error {
	if err := os.RemoveAll(f.work); err != nil {
		return fmt.Errorf("remove %s: %w", f.work, err)
	}
	return nil
}

// assemble makes the next folder and puts it in place.
func (f *fetch) assemble(ctx context.Context) error {
	next, err := os.MkdirTemp(f.work, newPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next) }() // after replace it is the old folder
	if f.next, err = os.OpenRoot(next); err != nil {
		return err
	}
	defer func() { _ = f.next.Close() }()
	if err := f.next.Mkdir(pyodideName, 0o700); err != nil {
		return err
	}
	if err := f.packages(ctx); err != nil {
		return err
	}
	if err := f.wheels(ctx); err != nil {
		return err
	}
	for _, name := range []string{pyodideName, "."} {
		if err := finishFolder(f.next, name); err != nil {
			return err
		}
	}
	return f.replace(next)
}

// finishFolder makes a folder readable for all and syncs it.
func finishFolder(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Chmod(0o755), dir.Sync(), dir.Close())
}

// replace puts the next folder in the place of the asset folder, which takes the place of next.
func (f *fetch) replace(next string) error {
	err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, f.dir, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // not on this file system
		err = os.Rename(f.dir, next+".old")
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(next, f.dir)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(next, f.dir)
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV) {
		return dray.Errorf(dray.CodeConflict, "put %s in place: it is a mount point", f.dir).
			WithHint("set python.pyodide.assets to a folder in it")
	}
	if err != nil {
		return fmt.Errorf("put %s in place: %w", f.dir, err)
	}
	parent, err := os.Open(filepath.Dir(f.dir))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
