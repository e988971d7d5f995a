package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
	"github.com/dray-dev/dray/internal/linux"
)

const (
	dirMode        = 0o700
	fileMode       = 0o600
	executableMode = 0o700
)

// item is one file or directory of a tree.
type item struct {
	name string
	dir  bool
	size int64
	sum  digest
	mode uint32
	// listed is set if a directory is an entry of the tree, not only the parent of one.
	listed bool
	// staged is set if the file is in the staging directory. A small unchanged file is not.
	staged bool
	// existing is the file at the destination.
	existing fileState
}

// WriteTree writes a tree beneath a root: all of it, or nothing if it returns an error. Files get
// the mode 0600, or 0700 with how.Executable and an x bit, and new directories 0700, whatever the
// umask. They inherit neither set-id bits nor access lists. Directories of a name need no entry of
// their own. The files are returned in the tree's order.
//
// With how.Expect and how.Remove files are compared and removed, see [dray.WriteTreeOptions]; the
// deleted files follow those of the tree.
//
// WriteTree fails with path_invalid for names that lead out of the root or through symlinks or
// mounts, or where a file would replace a directory or the reverse; with denied, disk_full,
// limit_exceeded (open files), transfer_failed, or with the error of the tree. Only an error that
// is ErrCommitIncomplete means that something was written. The end of the context cancels the write
// until the journal is written.
func WriteTree(ctx context.Context, root *os.File, source dray.Tree, how dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	defer runtime.KeepAlive(root)
	t := newTransaction(int(root.Fd()), how)
	defer t.close()
	err := t.setExpectations()
	if err == nil {
		err = t.receive(ctx, source)
	}
	if err == nil {
		err = t.checkExpectations()
	}
	switch {
	case err != nil:
	case how.DryRun:
		err = t.checkNames(t.destDirs)
	default:
		err = t.commit(ctx)
	}
	if err != nil {
		return nil, err
	}
	return t.manifest(), nil
}

// ModeOf returns the mode with which a file of a tree is written.
func ModeOf(mode fs.FileMode, how dray.WriteTreeOptions) fs.FileMode {
	if how.Executable && mode&0o111 != 0 {
		return executableMode
	}
	return fileMode
}

// transaction is the write of one tree.
type transaction struct {
	resolver
	root     int
	how      dray.WriteTreeOptions
	items    []*item
	byName   map[string]*item
	destDirs *dirCache
	staging  *stagingDir // nil until something has to be staged
	content  []byte      // a small file, or the pieces of a large one
	compare  []byte      // for reading existing files
	// expected is nil unless names have expectations. removals are in the order of the journal,
	// removed has them by name.
	expected map[string]expectation
	removals []*removal
	removed  map[string]*removal
	// recovering is set while a journal is completed. done has the items that were renamed before.
	recovering bool
	done       map[string]*item
}

func newTransaction(root int, how dray.WriteTreeOptions) *transaction {
	r := newResolver()
	return &transaction{
		resolver: r, root: root, how: how, byName: map[string]*item{},
		destDirs: newDirCache(r, root, maxCachedDirs),
		content:  make([]byte, pieces*pieceSize), compare: make([]byte, pieceSize),
	}
}

func (t *transaction) close() {
	t.destDirs.close()
	if t.staging != nil {
		t.staging.close()
	}
}

func (t *transaction) receive(ctx context.Context, source dray.Tree) error {
	for {
		if err := ended(ctx); err != nil {
			return err
		}
		e, err := source.Next()
		if err == io.EOF { //nolint:errorlint // a wrapped io.EOF is the end of something else, such as the agent
			return nil
		}
		if err != nil {
			return opError("read", "the tree", err)
		}
		if err := t.add(ctx, e, source); err != nil {
			return opError("write", e.Name, err)
		}
	}
}

