package stage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// A journal lists the content of a staging directory. Each name beneath its tree is the name
// beneath the root. The format is
//
//	header, stamp, { kind, name, for files: size, SHA-256 } ..., SHA-256 of all before
//
// Records of what is expected before the commit, and then of what it removes, follow those of the
// tree.
// Integers are uvarints, and a name follows its length. A journal that is truncated or modified is
// invalid.
const (
	journalHeader = "dray stage journal 1\n"
	maxJournal    = 64 << 20 // bytes
)

const (
	kindExistingDir byte = 'd'
	kindNewDir      byte = 'n'
	kindFile        byte = 'f'
	kindExec        byte = 'x'

	kindExpectAbsent byte = 'A'
	kindExpectDir    byte = 'D'
	kindExpectFile   byte = 'F' // followed by the SHA-256
	kindRemoved      byte = 'R'
)

type journal struct {
	stamp    time.Time // of the commit; incomplete commits are completed in this order
	items    []*item
	expected []expectedName
	removed  []string
}

type expectedName struct {
	name string
	expectation
}

// journal returns the journal of a planned commit.
func (t *transaction) journal() journal {
	j := journal{stamp: time.Now()}
	for _, it := range t.items {
		if it.dir || it.staged {
			j.items = append(j.items, it)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.expected)) {
		j.expected = append(j.expected, expectedName{name, t.expected[name]})
	}
	for _, r := range t.removals {
		j.removed = append(j.removed, r.name)
	}
	return j
}

var errBadJournal = errors.New("invalid journal")

func (j journal) encode() ([]byte, error) {
	b := binary.AppendUvarint([]byte(journalHeader), uint64(j.stamp.UnixNano()))
	for _, it := range j.items {
		b = appendRecord(b, it.journalKind(), it.name)
		if !it.dir {
			b = binary.AppendUvarint(b, uint64(it.size)) //nolint:gosec // not negative
			b = append(b, it.sum[:]...)
		}
	}
	for _, e := range j.expected {
		b = appendRecord(b, e.journalKind(), e.name)
		if e.kind == regular {
			b = append(b, e.sum[:]...)
		}
	}
	for _, name := range j.removed {
		b = appendRecord(b, kindRemoved, name)
	}
	sum := sha256.Sum256(b)
	if b = append(b, sum[:]...); len(b) > maxJournal {
		return nil, dray.Errorf(dray.CodeLimitExceeded,
			"the names of the tree need a journal of %d bytes (maximum %d)", len(b), maxJournal).
			WithHint("write the tree in parts")
	}
	return b, nil
}

func appendRecord(b []byte, kind byte, name string) []byte {
	return append(binary.AppendUvarint(append(b, kind), uint64(len(name))), name...)
}

func (e expectation) journalKind() byte {
	switch e.kind {
	case regular:
		return kindExpectFile
	case directory:
		return kindExpectDir
	default:
		return kindExpectAbsent
	}
}

func (it *item) journalKind() byte {
	switch {
	case it.dir && it.existing.kind == directory:
		return kindExistingDir
	case it.dir:
		return kindNewDir
	case it.mode == executableMode:
		return kindExec
	default:
		return kindFile
	}
}

