package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
	"github.com/dray-dev/dray/executor/files/tree"
)

// writeStopTimeout is how long a helper may take to end what it does after the context's end: it
// takes back what it staged, or finishes a commit that has begun. Then it is ended, and the next
// Place beneath the root puts things in order.
const writeStopTimeout = 10 * time.Second

// WriteTree sends a tree to the helper, which writes it as Local.WriteTree does. What the helper
// says of it is believed in one point, what was there before; a digest that is not that of what was
// sent is transfer_failed. When the helper fails it is not sent the rest. Other operations wait
// meanwhile.
func (c *Client) WriteTree(ctx context.Context, t dray.Tree,
	how dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	defer c.killOnTimeout(ctx)()
	placed, err := c.push(ctx, t, how)
	if gone := placeEnded(ctx); gone != nil && err != nil &&
		!errors.Is(err, stage.ErrCommitIncomplete) {
		return nil, gone // whatever came of that, except a part of the tree
	}
	return placed, err
}

func (c *Client) push(ctx context.Context, t dray.Tree,
	how dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	if err := writeMessage(c.w, &request{Op: opPlace, Executable: how.Executable, DryRun: how.DryRun},
		packRequest, nil); err != nil {
		c.err = lost(err)
		return nil, c.err
	}
	p := &treeSender{
		tree: t, how: how, answered: make(chan struct{}), hash: sha256.New(),
		over: func() error { return placeEnded(ctx) },
	}
	go func() { // ends with the helper's answer, or with the helper
		defer close(p.answered)
		_, _ = c.r.Peek(1)
	}()
	sent := tree.Send(c.w, p)
	c.awaitAnswer(p, sent)
	return c.placed(p, sent)
}

func placeEnded(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return dray.Errorf(dray.CodeTransferFailed, "placing the tree was given up: %w",
		context.Cause(ctx)).
		WithHint("repeat it, with more time if that ran out")
}

// killOnTimeout ends a helper that goes on for long after the context's end. The returned function
// ends the watch.
func (c *Client) killOnTimeout(ctx context.Context) (end func()) {
	over, watched := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(watched)
		timer := time.NewTimer(writeStopTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			_ = c.close()
		case <-over:
		}
	})
	return func() {
		close(over)
		if !stop() {
			<-watched
		}
	}
}

// awaitAnswer waits until the helper has answered. One that does not listen any more has to have
// said why.
func (c *Client) awaitAnswer(p *treeSender, sent error) {
	if _, deaf := errors.AsType[*tree.WriteError](sent); deaf {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-p.answered:
		case <-timer.C:
			_ = c.close()
		}
	}
	<-p.answered
}

// placed reads the answer, and holds it against what was sent.
func (c *Client) placed(p *treeSender, sent error) ([]dray.WrittenFile, error) {
	var list []outcome
	for more := true; more; {
		var resp response
		_, err := readMessage(c.r, &resp, packResponse)
		switch {
		case err != nil:
			c.err = lost(err)
			return nil, c.err
		case resp.Error != nil:
			return nil, c.failed(withHint(resp.Error.err()), sent)
		}
		list, more = append(list, resp.Outcomes...), resp.More
		if sent != nil || len(list) > len(p.files) || more && len(resp.Outcomes) == 0 {
			c.err = lost(errors.New("it says that it wrote what it was not sent"))
			return nil, c.err
		}
	}
	return p.results(list)
}

// failed is why a tree was not placed: what its own end was, or what the helper says. One that
// stopped to listen cannot be spoken to any more.
func (c *Client) failed(said, sent error) error {
	deaf, is := errors.AsType[*tree.WriteError](sent)
	if is {
		c.err = lost(deaf)
	}
	if sent == nil || is || errors.Is(sent, errAnswered) {
		return said
	}
	return sent
}

