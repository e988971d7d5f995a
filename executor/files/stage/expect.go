package stage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// expectation is what must be at a name until the commit. The zero value expects nothing there.
type expectation struct {
	kind kind // absent, regular or directory
	sum  digest
}

func parseExpectation(text string) (expectation, error) {
	switch text {
	case dray.ExpectAbsent:
		return expectation{}, nil
	case dray.ExpectDirectory:
		return expectation{kind: directory}, nil
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(digest{}) {
		return expectation{}, fmt.Errorf("%q is not a SHA-256", text)
	}
	return expectation{regular, digest(b)}, nil
}

func (e expectation) String() string {
	switch e.kind {
	case absent:
		return "nothing"
	case directory:
		return "a directory"
	default:
		return "a file with the SHA-256 " + hex.EncodeToString(e.sum[:])
	}
}

func (e expectation) matches(f *fileState) bool {
	return f.kind == e.kind && (f.kind != regular || f.sum == e.sum)
}

// check fails with conflict if a name does not have what is expected.
func (e expectation) check(name string, f *fileState) error {
	switch {
	case e.matches(f):
		return nil
	case f.kind == other:
		return conflict(name, fmt.Sprintf("it is neither a file nor a directory, expected was %s", e))
	default:
		return conflict(name, fmt.Sprintf("it is %s, expected was %s",
			expectation{f.kind, f.sum}, e))
	}
}

// conflict returns the error for a name that does not have what is expected.
func conflict(name, why string) *dray.Error {
	return dray.Errorf(dray.CodeConflict, "%q was changed meanwhile: %s", name, why).
		WithHint(conflictHint)
}

const conflictHint = "nothing was written; read the files again, then repeat the write"

// conflictOf returns a conflict for an error that means that a name, or a parent of it, is not what
// was expected. It returns any other error unchanged.
func conflictOf(name string, err error) error {
	for _, errno := range []unix.Errno{
		unix.ENOENT, unix.EEXIST, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENOTEMPTY,
	} {
		if errors.Is(err, errno) {
			return conflict(name, errno.Error())
		}
	}
	return err
}

// setExpectations validates the options Remove and Expect and sets expected and removed.
func (t *transaction) setExpectations() error {
	if t.how.Expect == nil && len(t.how.Remove) == 0 {
		return nil
	}
	if t.how.DryRun {
		return dray.Errorf(dray.CodeUnsupported, "a dry run cannot remove or compare files")
	}
	t.expected, t.removed = map[string]expectation{}, map[string]*removal{}
	for _, name := range slices.Sorted(maps.Keys(t.how.Expect)) {
		if err := checkName(name); err != nil {
			return err
		}
		e, err := parseExpectation(t.how.Expect[name])
		if err != nil {
			return invalid(name, fmt.Sprintf("has an invalid expectation: %v", err))
		}
		t.expected[name] = e
	}
	for _, name := range t.how.Remove {
		if err := t.remove(name); err != nil {
			return err
		}
	}
	return t.checkRemovals()
}

func (t *transaction) remove(name string) error {
	want, ok := t.expected[name]
	switch {
	case !ok || want.kind == absent:
		return invalid(name, "is removed, but no file or directory is expected there")
	case t.removed[name] != nil:
		return invalid(name, "is removed twice")
	}
	r := &removal{name: name, want: want, pos: len(t.removals)}
	t.removed[name], t.removals = r, append(t.removals, r)
	return nil
}

// checkRemovals fails if something is removed from what is expected to be a file.
func (t *transaction) checkRemovals() error {
	for _, r := range t.removals {
		above, _ := split(r.name)
		if parent, ok := t.expected[above]; ok && parent.kind != directory {
			return invalid(r.name, "is removed, but its parent is expected not to be a directory")
		}
	}
	return nil
}

// strict reports whether the names have expectations.
func (t *transaction) strict() bool { return t.expected != nil }

// asConflict returns an error about the destination as a conflict, if names have expectations.
func (t *transaction) asConflict(name string, err error) error {
	if err != nil && t.strict() {
		return conflictOf(name, err)
	}
	return err
}

// checkExpected compares what an item is to replace. A recovery may find the item itself there.
func (t *transaction) checkExpected(it *item) error {
	want, ok := t.expected[it.name]
	there := it.existing.unchanged(it) || it.dir && it.existing.kind == directory
	if !ok || t.recovering && there {
		return nil
	}
	return want.check(it.name, &it.existing)
}

// isReplaced reports whether something of the given kind is removed where the tree has something
// else.
func (t *transaction) isReplaced(name string, k kind) bool {
	r := t.removed[name]
	return r != nil && r.want.kind == k
}

// checkExpectations fails if a name has no expectation, or an expectation that contradicts the
// tree. It is called when the whole tree is known.
func (t *transaction) checkExpectations() error {
	if !t.strict() {
		return nil
	}
	for _, it := range t.items {
		want, ok := t.expected[it.name]
		r := t.removed[it.name]
		switch {
		case !ok && (!it.dir || it.listed):
			return invalid(it.name, "has no expectation")
		case r != nil && it.dir == (r.want.kind == directory):
			return invalid(it.name, "is in the tree and removed")
		case r == nil && !it.dir && want.kind == directory, r == nil && it.dir && want.kind == regular:
			return invalid(it.name, "replaces something of another kind that is not removed")
		}
	}
	for name := range t.expected {
		if t.byName[name] == nil && t.removed[name] == nil {
			return invalid(name, "has an expectation, and is neither written nor removed")
		}
	}
	return nil
}

// verifyAside fails with conflict if what a rename has just moved to the staging directory is not
// what is expected, or is open for writing. As no name outside leads to it any more, it stays as it
// is then, unless it has another hard link.
func (r resolver) verifyAside(name string, dir int, base string, want expectation, buf []byte,
) error {
	if want.kind == regular {
		if err := r.checkNoWriter(name, dir, base); err != nil {
			return err
		}
	}
	// the write is decided, so no context ends it
	got, err := r.inspect(context.Background(), dir, base, nil, buf)
	if err != nil {
		return opError("inspect", name, err)
	}
	return want.check(name, &got)
}

// checkNoWriter fails with conflict if a process has a file open for writing: what it writes would
// be lost. The kernel grants a read lease only if no process has. Some file systems have no leases,
// and other users' files get none.
func (r resolver) checkNoWriter(name string, dir int, base string) error {
	fd, err := r.open(dir, base, unix.O_PATH)
	if err != nil {
		return opError("open", name, err)
	}
	defer linux.Close(fd)
	var st unix.Stat_t
	if err := linux.Stat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return err
	}
	file, err := linux.Reopen(fd, unix.O_RDONLY)
	if err != nil {
		return opError("open", name, err)
	}
	defer linux.Close(file) // ends the lease
	_, err = linux.RetryValue(func() (int, error) {
		return unix.FcntlInt(uintptr(file), unix.F_SETLEASE, unix.F_RDLCK)
	})
	if errors.Is(err, unix.EAGAIN) {
		return conflict(name, "a process has it open for writing")
	}
	return nil
}
