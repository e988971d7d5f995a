package audit

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray/audit/proof"
)

// verifyBatch is the number of events that are compared with the projection at a time.
const verifyBatch = 2048

const selectEvents = `SELECT ` + eventColumns + ` FROM main.events
	WHERE seq > ? ORDER BY seq LIMIT ?`

// checkEvents reads all events in order.
func (v *verifier) checkEvents(ctx context.Context) (err error) {
	if err := v.db.QueryRowContext(ctx, lastSeq).Scan(&v.total); err != nil {
		return err
	}
	v.compareRoots() // those of an empty log
	if v.replay, err = newReplay(ctx, v); err != nil {
		return err
	}
	for done := int64(0); done < v.total; {
		batch, err := v.readBatch(ctx, done)
		if err != nil {
			return err
		}
		for _, e := range batch {
			if err := v.checkEvent(ctx, e); err != nil {
				return err
			}
		}
		last := v.total
		if len(batch) == verifyBatch {
			last = batch[len(batch)-1].seq
		}
		if err := v.replay.compare(ctx, done, last); err != nil {
			return err
		}
		done = last
		if v.opts.Progress != nil {
			v.opts.Progress(done, v.total)
		}
	}
	return v.replay.finish(ctx)
}

// readBatch returns the next events after one. Those that cannot be read are findings, and are
// omitted. Fewer than verifyBatch are returned only at the end of the log.
func (v *verifier) readBatch(ctx context.Context, after int64) (batch []storedEvent, err error) {
	next := after
	for len(batch) < verifyBatch && next < v.total {
		more, err := v.readSome(ctx, next, verifyBatch-len(batch))
		batch = append(batch, more...)
		if err == nil {
			break
		}
		if len(more) > 0 {
			next = more[len(more)-1].seq
		}
		if next, err = v.skipUnreadable(ctx, next+1, err); err != nil {
			return nil, err
		}
	}
	return batch, nil
}

// readSome returns events, and those before an error too.
func (v *verifier) readSome(ctx context.Context, after int64, limit int) (
	some []storedEvent, err error,
) {
	rows, err := v.db.QueryContext(ctx, selectEvents, after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e storedEvent
		if err := rows.Scan(e.columns()...); err != nil {
			return some, err
		}
		some = append(some, e)
	}
	return some, rows.Err()
}

// skipUnreadable reports the events from first on that cannot be read, and returns the last of
// them.
func (v *verifier) skipUnreadable(ctx context.Context, first int64, cause error) (int64, error) {
	last := first
	for ; last < v.total; last++ {
		if _, err := v.readSome(ctx, last, 1); err == nil {
			break
		} else if ctx.Err() != nil || isRetryable(err) {
			return 0, err
		}
	}
	v.breakTree(first)
	v.add(Finding{
		Kind: FindingDamage, Seq: first, Column: "events",
		Message: fmt.Sprintf("events %d to %d cannot be read: %v", first, last, cause),
	})
	v.replay.skipRange(first, last)
	return last, nil
}

// breakTree notes the first event that is unknown, so that the root hash of later ones is too.
func (v *verifier) breakTree(seq int64) {
	if v.broken == 0 {
		v.broken = seq
	}
}

// checkEvent checks one event and replays it.
func (v *verifier) checkEvent(ctx context.Context, e storedEvent) error {
	if want := v.replay.next; e.seq != want && !v.replay.skipped(want, e.seq-1) {
		v.breakTree(want)
		v.add(Finding{
			Kind: FindingSequence, Seq: want,
			Message: fmt.Sprintf("events %d to %d are missing", want, e.seq-1),
		})
	}
	v.replay.next = e.seq + 1
	v.report.Events++
	leaf, ok := v.checkLeaf(e)
	if err := v.appendLeaf(ctx, e.seq, leaf); err != nil {
		return err
	}
	if !ok {
		v.replay.skip(e)
		return nil
	}
	return v.replay.event(ctx, e)
}

// checkLeaf compares the leaf with the columns. It returns the leaf that they have, or the stored
// one if they have none, and whether both are the same.
func (v *verifier) checkLeaf(e storedEvent) (leaf tlog.Hash, ok bool) {
	f := Finding{Kind: FindingEvent, Seq: e.seq, Invocation: e.invocation, Column: "events.leaf"}
	copy(leaf[:], e.leaf)
	p, err := e.proof()
	if err != nil {
		f.Column, f.Message = "events.body", err.Error()
		v.add(f)
		return leaf, false
	}
	if !e.body.Valid {
		v.report.Pruned++
	}
	want := p.Leaf()
	if !bytes.Equal(want[:], e.leaf) {
		f.Expected, f.Got = fmt.Sprintf("%x", want[:]), fmt.Sprintf("%x", e.leaf)
		f.Message = "the leaf is not the hash of seq, at, kind, invocation and body"
		v.add(f)
	}
	return want, bytes.Equal(want[:], e.leaf)
}

