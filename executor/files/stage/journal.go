package stage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// A journal says what a stage folder holds and where it goes: each name beneath its tree is the
// name beneath the root. It is
//
//	header, stamp, { kind, name, for files: size, SHA-256 } ..., SHA-256 of all before
//
// with integers as uvarints and names after their length. A journal that is cut or altered is none.
const (
	journalHeader = "dray stage journal 1\n"
	maxJournal    = 64 << 20 // bytes
)

const (
	kindThere byte = 'd' // a folder that the destination had
	kindNew   byte = 'n' // one that it had not
	kindFile  byte = 'f'
	kindExec  byte = 'x'
)

type journal struct {
	stamp time.Time // of the commit, so that several are finished in their order
	items []*item
}

var errNoJournal = errors.New("not a whole journal")

func (j journal) encode() ([]byte, error) {
	b := []byte(journalHeader)
	b = binary.AppendUvarint(b, uint64(j.stamp.UnixNano()))
	for _, it := range j.items {
		switch {
		case it.folder && it.found.kind == directory:
			b = appendName(append(b, kindThere), it.name)
			continue
		case it.folder:
			b = appendName(append(b, kindNew), it.name)
			continue
		case it.mode == executableMode:
			b = append(b, kindExec)
		default:
			b = append(b, kindFile)
		}
		// sizes are not negative
		b = binary.AppendUvarint(appendName(b, it.name), uint64(it.size)) //nolint:gosec
		b = append(b, it.sum[:]...)
	}
	sum := sha256.Sum256(b)
	if b = append(b, sum[:]...); len(b) > maxJournal {
		return nil, dray.Errorf(dray.CodeLimitExceeded,
			"the names of the tree make a journal of %d bytes, at most %d are allowed", len(b), maxJournal).
			WithHint("place it in parts")
	}
	return b, nil
}

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

func decodeJournal(b []byte) (journal, error) {
	if len(b) < len(journalHeader)+sha256.Size || !bytes.HasPrefix(b, []byte(journalHeader)) {
		return journal{}, errNoJournal
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if have := sha256.Sum256(body); !bytes.Equal(have[:], sum) {
		return journal{}, errNoJournal
	}
	r := &scanner{rest: body[len(journalHeader):]}
	j := journal{stamp: time.Unix(0, int64(r.number()))} //nolint:gosec // an order, whatever it is
	for r.err == nil && len(r.rest) > 0 {
		j.items = append(j.items, r.item())
	}
	return j, r.err
}

// scanner reads a journal. It trusts nothing: the digest proves that it is whole, not who wrote it.
type scanner struct {
	rest []byte
	err  error
}

func (r *scanner) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.err, r.rest = errNoJournal, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *scanner) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.err, r.rest = errNoJournal, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *scanner) item() *item {
	kind := r.rest[0]
	r.rest = r.rest[1:]
	it := &item{name: string(r.bytes(r.number())), mode: fileMode}
	switch kind {
	case kindThere:
		it.folder, it.mode, it.found.kind = true, folderMode, directory
	case kindNew:
		it.folder, it.mode = true, folderMode
	case kindExec:
		it.mode = executableMode
	case kindFile:
	default:
		r.err = errNoJournal
	}
	if err := checkName(it.name); err != nil && r.err == nil {
		r.err = err
	}
	if !it.folder {
		it.size = int64(r.number() & (1<<63 - 1))
		copy(it.sum[:], r.bytes(sha256.Size))
	}
	return it
}

// maxRecoverWait is how long a recovery waits for the lock of its root. Commits hold it for
// moments; who can open the folder, such as a tool in a container that shows it, can hold it for
// ever, and must not keep a daemon from starting.
const maxRecoverWait = 5 * time.Second

// Recover puts a root in order after processes that died beneath it: a stage folder with a whole
// journal is finished, the others are removed, and those that somebody holds, or that are not this
// user's alone, are left. It gives how many were finished. What cannot be finished stays, and is
// told in the error, whatever else was done.
func Recover(ctx context.Context, root *os.File) (finished int, err error) {
	defer runtime.KeepAlive(root)
	fd := int(root.Fd())
	wait, cancel := context.WithTimeout(ctx, maxRecoverWait)
	lock, err := lockRoot(wait, fd)
	cancel()
	if errors.Is(err, ErrLocked) && ctx.Err() == nil {
		err = dray.Errorf(dray.CodeTransferFailed, "%w", ErrLocked).
			WithHint("end that process (lsof shows it); the next sync to this root puts it in order")
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = syscall.Close(lock) }()
	return recoverAll(ctx, newWalker(), fd)
}