// withHint says what to do about what a helper says. It is not for the helper to say that: its
// words come out of the container.
func withHint(said error) error {
	e, ok := errors.AsType[*dray.Error](said)
	switch {
	case !ok:
		return said
	case errors.Is(said, stage.ErrCommitIncomplete):
		return e.WithHint("mend what the message names; the next sync to this folder of the container finishes it")
	case e.Code == dray.CodeDiskFull:
		return e.WithHint("free space in the container, or raise the quota there, and repeat it")
	case e.Code == dray.CodeLimitExceeded:
		return e.WithHint("place less at once, or raise the limit that the message names, in the container")
	default:
		return said
	}
}

// treeSender is a tree on its way to a helper. It ends early when the helper answers early, for
// then it has failed.
type treeSender struct {
	tree     dray.Tree
	how      dray.WriteTreeOptions
	answered chan struct{}
	over     func() error
	hash     hash.Hash
	files    []dray.WrittenFile // what was sent of each, the last one's digest to come
}

var errAnswered = errors.New("the helper wants no more")

func (p *treeSender) stopErr() error {
	select {
	case <-p.answered:
		return errAnswered
	default:
		return p.over()
	}
}

// Next goes to the next entry.
func (p *treeSender) Next() (dray.TreeEntry, error) {
	if err := p.stopErr(); err != nil {
		return dray.TreeEntry{}, err
	}
	e, err := p.tree.Next()
	p.recordDigest()
	if err == nil && e.Refused == nil && e.Type == "file" {
		p.files = append(p.files, dray.WrittenFile{
			Name: e.Name, Size: e.Size,
			Mode: stage.ModeOf(e.Mode, p.how),
		})
	}
	return e, err
}

// recordDigest notes the digest of the file that was sent last.
func (p *treeSender) recordDigest() {
	if n := len(p.files); n > 0 && p.files[n-1].SHA256 == "" {
		p.files[n-1].SHA256 = hex.EncodeToString(p.hash.Sum(nil))
	}
	p.hash.Reset()
}

// Read reads the current file.
func (p *treeSender) Read(b []byte) (int, error) {
	if err := p.stopErr(); err != nil {
		return 0, err
	}
	n, err := p.tree.Read(b)
	_, _ = p.hash.Write(b[:n])
	return n, err
}

// Close leaves the tree to its owner.
func (p *treeSender) Close() error { return nil }

// results puts what was sent and what became of it together.
func (p *treeSender) results(list []outcome) ([]dray.WrittenFile, error) {
	if len(list) != len(p.files) {
		return nil, mismatchError(fmt.Errorf("it was sent %d files and says that it wrote %d",
			len(p.files), len(list)))
	}
	for i, o := range list {
		f := &p.files[i]
		if o.Action == 0 || int(o.Action) >= len(actions) || len(o.Before) != 0 &&
			len(o.Before) != sha256.Size {
			return nil, mismatchError(fmt.Errorf("it says nothing that can be of %q", f.Name))
		}
		if hex.EncodeToString(o.Sum) != f.SHA256 {
			return nil, mismatchError(fmt.Errorf("it says that it wrote %q with the digest %x, and %s was sent", f.Name, o.Sum, f.SHA256))
		}
		f.Action, f.SHA256Before = actions[o.Action], hex.EncodeToString(o.Before)
	}
	return p.files, nil
}

// mismatchError is an answer that does not belong to what was sent.
func mismatchError(err error) error {
	return dray.Errorf(dray.CodeTransferFailed,
		"the file helper in the container did not write what it was sent: %w", err).
		WithHint("look at the files there; something in the container may be standing in for dray's agent")
}

// outcome is what became of one file, in the order of the tree.
type outcome struct {
	Action uint8 // an index of actions
	// Sum and Before are digests; Before is empty where no file was.
	Sum, Before []byte
}

var actions = [...]dray.FileAction{1: dray.FileCreated, 2: dray.FileReplaced, 3: dray.FileUnchanged}

func outcomeOf(p dray.WrittenFile) (o outcome) {
	for i, a := range actions {
		if a == p.Action {
			o.Action = uint8(i)
		}
	}
	o.Sum, _ = hex.DecodeString(p.SHA256) // both are our own
	o.Before, _ = hex.DecodeString(p.SHA256Before)
	return o
}
