package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"github.com/dray-dev/dray"
)

const (
	folderMode     = 0o700
	fileMode       = 0o600
	executableMode = 0o700
)

// item is one file or folder on its way to its place.
type item struct {
	name   string
	folder bool
	size   int64
	sum    digest
	mode   uint32
	// listed says that a folder came as an entry, not only as what an entry lies in.
	listed bool
	// staged says that it lies in the stage folder. A small file that was found unchanged does not.
	staged bool
	// found is what lies at its place.
	found fileState
}

// WriteTree writes a tree beneath a root: all of it, or, with an error, nothing. Files are 0600,
// with how.Executable and an x bit 0700, and folders that are new 0700, whatever the umask; what
// the root would hand down (set-id bits, access lists) they do not have. Folders that a name lies
// in need no entry of their own. The files are given in the tree's order.
//
// It fails with path_invalid for names that lead out of the root, through links or mounts, or where
// a folder and a file stand against each other; denied, disk_full, limit_exceeded (open files),
// transfer_failed, and with what the tree ends with. An error that is ErrCommitIncomplete is the
// one case in which something was written. The end of the context gives up until the journal is
// written; from then on the tree comes.
func WriteTree(ctx context.Context, root *os.File, tree dray.Tree,
	how dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	defer runtime.KeepAlive(root) // a file that nobody has any more is closed
	p := newPlacing(int(root.Fd()), how)
	defer p.close()
	if err := p.receive(ctx, tree); err != nil {
		return nil, err
	}
	if err := p.checkCaseCollisions(); err != nil {
		return nil, err
	}
	if !how.DryRun {
		if err := p.commit(ctx); err != nil {
			return nil, err
		}
	}
	return p.manifest(), nil
}

// ModeOf is the mode that a file of a tree gets.
func ModeOf(mode fs.FileMode, how dray.WriteTreeOptions) fs.FileMode {
	if how.Executable && mode&0o111 != 0 {
		return executableMode
	}
	return fileMode
}

// transaction is one tree that is being placed.
type transaction struct {
	resolver
	root     int
	how      dray.WriteTreeOptions
	items    []*item
	names    map[string]*item
	destDirs *dirCache   // at the destination
	stage    *stagingDir // made when there is something to write
	content  []byte      // a small file, or what is in flight of a large one
	compare  []byte      // of what is there
}

func newPlacing(root int, how dray.WriteTreeOptions) *transaction {
	w := newWalker()
	return &transaction{
		resolver: w, root: root, how: how, names: map[string]*item{}, destDirs: newFolders(w, root,
			maxCachedDirs),
		content: make([]byte, pieces*pieceSize), compare: make([]byte, pieceSize),
	}
}

func (p *transaction) close() {
	p.destDirs.close()
	if p.stage != nil {
		p.stage.close()
	}
}

func (p *transaction) receive(ctx context.Context, tree dray.Tree) error {
	for {
		if err := ended(ctx); err != nil {
			return err
		}
		e, err := tree.Next()
		// an end of anything else may be wrapped, as that of an agent is
		if err == io.EOF { //nolint:errorlint
			return nil
		}
		if err != nil {
			return opError("reading", "the tree", err)
		}
		if err := p.add(ctx, e, tree); err != nil {
			return opError("placing", e.Name, err)
		}
	}
}

func (p *transaction) add(ctx context.Context, e dray.TreeEntry, content io.Reader) error {
	if e.Refused != nil {
		return e.Refused
	}
	if err := checkName(e.Name); err != nil {
		return err
	}
	switch e.Type {
	case "directory":
		it, err := p.folderOf(e.Name)
		if err != nil {
			return err
		}
		if it.listed {
			return invalid(e.Name, "is in the tree twice")
		}
		it.listed = true
		return nil
	case "file":
		return p.file(ctx, e, content)
	default:
		return dray.Errorf(dray.CodePathInvalid, "%q is a %s, neither a file nor a folder", e.Name,
			e.Type)
	}
}

// folderOf gives a folder of the tree, and makes it with all that it lies in.
func (p *transaction) folderOf(name string) (*item, error) {
	if it := p.names[name]; it != nil {
		if !it.folder {
			return nil, invalid(name, "is a file and a folder in the tree")
		}
		return it, nil
	}
	it := &item{name: name, folder: true, mode: folderMode}
	if name == "" {
		it.found.kind = directory
		p.names[name] = it
		return it, nil
	}
	above, _ := split(name)
	parent, err := p.folderOf(above)
	if err != nil {
		return nil, err
	}
	if parent.found.kind == directory {
		if it.found.kind, err = p.statDir(name); err != nil {
			return nil, err
		}
	}
	if it.found.kind == absent && !p.how.DryRun {
		if err := p.makeFolder(name); err != nil {
			return nil, err
		}
	}
	p.names[name], p.items = it, append(p.items, it)
	return it, nil
}

func (p *transaction) statDir(name string) (kind, error) {
	_, err := p.destDirs.get(name)
	switch {
	case err == nil:
		return directory, nil
	case errors.Is(err, syscall.ENOENT):
		return absent, nil
	default:
		return absent, opError("opening the folder", name, err)
	}
}