// appendLeaf appends to the tree, and compares the nodes that it completes.
func (v *verifier) appendLeaf(ctx context.Context, seq int64, leaf tlog.Hash) error {
	if v.broken != 0 {
		return nil
	}
	for _, n := range v.edge.Append(leaf) {
		if err := v.checkNode(ctx, seq, n); err != nil {
			return err
		}
	}
	v.compareRoots()
	return nil
}

// checkNode compares the stored hash of a subtree that ends with an event.
func (v *verifier) checkNode(ctx context.Context, seq int64, n proof.Node) error {
	var got []byte
	err := v.db.QueryRowContext(ctx, `SELECT hash FROM merkle_nodes WHERE level = ? AND n = ?`,
		n.Level, n.N).Scan(&got)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if bytes.Equal(got, n.Hash[:]) {
		return nil
	}
	v.add(Finding{
		Kind: FindingNode, Seq: seq, Column: "merkle_nodes.hash",
		Expected: fmt.Sprintf("%x", n.Hash[:]), Got: fmt.Sprintf("%x", got),
		Message:    fmt.Sprintf("the hash of the events %d to %d is not theirs", n.N<<n.Level+1, seq),
		Repairable: true,
	})
	if !v.fix {
		return nil
	}
	_, err = v.db.ExecContext(ctx, insertNode, n.Level, n.N, n.Hash[:])
	return err
}

// rootCheck is a checkpoint that the log must extend.
type rootCheck struct {
	proof.Checkpoint
	source string
}

// loadCheckpoints reads the stored checkpoints and the given one, by size.
func (v *verifier) loadCheckpoints() []rootCheck {
	files := filesOf(v.opts.Path)
	key, err := ReadPublicKey(files.public)
	if err != nil {
		v.add(Finding{Kind: FindingKey, Column: files.public, Message: err.Error()})
		return nil
	}
	var all []rootCheck
	open := func(key proof.Verifier, source string, signed []byte, err error) {
		var c proof.Checkpoint
		if err == nil {
			c, err = key.Open(signed)
		}
		if err != nil {
			v.add(Finding{Kind: FindingCheckpoint, Column: source, Message: err.Error()})
			return
		}
		all = append(all, rootCheck{c, source})
	}
	paths, err := storedCheckpoints(files.checkpoints)
	if err != nil {
		v.add(Finding{Kind: FindingCheckpoint, Column: files.checkpoints, Message: err.Error()})
	}
	for _, path := range paths {
		signed, err := readCheckpoint(path)
		open(key, path, signed, err)
	}
	if v.opts.Checkpoint != nil {
		if v.opts.Key != nil {
			key = *v.opts.Key
		}
		open(key, "the given checkpoint", v.opts.Checkpoint, nil)
	}
	slices.SortFunc(all, func(a, b rootCheck) int { return cmp.Compare(a.Size, b.Size) })
	return all
}

// compareRoots compares the checkpoints of the events so far.
func (v *verifier) compareRoots() {
	for len(v.roots) > 0 && v.roots[0].Size <= v.edge.Size() {
		c := v.roots[0]
		v.roots = v.roots[1:]
		if root := v.edge.Root(); root == c.Root {
			v.report.Checkpoints++
		} else {
			v.add(Finding{
				Kind: FindingCheckpoint, Seq: c.Size, Column: c.source, Expected: c.Root.String(),
				Got: root.String(), Message: fmt.Sprintf("the first %d events are not those that were signed",
					c.Size),
			})
		}
	}
}

// finishRoots reports the checkpoints of events that the log does not have.
func (v *verifier) finishRoots() {
	for _, c := range v.roots {
		f := Finding{
			Kind: FindingCheckpoint, Seq: v.total + 1, Column: c.source,
			Expected: fmt.Sprintf("%d events", c.Size), Got: fmt.Sprintf("%d events", v.total),
			Message: "the log was cut or replaced by an older copy",
		}
		if v.broken != 0 {
			f.Seq, f.Got = v.broken, ""
			f.Message = fmt.Sprintf("it cannot be compared, because event %d is unknown", v.broken)
		}
		v.add(f)
	}
	if v.broken == 0 {
		v.report.Root = v.edge.Root().String()
	}
}
