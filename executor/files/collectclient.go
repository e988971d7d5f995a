package files

import (
	"context"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// Collect lets the helper stream a tree, as Local.Collect makes it, and believes nothing of it (package tree). While the tree is open, the
// other operations fail with conflict. A tree that is not read to its end, and a context that is done, end the helper.
func (c *Client) Collect(ctx context.Context, what dray.Collection) (dray.Tree, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	reader, err := tree.NewReader(c.r, what)
	if err != nil {
		return nil, err
	}
	t := &streamed{client: c, reader: reader, over: func() error { return ended(ctx) }}
	t.stop = context.AfterFunc(ctx, func() { _ = c.close() })
	if err := c.begin(what); err != nil {
		t.stop()
		if gone := ended(ctx); gone != nil {
			return nil, gone
		}
		return nil, err
	}
	return t, nil
}

// begin asks the helper for a tree, and keeps everything else from it until the tree is over.
func (c *Client) begin(what dray.Collection) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	var resp response
	err := writeMessage(c.w, &request{Op: opCollect}, packRequest, nil)
	if err == nil {
		err = tree.Ask(c.w, what)
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
		c.err = errCollecting
		return nil
	}
}

var errCollecting = dray.Errorf(dray.CodeConflict, "files are being collected").WithHint("close the tree first, or open the folder once more")

// finish lets other operations in again, or none ever.
func (c *Client) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// streamed is a tree that a helper sends.
type streamed struct {
	client *Client
	reader *tree.Reader
	over   func() error
	stop   func() bool
	err    error
}

// Next goes to the next entry.
func (t *streamed) Next() (dray.TreeEntry, error) {
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
func (t *streamed) Read(p []byte) (int, error) {
	n, err := t.reader.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // the reader's own, never wrapped
		return n, t.end(err)
	}
	return n, err
}

// end is the end of the stream. Where the helper itself ended it, other operations may follow; else the helper is ended.
func (t *streamed) end(err error) error {
	if t.err != nil {
		return t.err
	}
	t.err = err
	if gone := t.over(); gone != nil {
		t.err = gone
	}
	switch stopped := t.stop(); {
	case stopped && t.reader.Over() && t.client.r.Buffered() == 0:
		t.client.finish(nil)
	default:
		t.client.finish(errGivenUp)
		_ = t.client.close()
	}
	return t.err
}

// Close gives the tree up, unless it is over.
func (t *streamed) Close() error {
	_ = t.end(errGivenUp)
	return nil
}