func (p *transaction) file(ctx context.Context, e dray.TreeEntry, content io.Reader) error {
	if e.Offset != 0 || e.Size < 0 {
		return dray.Errorf(dray.CodeTransferFailed,
			"%q begins at byte %d of %d: only whole files are placed", e.Name, e.Offset, e.Size)
	}
	if p.names[e.Name] != nil {
		return invalid(e.Name, "is in the tree twice")
	}
	above, base := split(e.Name)
	parent, err := p.folderOf(above)
	if err != nil {
		return err
	}
	it := &item{name: e.Name, size: e.Size, mode: uint32(ModeOf(e.Mode, p.how))}
	if parent.found.kind == directory {
		if err := p.lookAt(ctx, it, above, base); err != nil {
			return err
		}
	}
	p.names[e.Name], p.items = it, append(p.items, it)
	if it.size <= int64(len(p.content)) {
		return p.writeSmall(it, content)
	}
	return p.writeLarge(ctx, it, content)
}

// lookAt says what is at a file's place, and reads it.
func (p *transaction) lookAt(ctx context.Context, it *item, above, base string) error {
	dir, err := p.destDirs.get(above)
	if err == nil {
		it.found, err = p.inspect(ctx, dir, base, nil, p.compare)
	}
	if err == nil && it.found.kind == directory {
		err = syscall.EISDIR
	}
	return opError("looking at", it.name, err)
}

// checkCaseCollisions finds two names of the tree that are one file at the destination, as a file
// system that folds case has them.
func (p *transaction) checkCaseCollisions() error {
	type id struct{ dev, ino uint64 }
	seen := map[id]*item{}
	for _, it := range p.items {
		if it.folder || it.found.kind == absent || it.found.stat.Nlink != 1 {
			continue
		}
		key := id{it.found.stat.Dev, it.found.stat.Ino}
		if twin := seen[key]; twin != nil {
			return dray.Errorf(dray.CodePathInvalid, "%q and %q are one file at the destination", twin.name,
				it.name)
		}
		seen[key] = it
	}
	return nil
}

func (p *transaction) manifest() []dray.WrittenFile {
	var list []dray.WrittenFile
	for _, it := range p.items {
		if it.folder {
			continue
		}
		placed := dray.WrittenFile{
			Name: it.name, Size: it.size, SHA256: hex.EncodeToString(it.sum[:]),
			Mode: fs.FileMode(it.mode), Action: dray.FileReplaced,
		}
		switch {
		case it.found.unchanged(it):
			placed.Action = dray.FileUnchanged
		case it.found.kind == absent:
			placed.Action = dray.FileCreated
		}
		if it.found.kind == regular {
			placed.SHA256Before = hex.EncodeToString(it.found.sum[:])
		}
		list = append(list, placed)
	}
	return list
}

type kind int

const (
	absent kind = iota
	regular
	directory
	other // a link, a device, a FIFO, a socket: replaced, never opened
)

type digest [sha256.Size]byte

// fileState is what lies at the end of a name.
type fileState struct {
	kind kind
	stat syscall.Stat_t
	sum  digest // of a regular file
}

// unchanged says that a file is what it would be replaced by. One that has another owner or another
// name elsewhere is not: its content could change behind that name.
func (f *fileState) unchanged(it *item) bool {
	return f.kind == regular && f.stat.Size == it.size && f.sum == it.sum &&
		f.stat.Mode&0o7777 == it.mode &&
		f.stat.Nlink == 1 && int(f.stat.Uid) == syscall.Geteuid()
}

// sameAs says that a file was not touched between two looks.
func (f *fileState) sameAs(g *fileState) bool {
	a, b := &f.stat, &g.stat
	return f.kind == g.kind && a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size &&
		a.Mode == b.Mode && a.Nlink == b.Nlink && a.Uid == b.Uid &&
		a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// inspect says what lies at a name in a folder. The digest of a file is that of known if it is the
// same file, untouched; else it is read.
func (w resolver) inspect(ctx context.Context, dir int, base string, known *fileState,
	buf []byte,
) (fileState, error) {
	fd, err := w.open(dir, base, oPath)
	if errors.Is(err, syscall.ENOENT) {
		return fileState{}, nil
	}
	if err != nil {
		return fileState{}, err
	}
	defer func() { _ = syscall.Close(fd) }()
	var f fileState
	if err := syscall.Fstat(fd, &f.stat); err != nil {
		return fileState{}, err
	}
	switch f.stat.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		f.kind = regular
	case syscall.S_IFDIR:
		f.kind = directory
	default:
		f.kind = other
	}
	switch {
	case f.kind == regular && known != nil && f.sameAs(known):
		f.sum = known.sum
	case f.kind == regular:
		f.sum, err = sumOf(ctx, fd, buf)
	}
	return f, err
}

// sumOf reads the file that an O_PATH descriptor holds.
func sumOf(ctx context.Context, fd int, buf []byte) (sum digest, err error) {
	file, err := reopen(fd)
	if err != nil {
		return sum, err
	}
	defer func() { _ = syscall.Close(file) }()
	h := sha256.New()
	for {
		n, err := read(file, buf)
		if err != nil {
			return sum, err
		}
		if n == 0 {
			return total(h), nil
		}
		_, _ = h.Write(buf[:n])
		if err := ended(ctx); err != nil {
			return sum, err
		}
	}
}

func total(h hash.Hash) (sum digest) {
	h.Sum(sum[:0])
	return sum
}

func read(fd int, buf []byte) (n int, err error) {
	err = retryEINTR(func() error {
		n, err = syscall.Read(fd, buf)
		return err
	})
	return n, err
}