func (t *transaction) add(ctx context.Context, e dray.TreeEntry, content io.Reader) error {
	if e.Refused != nil {
		return e.Refused
	}
	if err := checkName(e.Name); err != nil {
		return err
	}
	switch e.Type {
	case "directory":
		it, err := t.dirItem(e.Name)
		if err != nil {
			return err
		}
		if it.listed {
			return invalid(e.Name, "is in the tree twice")
		}
		it.listed = true
		return nil
	case "file":
		return t.file(ctx, e, content)
	default:
		return dray.Errorf(dray.CodePathInvalid, "%q is neither a file nor a directory: %s", e.Name,
			e.Type)
	}
}

// dirItem returns the item of a directory, and creates it and its parents.
func (t *transaction) dirItem(name string) (*item, error) {
	if it := t.byName[name]; it != nil {
		if !it.dir {
			return nil, invalid(name, "is a file and a directory in the tree")
		}
		return it, nil
	}
	it := &item{name: name, dir: true, mode: dirMode}
	if name == "" {
		it.existing.kind = directory
		t.byName[name] = it
		return it, nil
	}
	above, _ := split(name)
	parent, err := t.dirItem(above)
	if err != nil {
		return nil, err
	}
	if parent.existing.kind == directory {
		if it.existing.kind, err = t.statDir(name); err != nil {
			return nil, err
		}
	}
	if it.existing.kind != directory && !t.how.DryRun {
		// It must not exist: a file system that ignores case would take it for another one of the tree.
		if _, err := t.stagedDir(name, (*stagingDir).makeDir); err != nil {
			return nil, err
		}
	}
	t.byName[name], t.items = it, append(t.items, it)
	return it, nil
}

func (t *transaction) statDir(name string) (kind, error) {
	if t.isReplaced(name, regular) {
		return regular, nil
	}
	_, err := t.destDirs.get(name)
	switch {
	case err == nil:
		return directory, nil
	case errors.Is(err, unix.ENOENT):
		return absent, nil
	default:
		return absent, opError("open the directory", name, t.asConflict(name, err))
	}
}

func (t *transaction) file(ctx context.Context, e dray.TreeEntry, content io.Reader) error {
	if e.Offset != 0 || e.Size < 0 {
		return dray.Errorf(dray.CodeTransferFailed,
			"%q has the offset %d and the size %d: the file is incomplete",
			e.Name, e.Offset, e.Size)
	}
	if t.byName[e.Name] != nil {
		return invalid(e.Name, "is in the tree twice")
	}
	above, base := split(e.Name)
	parent, err := t.dirItem(above)
	if err != nil {
		return err
	}
	it := &item{name: e.Name, size: e.Size, mode: uint32(ModeOf(e.Mode, t.how))}
	if parent.existing.kind == directory {
		if err := t.inspectDest(ctx, it, above, base); err != nil {
			return err
		}
	}
	t.byName[e.Name], t.items = it, append(t.items, it)
	if it.size <= int64(len(t.content)) {
		return t.writeSmall(it, content)
	}
	return t.writeLarge(ctx, it, content)
}

func (t *transaction) inspectDest(ctx context.Context, it *item, above, base string) error {
	dir, err := t.destDirs.get(above)
	if err == nil {
		it.existing, err = t.inspect(ctx, dir, base, nil, t.compare)
	}
	if err == nil && it.existing.kind == directory && !t.isReplaced(it.name, directory) {
		err = unix.EISDIR
	}
	return opError("inspect", it.name, t.asConflict(it.name, err))
}

// checkNames checks what the names of the whole tree, and those that exist, become together.
func (t *transaction) checkNames(dest *dirCache) error {
	if err := t.checkCaseCollisions(); err != nil {
		return err
	}
	return t.checkRepositories(dest)
}

// checkCaseCollisions fails if two names of the tree are one file at the destination, as on a file
// system that ignores case.
func (t *transaction) checkCaseCollisions() error {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]*item{}
	for _, it := range t.items {
		if it.dir || it.existing.kind == absent || it.existing.stat.Nlink != 1 {
			continue
		}
		key := inode{it.existing.stat.Dev, it.existing.stat.Ino}
		if twin := seen[key]; twin != nil {
			return dray.Errorf(dray.CodePathInvalid, "%q and %q are one file at the destination",
				twin.name, it.name)
		}
		seen[key] = it
	}
	return nil
}

