package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
	"github.com/dray-dev/dray/executor/files/tree"
)

// writeStopTimeout bounds how long a helper may take after the end of the context to remove its
// staging directory, or to complete a commit. Then it is ended, and the next WriteTree beneath the
// root recovers.
const writeStopTimeout = 10 * time.Second

// WriteTree sends a tree to the helper, which writes it with Local.WriteTree. Of the response only
// the state before the write is trusted; a digest that differs from what was sent is an error with
// the code transfer_failed. If the helper fails, it is not sent the rest. Other operations block
// meanwhile. Remove and Expect are unsupported.
func (c *Client) WriteTree(ctx context.Context, t dray.Tree, how dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	if how.Expect != nil || len(how.Remove) > 0 {
		return nil, dray.Errorf(dray.CodeUnsupported,
			"files in a container cannot be removed or compared with a commit").
			WithHint("write the files on the host")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	defer c.killOnTimeout(ctx)()
	written, err := c.sendTree(ctx, t, how)
	if stopErr := writeStopped(ctx); stopErr != nil && err != nil &&
		!errors.Is(err, stage.ErrCommitIncomplete) {
		return nil, stopErr
	}
	return written, err
}

func (c *Client) sendTree(ctx context.Context, t dray.Tree, how dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	req := request{
		Op: opWriteTree, Executable: how.Executable, DryRun: how.DryRun,
		RefuseRepositories: how.RefuseRepositories,
	}
	if err := writeMessage(c.w, &req, packRequest, nil); err != nil {
		return nil, c.fail(err)
	}
	s := &treeSender{
		tree: t, how: how, responded: make(chan struct{}), hash: sha256.New(),
		stopErr: func() error { return writeStopped(ctx) },
	}
	go func() { // ends with the helper's response, or with the helper
		defer close(s.responded)
		_, _ = c.r.Peek(1)
	}()
	sendErr := tree.Send(c.w, s)
	if _, ok := errors.AsType[*tree.WriteError](sendErr); ok {
		c.closeAfter(time.Second, s.responded) // it sends its error before it stops reading
	}
	<-s.responded
	return c.readOutcomes(s, sendErr)
}

func writeStopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return dray.Errorf(dray.CodeTransferFailed, "the write was cancelled: %w", context.Cause(ctx)).
		WithHint("repeat the write, with a longer timeout if that elapsed")
}

// killOnTimeout ends the helper if end is not called within writeStopTimeout of the context's end.
func (c *Client) killOnTimeout(ctx context.Context) (end func()) {
	done, watched := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(watched)
		c.closeAfter(writeStopTimeout, done)
	})
	return func() {
		close(done)
		if !stop() {
			<-watched
		}
	}
}

// closeAfter ends the helper unless done is closed within the timeout.
func (c *Client) closeAfter(timeout time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = c.close()
	}
}

// readOutcomes reads the response and compares it with what was sent.
func (c *Client) readOutcomes(s *treeSender, sendErr error) ([]dray.WrittenFile, error) {
	var list []outcome
	for more := true; more; {
		resp, _, err := c.receive()
		switch {
		case c.err != nil:
			return nil, c.err
		case err != nil:
			return nil, c.writeError(withHint(err), sendErr)
		}
		list, more = append(list, resp.Outcomes...), resp.More
		if sendErr != nil || len(list) > len(s.files) || more && len(resp.Outcomes) == 0 {
			return nil, c.fail(errors.New("it reported files that it was not sent"))
		}
	}
	return s.results(list)
}

// writeError returns the error of the tree if there is one, else that of the helper. A helper that
// stopped reading cannot be used any more.
func (c *Client) writeError(helperErr, sendErr error) error {
	writeErr, ok := errors.AsType[*tree.WriteError](sendErr)
	if ok {
		_ = c.fail(writeErr)
	}
	if sendErr == nil || ok || errors.Is(sendErr, errResponded) {
		return helperErr
	}
	return sendErr
}