func decodeJournal(b []byte) (journal, error) {
	if len(b) < len(journalHeader)+sha256.Size || !bytes.HasPrefix(b, []byte(journalHeader)) {
		return journal{}, errBadJournal
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(want[:], sum) {
		return journal{}, errBadJournal
	}
	d := &decoder{rest: body[len(journalHeader):]}
	j := journal{stamp: time.Unix(0, int64(d.number()))} //nolint:gosec // any order is valid
	for d.err == nil && len(d.rest) > 0 {
		d.record(&j)
	}
	return j, d.err
}

// decoder decodes a journal. It validates all fields: the digest proves that the journal is
// complete, not who wrote it.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.err, d.rest = errBadJournal, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.err, d.rest = errBadJournal, nil
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// record appends one record to a journal.
func (d *decoder) record(j *journal) {
	kind := d.rest[0]
	d.rest = d.rest[1:]
	name := string(d.bytes(d.number()))
	if err := checkName(name); err != nil && d.err == nil {
		d.err = err
	}
	switch kind {
	case kindRemoved:
		j.removed = append(j.removed, name)
	case kindExpectAbsent:
		j.expected = append(j.expected, expectedName{name: name})
	case kindExpectDir:
		j.expected = append(j.expected, expectedName{name, expectation{kind: directory}})
	case kindExpectFile:
		e := expectation{kind: regular}
		copy(e.sum[:], d.bytes(sha256.Size))
		j.expected = append(j.expected, expectedName{name, e})
	default:
		j.items = append(j.items, d.item(kind, name))
	}
}

func (d *decoder) item(kind byte, name string) *item {
	it := &item{name: name, mode: fileMode}
	switch kind {
	case kindExistingDir:
		it.dir, it.mode, it.existing.kind = true, dirMode, directory
	case kindNewDir:
		it.dir, it.mode = true, dirMode
	case kindExec:
		it.mode = executableMode
	case kindFile:
	default:
		d.err = errBadJournal
	}
	if !it.dir {
		it.size = int64(d.number() & (1<<63 - 1))
		copy(it.sum[:], d.bytes(sha256.Size))
	}
	return it
}

// maxRecoverWait bounds the wait of a recovery for the lock of its root. Commits hold it briefly.
// Any process that can open the directory, such as a tool in a container that mounts it, can hold
// it for ever, and must not prevent the daemon from starting.
const maxRecoverWait = 5 * time.Second

// Recover cleans up beneath a root after processes that died: it completes staging directories with
// a complete journal and removes the others. It leaves those that are locked or accessible to other
// users. It returns how many it completed. Those that it cannot complete stay, and the error names
// them; it processes the others all the same. Of how only RefuseRepositories counts.
func Recover(ctx context.Context, root *os.File, how dray.WriteTreeOptions,
) (completed int, err error) {
	defer runtime.KeepAlive(root)
	fd := int(root.Fd())
	wait, cancel := context.WithTimeout(ctx, maxRecoverWait)
	lock, err := lockRoot(wait, fd)
	cancel()
	if errors.Is(err, ErrLocked) && ctx.Err() == nil {
		err = dray.Errorf(dray.CodeTransferFailed, "%w", ErrLocked).
			WithHint("end that process (lsof shows it); the next sync to this root recovers it")
	}
	if err != nil {
		return 0, err
	}
	defer linux.Close(lock)
	return recoverAll(ctx, newResolver(), fd, how)
}

// recoverAll is Recover with the root locked.
func recoverAll(ctx context.Context, r resolver, root int, how dray.WriteTreeOptions,
) (completed int, err error) {
	stale, err := findStale(r, root)
	for _, s := range stale {
		failed := s.resolve(ctx, how)
		if failed == nil {
			completed++
		}
		err = errors.Join(err, failed)
	}
	return completed, err
}

// staleDir is a staging directory of a process that died during its commit, now locked by this one.
type staleDir struct {
	*stagingDir
	journal *journal
}

// findStale returns the staging directories with a journal, the oldest commit first. It removes
// those without.
func findStale(r resolver, root int) ([]staleDir, error) {
	names, err := list(root)
	if err != nil {
		return nil, opError("read", ".", err)
	}
	var stale []staleDir
	for _, name := range names {
		if !strings.HasPrefix(name, Prefix) || !isPrivateDir(r, root, name) {
			continue
		}
		s, err := lockStagingDir(r, root, name)
		if err != nil || s == nil {
			continue
		}
		if j := s.readJournal(); j != nil {
			stale = append(stale, staleDir{s, j})
		} else {
			s.close()
		}
	}
	slices.SortStableFunc(stale, func(a, b staleDir) int {
		return a.journal.stamp.Compare(b.journal.stamp)
	})
	return stale, nil
}

// isPrivateDir reports whether only this user can have written to a directory.
func isPrivateDir(r resolver, root int, name string) bool {
	var st unix.Stat_t
	err := r.stat(root, name, &st)
	return err == nil && isDir(&st) && int(st.Uid) == unix.Geteuid() && st.Mode&0o077 == 0
}

// readJournal returns nil if there is no valid journal.
func (s *stagingDir) readJournal() *journal {
	fd, err := s.open(s.dir, journalName, unix.O_RDONLY)
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

// resolve completes a commit and removes its staging directory, which stays after an error.
func (s staleDir) resolve(ctx context.Context, how dray.WriteTreeOptions) error {
	defer s.close()
	s.keep = true
	err := s.complete(ctx, how)
	s.keep = err != nil
	if dray.CodeOf(err) == dray.CodeConflict {
		err = dray.Errorf(dray.CodeConflict, "complete an interrupted write: %w", err).
			WithHint("give the file the content that it had, and the next start or write completes it; or "+
				"remove the directory %s to keep all files as they are", s.name)
	}
	return err
}

// complete does the rest of a commit. The commit and earlier recoveries may have done parts of it.
func (s staleDir) complete(ctx context.Context, how dray.WriteTreeOptions) error {
	if err := s.openTree(); err != nil {
		return opError("open", s.name, err)
	}
	t := newTransaction(s.root, how)
	t.staging, t.recovering, t.done = s.stagingDir, true, map[string]*item{}
	defer t.destDirs.close()
	t.byName[""] = &item{dir: true, existing: fileState{kind: directory}}
	if len(s.journal.expected) > 0 {
		t.expected, t.removed = map[string]expectation{}, map[string]*removal{}
	}
	for _, e := range s.journal.expected {
		t.expected[e.name] = e.expectation
	}
	for _, name := range s.journal.removed {
		if err := t.remove(name); err != nil {
			return err
		}
	}
	for _, it := range s.journal.items {
		if err := t.resumeItem(ctx, it); err != nil {
			return opError("inspect", it.name, err)
		}
	}
	set := newRenameSet(s.resolver, s.root)
	defer set.close()
	if err := t.plan(ctx, set); err != nil {
		return err
	}
	if done, err := set.apply(); err != nil {
		if set.strict {
			err = errors.Join(err, set.undo(done))
		}
		return err
	}
	set.removeEmptied()
	return opError("sync", ".", syncfs(s.root))
}

// resumeItem adds an item that is still in the staging directory as it was staged. An item that is
// not there was renamed, and its name there may be that of the file that it replaced. If an
// existing directory was removed at the destination, its items are not written.
func (t *transaction) resumeItem(ctx context.Context, it *item) error {
	above, base := split(it.name)
	if it.dir && t.byName[it.name] != nil || t.byName[above] == nil {
		return nil
	}
	if it.dir && it.existing.kind == directory {
		now, err := t.statDir(it.name)
		if err == nil && now == directory {
			t.byName[it.name] = it
		}
		return err
	}
	dir, err := t.staging.tree.get(above)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := t.inspect(ctx, dir, base, nil, t.compare)
	if err != nil {
		return err
	}
	if it.dir && now.kind == directory || !it.dir && now.kind == regular && now.sum == it.sum &&
		now.stat.Size == it.size {
		it.staged = true
		t.byName[it.name], t.items = it, append(t.items, it)
		return nil
	}
	t.done[it.name] = it
	return t.giveBack(ctx, it, dir, &now)
}

// giveBack compares what an interrupted commit replaced by an item: the commit may have ended
// before it compared that. If it was not expected, giveBack exchanges both
// again, unless the destination was changed since.
func (t *transaction) giveBack(ctx context.Context, it *item, dir int, was *fileState) error {
	want := t.expected[it.name]
	if want.kind == absent || was.kind == absent {
		return nil
	}
	changed := want.check(it.name, was)
	if changed == nil {
		return nil
	}
	above, base := split(it.name)
	to, err := t.destDirs.get(above)
	if err != nil {
		return errors.Join(changed, err)
	}
	now, err := t.inspect(ctx, to, base, nil, t.compare)
	if err == nil && (it.dir && now.kind == directory ||
		!it.dir && now.kind == regular && now.sum == it.sum) {
		err = rename(dir, to, base, unix.RENAME_EXCHANGE)
	}
	return errors.Join(changed, err)
}