func (t *transaction) manifest() []dray.WrittenFile {
	var list []dray.WrittenFile
	for _, it := range t.items {
		if it.dir {
			continue
		}
		written := dray.WrittenFile{
			Name: it.name, Size: it.size, SHA256: hex.EncodeToString(it.sum[:]),
			Mode: fs.FileMode(it.mode), Action: dray.FileReplaced,
		}
		switch {
		case it.existing.unchanged(it):
			written.Action = dray.FileUnchanged
		case it.existing.kind == absent, it.existing.kind == directory:
			written.Action = dray.FileCreated
		}
		if it.existing.kind == regular {
			written.SHA256Before = hex.EncodeToString(it.existing.sum[:])
		}
		list = append(list, written)
	}
	for _, r := range t.removals {
		if r.want.kind == regular {
			list = append(list, dray.WrittenFile{
				Name: r.name, SHA256Before: hex.EncodeToString(r.want.sum[:]), Action: dray.FileDeleted,
			})
		}
	}
	return list
}

// A file of up to pieces*pieceSize bytes is read completely before it is written. A larger one is
// written in pieces that fit the processor's cache, and hashed while the next piece arrives.
const (
	pieceSize = 256 << 10
	pieces    = 4
)

// writeSmall stages a file that fits into memory, unless it is unchanged.
func (t *transaction) writeSmall(it *item, content io.Reader) error {
	b := t.content[:it.size]
	if _, err := io.ReadFull(content, b); err != nil {
		return truncatedError(it, err)
	}
	if err := expectEOF(it, content); err != nil {
		return err
	}
	it.sum = sha256.Sum256(b)
	if t.how.DryRun || it.existing.unchanged(it) {
		return nil
	}
	fd, err := t.create(it)
	if err != nil {
		return err
	}
	return t.finish(it, fd, write(fd, b))
}

func (t *transaction) writeLarge(ctx context.Context, it *item, content io.Reader) error {
	if t.how.DryRun {
		return t.copyPieces(ctx, it, content, func([]byte) error { return nil })
	}
	fd, err := t.create(it)
	if err != nil {
		return err
	}
	return t.finish(it, fd, t.copyPieces(ctx, it, content,
		func(b []byte) error { return write(fd, b) }))
}

// copyPieces passes a file to write in pieces and hashes it in another goroutine.
func (t *transaction) copyPieces(ctx context.Context, it *item, content io.Reader,
	write func([]byte) error,
) error {
	free, full, sum := make(chan []byte, pieces), make(chan []byte, pieces), make(chan digest)
	for i := range pieces {
		free <- t.content[i*pieceSize : (i+1)*pieceSize]
	}
	go func() {
		h := sha256.New()
		for b := range full {
			_, _ = h.Write(b)
			free <- b[:pieceSize]
		}
		sum <- digest(h.Sum(nil))
	}()
	err := eachPiece(ctx, it, content, free, func(b []byte) error {
		full <- b
		return write(b) // both only read it
	})
	close(full)
	it.sum = <-sum
	return err
}

func eachPiece(ctx context.Context, it *item, content io.Reader, free <-chan []byte,
	use func([]byte) error,
) error {
	for left := it.size; left > 0; {
		b := <-free
		b = b[:min(left, pieceSize)]
		if _, err := io.ReadFull(content, b); err != nil {
			return truncatedError(it, err)
		}
		if err := use(b); err != nil {
			return err
		}
		if err := ended(ctx); err != nil {
			return err
		}
		left -= int64(len(b))
	}
	return expectEOF(it, content)
}

// truncatedError returns the error for a content that ends before its size.
func truncatedError(it *item, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // those of io.ReadFull; a wrapped one is the end of something else
		return dray.Errorf(dray.CodeTransferFailed, "%q ended before its %d bytes", it.name, it.size)
	}
	return err
}

