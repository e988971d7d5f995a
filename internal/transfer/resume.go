package transfer

import (
	"context"
	"errors"
	"io"
	"maps"
	"time"

	"github.com/dray-dev/dray"
)

// maxAttemptsPerTree is how often a tree is opened at most: once, and again after it broke off.
const maxAttemptsPerTree = 3

// openTreeFunc opens a tree that leaves out what is held already.
type openTreeFunc func(held map[string]dray.PartialFile) (dray.Tree, error)

// resumableTree is a tree that goes on when the one below it breaks off: that is opened again
// without what came already, and read from the very byte at which it stopped, so that whoever reads
// never notices. A file that changed meanwhile ends it with transfer_failed, because what came
// would be no content that the file ever had.
type resumableTree struct {
	// a tree is one operation, which its reader cannot pass a context to
	ctx          context.Context //nolint:containedctx
	open         openTreeFunc
	tree         dray.Tree
	attemptsLeft int // attempts

	// all entries that came, with how much of the last one did; folders hold nothing
	seen map[string]dray.PartialFile
	last string
	size int64
	// repeated counts the entries of the present tree that came in an earlier one too, before is how
	// many there were.
	repeated, before int
}

func newResuming(ctx context.Context, open openTreeFunc) (*resumableTree, error) {
	r := &resumableTree{
		ctx: ctx, open: open, attemptsLeft: maxAttemptsPerTree,
		seen: map[string]dray.PartialFile{},
	}
	for {
		err := r.reopen()
		if err == nil || !r.again(err) {
			return r, err
		}
	}
}

// reopen opens the tree without what came.
func (r *resumableTree) reopen() error {
	r.attemptsLeft--
	if r.tree != nil {
		_ = r.tree.Close() // it is broken
		r.tree = nil
	}
	held := maps.Clone(r.seen)
	maps.DeleteFunc(held, func(_ string, h dray.PartialFile) bool { return h.Version == "" })
	tree, err := r.open(held)
	if err != nil {
		return err
	}
	r.tree, r.repeated, r.before = tree, 0, len(r.seen)
	return nil
}

// pause is how long after the first loss the tree is opened again; after the second it is four
// times that. What was lost is noticed everywhere by then, and a new agent has a moment to start.
const pause = 250 * time.Millisecond

// again says that an error is one after which the tree may be opened again, and waits until it is
// time to.
func (r *resumableTree) again(err error) bool {
	code := dray.CodeOf(err)
	lost := code == dray.CodeAgentLost || code == dray.CodeTransferFailed &&
		!errors.Is(err, errFileChanged)
	if !lost || r.attemptsLeft <= 0 {
		return false
	}
	wait := time.NewTimer(pause << (2 * (maxAttemptsPerTree - 1 - r.attemptsLeft)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// Next goes to the next entry that did not come yet.
func (r *resumableTree) Next() (dray.TreeEntry, error) {
	r.passed()
	for {
		e, err := r.step()
		switch {
		case atEnd(err) && r.repeated < r.before:
			return dray.TreeEntry{}, changed("what was there is gone")
		case atEnd(err):
			return dray.TreeEntry{}, io.EOF
		case err != nil:
			if err := r.reopenAfter(err); err != nil {
				return dray.TreeEntry{}, err
			}
			continue
		}
		if old, came := r.seen[e.Name]; came {
			if err := r.same(e, old); err != nil {
				return dray.TreeEntry{}, err
			}
			continue
		}
		r.last, r.size = e.Name, e.Size
		r.seen[e.Name] = dray.PartialFile{Version: e.Version}
		return e, nil
	}
}

func (r *resumableTree) step() (dray.TreeEntry, error) {
	if r.tree == nil {
		return dray.TreeEntry{}, dray.Errorf(dray.CodeTransferFailed, "the transfer broke off")
	}
	return r.tree.Next()
}

// passed counts the last entry as had, whether it was read or passed over.
func (r *resumableTree) passed() {
	if h, ok := r.seen[r.last]; ok && h.Version != "" {
		r.seen[r.last] = dray.PartialFile{Version: h.Version, Bytes: r.size}
	}
}

// reopenAfter opens the tree again after an error, and gives the error where it does not help.
func (r *resumableTree) reopenAfter(err error) error {
	for r.again(err) {
		if err = r.reopen(); err == nil {
			return nil
		}
	}
	return err
}

// same says that an entry is the one that came.
func (r *resumableTree) same(e dray.TreeEntry, old dray.PartialFile) error {
	r.repeated++
	if e.Version != old.Version {
		return changed("%s has another content by now", quote(e.Name))
	}
	return nil
}

// Read reads the current file, in as many trees as it takes.
func (r *resumableTree) Read(p []byte) (int, error) {
	for {
		if r.tree == nil {
			return 0, dray.Errorf(dray.CodeTransferFailed, "the transfer broke off")
		}
		n, err := r.tree.Read(p)
		h := r.seen[r.last]
		r.seen[r.last] = dray.PartialFile{Version: h.Version, Bytes: h.Bytes + int64(n)}
		if err == nil || atEnd(err) || n > 0 {
			return n, ignore(err, n)
		}
		if err := r.seekToOffset(err); err != nil {
			return 0, err
		}
	}
}

// ignore leaves an error that came with bytes to the next read, but for the end.
func ignore(err error, n int) error {
	if n > 0 && !atEnd(err) {
		return nil
	}
	return err
}

// seekToOffset brings a new tree to the byte where the old one broke off.
func (r *resumableTree) seekToOffset(err error) error {
	for {
		if err := r.reopenAfter(err); err != nil {
			return err
		}
		if err = r.find(); err == nil {
			return nil
		}
		if errors.Is(err, errFileChanged) {
			return err
		}
	}
}

func (r *resumableTree) find() error {
	for {
		e, err := r.tree.Next()
		if atEnd(err) {
			return changed("%s is gone", quote(r.last))
		}
		if err != nil {
			return err
		}
		old, came := r.seen[e.Name]
		if !came {
			return changed("%s has come meanwhile", quote(e.Name))
		}
		if err := r.same(e, old); err != nil {
			return err
		}
		if e.Name != r.last {
			continue
		}
		if e.Offset != old.Bytes || e.Size != r.size {
			return changed("%s has another length by now", quote(e.Name))
		}
		return nil
	}
}

// Close closes the tree that is open.
func (r *resumableTree) Close() error {
	if r.tree == nil {
		return nil
	}
	return r.tree.Close()
}

var errFileChanged = errors.New("the files changed while they were moved")

func changed(format string, args ...any) error {
	return dray.Errorf(dray.CodeTransferFailed, "%w: "+format,
		append([]any{errFileChanged}, args...)...).
		WithHint("repeat it when nothing writes there any more")
}