// recoverAll is Recover under the root's lock.
func recoverAll(ctx context.Context, w resolver, root int) (finished int, err error) {
	left, err := abandoned(w, root)
	for _, a := range left {
		did, failed := a.resolve(ctx)
		if did {
			finished++
		}
		err = errors.Join(err, failed)
	}
	return finished, err
}

// staleDir is a stage folder that nobody held, and its journal, if it has a whole one.
type staleDir struct {
	*stagingDir
	journal *journal
}

// abandoned gives the stage folders that nobody holds, the oldest commit first.
func abandoned(w resolver, root int) ([]staleDir, error) {
	names, err := list(root)
	if err != nil {
		return nil, opError("reading", ".", err)
	}
	var left []staleDir
	for _, name := range names {
		if !strings.HasPrefix(name, Prefix) || !isPrivateDir(w, root, name) {
			continue
		}
		s, err := lockStagingDir(w, root, name)
		if err != nil || s == nil {
			continue // in use, or gone
		}
		left = append(left, staleDir{s, s.readJournal()})
	}
	slices.SortStableFunc(left, func(a, b staleDir) int {
		if a.journal == nil || b.journal == nil {
			return cmp.Compare(boolean(a.journal != nil), boolean(b.journal != nil))
		}
		return a.journal.stamp.Compare(b.journal.stamp)
	})
	return left, nil
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// isPrivateDir says that a name is a folder that this user alone may have put something into.
func isPrivateDir(w resolver, root int, name string) bool {
	fd, err := w.folder(root, name)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(fd) }()
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && int(st.Uid) == syscall.Geteuid() && st.Mode&0o077 == 0
}

// readJournal gives the journal, or nil if there is no whole one.
func (s *stagingDir) readJournal() *journal {
	fd, err := s.open(s.dir, journalName, syscall.O_RDONLY)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), journalName)
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxJournal {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return nil
	}
	j, err := decodeJournal(b)
	if err != nil {
		return nil
	}
	return &j
}

// resolve finishes or removes a stage folder.
func (l staleDir) resolve(ctx context.Context) (finished bool, err error) {
	defer l.close()
	if l.journal == nil {
		return false, nil
	}
	l.keep = true
	if err := l.finish(ctx); err != nil {
		return false, err
	}
	l.keep = false
	return true, nil
}

// finish does what is still to be done of a journal. It may have been begun, and that may have been
// recovered in part.
func (l staleDir) finish(ctx context.Context) error {
	if err := l.openTree(); err != nil {
		return opError("opening", l.name, err)
	}
	p := &transaction{
		resolver: l.resolver, root: l.root, stage: l.stagingDir,
		destDirs: newFolders(l.resolver, l.root, maxCachedDirs), compare: make([]byte, pieceSize),
	}
	defer p.destDirs.close()
	p.names = map[string]*item{"": {folder: true, found: fileState{kind: directory}}}
	for _, it := range l.journal.items {
		if err := p.resumeItem(ctx, it); err != nil {
			return opError("looking for", it.name, err)
		}
	}
	m := newMoves(l.resolver, l.root, l.stagingDir)
	defer m.close()
	if err := p.plan(ctx, m); err != nil {
		return err
	}
	if _, err := m.forth(); err != nil {
		return err
	}
	return opError("writing", ".", syncfs(l.root))
}

// resumeItem takes up an item that still lies in the stage folder as it was staged. One that is not
// there was moved, and what replaced it there is what it had replaced. A folder that the
// destination had and has no more took with it what should come into it.
func (p *transaction) resumeItem(ctx context.Context, it *item) error {
	above, base := split(it.name)
	if it.folder && p.names[it.name] != nil || p.names[above] == nil {
		return nil
	}
	if it.folder && it.found.kind == directory {
		there, err := p.statDir(it.name)
		if err == nil && there == directory {
			p.names[it.name] = it
		}
		return err
	}
	dir, err := p.stage.made.get(above)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := p.inspect(ctx, dir, base, nil, p.compare)
	if err != nil {
		return err
	}
	if it.folder && now.kind == directory || !it.folder && now.kind == regular && now.sum == it.sum &&
		now.stat.Size == it.size {
		it.staged = true
		p.names[it.name], p.items = it, append(p.items, it)
	}
	return nil
}
