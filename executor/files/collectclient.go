package files

import (
	"context"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// ReadTree lets the helper stream a tree, as Local.ReadTree makes it, and believes nothing of it (package tree). While the tree is open, the
// other operations fail with conflict. A tree that is not read to its end, and a context that is done, end the helper.
func (c *Client) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error) {
	if err := contextError(ctx); err != nil {
		return nil, err
	}
	reader, err := tree.NewReader(c.r, what)
	if err != nil {
		return nil, err
	}
	t := &remoteTree{client: c, reader: reader, stopErr: func() error { return contextError(ctx) }}
	t.stop = context.AfterFunc(ctx, func() { _ = c.close() })
	if err := c.startTree(what); err != nil {
		t.stop()
		if gone := contextError(ctx); gone != nil {
			return nil, gone
		}
		return nil, err
	}
	return t, nil
}

// startTree asks the helper for a tree, and keeps everything else from it until the tree is over.
func (c *Client) startTree(what dray.ReadTreeOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	var resp response
	err := writeMessage(c.w, &request{Op: opCollect}, packRequest, nil)
	if err == nil {
		err = tree.WriteRequest(c.w, what)
	}
	if err == nil {
		_, err = readMessage(c.r, &resp, packResponse)
	}
	switch {
	case err != nil:
		c.err = lost(err)
		return c.err
	case resp.Error != nil:
		return resp.Error.err()
	default:
		c.err = errTreeOpen
		return nil
	}
}

var errTreeOpen = dray.Errorf(dray.CodeConflict, "files are being collected").WithHint("close the tree first, or open the folder once more")

// endTree lets other operations in again, or none ever.
func (c *Client) endTree(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// remoteTree is a tree that a helper sends.
type remoteTree struct {
	client  *Client
	reader  *tree.Reader
	stopErr func() error
	stop    func() bool
	err     error
}

// Next goes to the next entry.
func (t *remoteTree) Next() (dray.TreeEntry, error) {
	if t.err != nil {
		return dray.TreeEntry{}, t.err
	}
	entry, err := t.reader.Next()
	if err != nil {
		return dray.TreeEntry{}, t.end(err)
	}
	return entry, nil
}

// Read reads the current file.
func (t *remoteTree) Read(p []byte) (int, error) {
	n, err := t.reader.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // the reader's own, never wrapped
		return n, t.end(err)
	}
	return n, err
}

// end is the end of the stream. Where the helper itself ended it, other operations may follow; else the helper is ended.
func (t *remoteTree) end(err error) error {
	if t.err != nil {
		return t.err
	}
	t.err = err
	if gone := t.stopErr(); gone != nil {
		t.err = gone
	}
	switch stopped := t.stop(); {
	case stopped && t.reader.Complete() && t.client.r.Buffered() == 0:
		t.client.endTree(nil)
	default:
		t.client.endTree(errTreeClosed)
		_ = t.client.close()
	}
	return t.err
}

// Close gives the tree up, unless it is over.
func (t *remoteTree) Close() error {
	_ = t.end(errTreeClosed)
	return nil
}