func expectEOF(it *item, content io.Reader) error {
	var one [1]byte
	n, err := io.ReadFull(content, one[:])
	switch {
	case n > 0:
		return dray.Errorf(dray.CodeTransferFailed, "%q has more than its %d bytes", it.name, it.size)
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// create creates a file in the staging directory.
func (t *transaction) create(it *item) (int, error) {
	above, base := split(it.name)
	dir, err := t.stagedDir(above, (*stagingDir).getDir)
	if err != nil {
		return -1, err
	}
	fd, err := createFile(dir, base, it.mode)
	return fd, opError("write", it.name, err)
}

func createFile(dir int, base string, mode uint32) (int, error) {
	return linux.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode)
}

// finish sets the mode of a file and closes it. Some file systems report a full disk only then.
func (t *transaction) finish(it *item, fd int, err error) error {
	if err == nil {
		err = unix.Fchmod(fd, it.mode)
	}
	err = errors.Join(err, unix.Close(fd))
	it.staged = err == nil
	return opError("write", it.name, err)
}

func write(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := linux.RetryValue(func() (int, error) { return unix.Write(fd, b) })
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// checkName refuses names that no tree can have, and names of staging directories.
func checkName(name string) error {
	if err := tree.CheckName(name); err != nil {
		return err
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) >= len(Prefix) && strings.EqualFold(part[:len(Prefix)], Prefix) {
			return invalid(name, "is reserved for dray")
		}
	}
	return nil
}

// ErrCommitIncomplete is returned if a commit failed and could not be rolled back. The journal
// stays, and the next commit or recovery beneath the same root completes it.
var ErrCommitIncomplete = errors.New("the write was interrupted and will be completed from its " +
	"journal")

// ErrConflict is returned if a file that was unchanged, and so was not staged, was changed before
// the commit. Nothing was written.
var ErrConflict = errors.New("changed while the tree was written")

// ErrLocked is returned if the timeout elapsed while another process held the lock of the root: a
// commit, or any process that can open the directory.
var ErrLocked = errors.New("another process holds the lock of the directory")

// opError returns an error of the kernel with its code, the operation and the name.
func opError(operation, name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*dray.Error](err); ok {
		return err
	}
	code, hint := classify(err)
	e := dray.Errorf(code, "%s %q: %w", operation, name, err)
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return e
}

func classify(err error) (code dray.Code, hint string) {
	errno, _ := errors.AsType[unix.Errno](err)
	switch errno {
	case unix.ENOSPC, unix.EDQUOT:
		return dray.CodeDiskFull, "free disk space, or raise the quota, then repeat the write"
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return dray.CodeDenied, "make the directory writable for the user who writes there"
	case unix.ELOOP:
		return dray.CodePathInvalid, "remove the symlink in the path, or choose another destination"
	case unix.ENOTDIR, unix.EISDIR:
		return dray.CodePathInvalid,
			"remove the file or directory that has the name already, or choose another destination"
	case unix.EXDEV, unix.EBUSY:
		return dray.CodePathInvalid,
			"choose a destination on the file system of the root, outside of mounts"
	case unix.EEXIST:
		return dray.CodePathInvalid,
			"remove the entry that has the name already; the file system may ignore case"
	case unix.ENAMETOOLONG, unix.EINVAL, unix.EILSEQ:
		return dray.CodePathInvalid, ""
	case unix.EMFILE, unix.ENFILE:
		return dray.CodeLimitExceeded,
			"raise the limit of open files (ulimit -n), or write fewer directories at once"
	case unix.EFBIG:
		return dray.CodeLimitExceeded, ""
	default:
		return dray.CodeTransferFailed, ""
	}
}

// ended returns an error if the context has ended.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return dray.Errorf(dray.CodeTransferFailed, "the write was cancelled: %w", context.Cause(ctx)).
		WithHint("nothing was written; repeat the write, with a longer timeout if that elapsed")
}

func invalid(name, why string) error {
	return dray.Errorf(dray.CodePathInvalid, "%q %s", name, why)
}
