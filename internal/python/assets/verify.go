package assets

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// settleTime is how old the last change of a file must be for its times to show the next change.
const settleTime = 2 * time.Second

// maxLock bounds a lock in bytes, maxEntries the entries of a folder.
const (
	maxLock    = 8 << 20
	maxEntries = 4096
)

// expected is a file that must have one content.
type expected struct {
	File
	path   string // absolute
	source string
	// fix is the hint if the file is missing or differs; empty means to fetch it.
	fix string
}

func (s *Store) verify(ctx context.Context) (*verified, error) {
	dir, err := s.resolve()
	if err != nil {
		return nil, err
	}
	v := newVerification(dir)
	if err := v.folder(dir); err != nil {
		return nil, err
	}
	err = v.folder(filepath.Join(dir, pyodideName))
	if p, ok := asProblem(err); ok && p.Kind == Missing {
		p.Kind, p.Source = Incomplete, "pyodide "+s.pins.version(lockPath)
	}
	if err != nil {
		return nil, err
	}
	locks, err := s.expect(v)
	if err != nil {
		return nil, err
	}
	folder, err := v.finish(ctx)
	if err != nil {
		return nil, err
	}
	return &verified{folder, Assets{
		Deno: v.files[0].path, Dir: filepath.Join(dir, pyodideName), Lock: locks.text,
		ID: v.digest(), DenoVersion: s.pins.version(denoName),
		PyodideVersion: s.pins.version(lockPath), PythonVersion: locks.python,
		Packages: locks.wheels,
	}}, nil
}

// resolve returns the asset folder without links, because Deno compares resolved paths with its
// permissions.
func (s *Store) resolve() (string, error) {
	if s.dir == "" {
		return "", &Problem{
			Kind: Missing, File: "a data directory: neither HOME nor XDG_DATA_HOME is set",
			Fix: "set python.pyodide.assets, HOME or XDG_DATA_HOME",
		}
	}
	dir, err := filepath.EvalSymlinks(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &Problem{Kind: Missing, File: s.dir}
	}
	return dir, err
}

// expect lists the pinned files, Deno first, and the wheels in the folder.
func (s *Store) expect(v *verification) (*locks, error) {
	for _, p := range s.pins.pins() {
		f := expected{
			File: p.File, path: filepath.Join(v.dir, p.path), source: p.from.Name + " " + p.from.Version,
		}
		if p.path == denoName && s.deno != "" {
			f.path, v.unused = s.deno, f.path
			f.fix = "set python.pyodide.deno to Deno " + p.from.Version +
				", or remove it: `dray python fetch` brings this Deno"
			if found, err := filepath.EvalSymlinks(s.deno); err == nil {
				f.path = found
			}
		}
		v.files = append(v.files, f)
	}
	first := slices.IndexFunc(v.files, func(f expected) bool { return f.Executable })
	v.files[0], v.files[first] = v.files[first], v.files[0]
	return s.expectWheels(v)
}

// expectWheels adds the wheels that are in the folder and in a lock.
func (s *Store) expectWheels(v *verification) (*locks, error) {
	pinned, err := v.readPinned(lockPath)
	if err != nil {
		return nil, err
	}
	extra, err := readExtra(filepath.Join(v.dir, extraName))
	if err != nil {
		return nil, err
	}
	there, err := names(filepath.Join(v.dir, pyodideName))
	if err != nil {
		return nil, err
	}
	locks, err := mergeLocks(pinned, extra, there)
	if err != nil {
		return nil, err
	}
	if extra != nil {
		v.files = append(v.files, expected{
			File: FileOf(extraName, extra), path: filepath.Join(v.dir, extraName),
			source: "`dray python fetch --from`",
		})
	}
	for _, w := range locks.files {
		v.files = append(v.files, expected{
			File: w.File, path: filepath.Join(v.dir, pyodideName, w.Name), source: w.source,
		})
	}
	return locks, nil
}