// withHint adds a hint to an error of the helper. Hints are not taken from the container.
func withHint(err error) error {
	e, ok := errors.AsType[*dray.Error](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, stage.ErrCommitIncomplete):
		return e.WithHint("fix the reported cause; the next sync to this directory of the container " +
			"completes it")
	case e.Code == dray.CodeDiskFull:
		return e.WithHint("free disk space in the container, or raise its quota, then repeat the write")
	case e.Code == dray.CodeLimitExceeded:
		return e.WithHint("write fewer files at once, or raise the reported limit in the container")
	default:
		return err
	}
}

// treeSender is a tree that is sent to a helper. It ends when the helper responds before the end of
// the tree, because then the helper has failed.
type treeSender struct {
	tree      dray.Tree
	how       dray.WriteTreeOptions
	responded chan struct{}
	stopErr   func() error
	hash      hash.Hash
	files     []dray.WrittenFile // that were sent; the digest of the last one is missing
}

var errResponded = errors.New("the helper has responded before the end of the tree")

func (s *treeSender) checkStop() error {
	select {
	case <-s.responded:
		return errResponded
	default:
		return s.stopErr()
	}
}

// Next returns the next entry.
func (s *treeSender) Next() (dray.TreeEntry, error) {
	if err := s.checkStop(); err != nil {
		return dray.TreeEntry{}, err
	}
	e, err := s.tree.Next()
	s.recordDigest()
	if err == nil && e.Refused == nil && e.Type == "file" {
		s.files = append(s.files, dray.WrittenFile{
			Name: e.Name, Size: e.Size, Mode: stage.ModeOf(e.Mode, s.how),
		})
	}
	return e, err
}

// recordDigest sets the digest of the file that was sent last.
func (s *treeSender) recordDigest() {
	if n := len(s.files); n > 0 && s.files[n-1].SHA256 == "" {
		s.files[n-1].SHA256 = hex.EncodeToString(s.hash.Sum(nil))
	}
	s.hash.Reset()
}

// Read reads the current file.
func (s *treeSender) Read(b []byte) (int, error) {
	if err := s.checkStop(); err != nil {
		return 0, err
	}
	n, err := s.tree.Read(b)
	_, _ = s.hash.Write(b[:n])
	return n, err
}

// Close does nothing: the caller closes the tree.
func (s *treeSender) Close() error { return nil }

// results returns the files that were sent, with the outcomes of the helper.
func (s *treeSender) results(list []outcome) ([]dray.WrittenFile, error) {
	if len(list) != len(s.files) {
		return nil, mismatchError("it was sent %d files and reports %d", len(s.files), len(list))
	}
	for i, o := range list {
		f := &s.files[i]
		if o.Action == 0 || int(o.Action) >= len(actions) || len(o.Before) != 0 &&
			len(o.Before) != sha256.Size {
			return nil, mismatchError("it reports an invalid outcome of %q", f.Name)
		}
		if hex.EncodeToString(o.Sum) != f.SHA256 {
			return nil, mismatchError("it reports the digest %x of %q, not %s", o.Sum, f.Name, f.SHA256)
		}
		f.Action, f.SHA256Before = actions[o.Action], hex.EncodeToString(o.Before)
	}
	return s.files, nil
}

// mismatchError returns the error for a response that does not match what was sent.
func mismatchError(format string, args ...any) error {
	return dray.Errorf(dray.CodeTransferFailed,
		"the file helper in the container did not write the files that it was sent: %w",
		fmt.Errorf(format, args...)).
		WithHint("check the files there; a process in the container may be impersonating the agent")
}

// outcome describes the write of one file. Outcomes are in the order of the tree.
type outcome struct {
	Action uint8 // an index of actions
	// Sum and Before are digests. Before is empty if there was no file.
	Sum, Before []byte
}

var actions = []dray.FileAction{"", dray.FileCreated, dray.FileReplaced, dray.FileUnchanged}

func newOutcome(f dray.WrittenFile) outcome {
	sum, _ := hex.DecodeString(f.SHA256) // both are from package stage
	before, _ := hex.DecodeString(f.SHA256Before)
	return outcome{Action: uint8(slices.Index(actions, f.Action)), Sum: sum, Before: before} //nolint:gosec // few
}