// readPinned reads a small pinned file and checks it.
func (v *verification) readPinned(name string) ([]byte, error) {
	file := filepath.Join(v.dir, name)
	i := slices.IndexFunc(v.files, func(f expected) bool { return f.path == file })
	data, err := readSmall(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, v.files[i].missing()
	}
	if err != nil {
		return nil, err
	}
	if got := FileOf(name, data); got.SHA256 != v.files[i].SHA256 {
		return nil, v.files[i].mismatch(got.Size, got.SHA256)
	}
	return data, nil
}

// folder checks that a folder is there, and that no other user may change its entries.
func (v *verification) folder(dir string) error {
	id, err := identify(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Problem{Kind: Missing, File: dir}
	case err != nil:
		return err
	case id.mode&unix.S_IFMT != unix.S_IFDIR:
		return &Problem{Kind: Unsafe, File: dir, Got: "is not a directory"}
	}
	v.note(dir, id)
	v.folders = append(v.folders, dir)
	return private(dir, id)
}

// noOthers refuses what is in the folders and is not expected there.
func (v *verification) noOthers() error {
	known := map[string]bool{}
	for _, f := range v.files {
		known[f.path] = true
	}
	for _, dir := range v.folders {
		known[dir] = true
	}
	for _, dir := range v.folders {
		there, err := names(dir)
		if err != nil {
			return err
		}
		for _, name := range there {
			if file := filepath.Join(dir, name); !known[file] && file != v.unused {
				return &Problem{Kind: Unexpected, File: file}
			}
		}
	}
	return nil
}

// hashAll hashes the files, several at a time. The error is the first one in their order.
func (v *verification) hashAll(ctx context.Context) error {
	slots := make(chan struct{}, min(4, runtime.GOMAXPROCS(0)))
	errs := make([]error, len(v.files))
	var running sync.WaitGroup
	for i := range v.files {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = v.hash(ctx, v.files[i])
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// hash checks one file: kind, owner, mode, size and content.
func (v *verification) hash(ctx context.Context, want expected) error {
	f, err := openRegular(want.path)
	if errors.Is(err, fs.ErrNotExist) {
		return want.missing()
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	before, err := identifyOpen(f)
	if err != nil {
		return err
	}
	if err := want.check(before); err != nil {
		return err
	}
	sum, err := digestOf(ctx, f, before.size)
	if err != nil {
		return fmt.Errorf("read %s: %w", want.path, err)
	}
	if sum != want.SHA256 {
		return want.mismatch(before.size, sum)
	}
	after, err := identifyOpen(f)
	if err == nil && after != before {
		err = fmt.Errorf("%s changed while it was read", want.path)
	}
	v.note(want.path, before)
	return err
}

// check checks what is known without reading the file.
func (want expected) check(id identity) error {
	switch {
	case want.Executable && id.mode&0o111 == 0:
		return &Problem{
			Kind: Unsafe, File: want.path, Got: "is not executable",
			Fix: "run: chmod a+x " + want.path,
		}
	case want.Size > 0 && id.size != want.Size: // Pyodide's lock has no sizes
		return want.mismatch(id.size, "")
	default:
		return private(want.path, id)
	}
}

func (want expected) missing() *Problem {
	return &Problem{Kind: Incomplete, File: want.path, Source: want.source, Fix: want.fix}
}

func (want expected) mismatch(size int64, sum string) *Problem {
	p := &Problem{
		Kind: Mismatch, File: want.path, Source: want.source, Fix: want.fix,
		Expected: "sha256 " + want.SHA256, Got: "sha256 " + sum,
	}
	if sum == "" {
		p.Expected, p.Got = fmt.Sprintf("%d bytes", want.Size), fmt.Sprintf("%d bytes", size)
	}
	return p
}

func (v *verification) note(name string, id identity) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen[name] = id
}

// settled reports whether nothing changed shortly before the verification.
func (v *verification) settled() bool {
	limit := v.started.Add(-settleTime)
	for _, id := range v.seen {
		if !time.Unix(id.ctime.Unix()).Before(limit) {
			return false
		}
	}
	return true
}

// digest returns the digest of names and contents.
func (v *verification) digest() string {
	sums := map[string]string{}
	for _, f := range v.files {
		sums[path.Base(f.path)] = f.SHA256
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(h, "%s  %s\n", sums[name], name)
	}
	return hexOf(h)
}
