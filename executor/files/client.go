package files

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// Client are the files that a helper process serves.
type Client struct {
	close func() error

	mu  sync.Mutex // one operation at a time
	w   io.Writer
	r   *bufio.Reader
	err error // the helper went, or talked nonsense: what it says from then on answers nothing
}

// NewClient talks to Serve over its stdin and stdout. Close calls close, which must end the helper.
func NewClient(stdin io.Writer, stdout io.Reader, closeHelper func() error) *Client {
	return &Client{
		close: sync.OnceValue(closeHelper), w: stdin,
		r: bufio.NewReaderSize(stdout, 64<<10),
	}
}

// Close ends the helper.
func (c *Client) Close() error { return c.close() }

func (c *Client) call(req request, data []byte) (response, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return response{}, nil, c.err
	}
	var resp response
	err := writeMessage(c.w, &req, packRequest, data)
	var payload []byte
	if err == nil {
		payload, err = readMessage(c.r, &resp, packResponse)
	}
	if err != nil {
		c.err = lost(err)
		return response{}, nil, c.err
	}
	if resp.Error != nil {
		return response{}, nil, resp.Error.err()
	}
	return resp, payload, nil
}

// lost is an end of the helper, or an answer that is none.
func lost(err error) error {
	if _, ok := errors.AsType[*dray.Error](err); ok {
		return err
	}
	return dray.Errorf(dray.CodeAgentLost, "the file helper in the container went away: %w", err).
		WithHint("repeat the call; if it happens again, look at the container's memory and disk")
}

// Stat describes what a name is.
func (c *Client) Stat(name string) (dray.FileInfo, error) {
	resp, _, err := c.call(request{Op: opStat, Name: name}, nil)
	return resp.Info, err
}

// Open reads a regular file from an offset.
func (c *Client) Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error) {
	resp, beginning, err := c.call(request{Op: opOpen, Name: name, Offset: offset}, nil)
	if err != nil {
		return nil, dray.FileInfo{}, err
	}
	return &reader{handle{c, resp.Handle}, beginning, resp.EOF, resp.EOF}, resp.Info, nil
}

// Create makes a new file that must not exist.
func (c *Client) Create(name string, mode fs.FileMode) (io.WriteCloser, error) {
	resp, _, err := c.call(request{Op: opCreate, Name: name, Mode: mode}, nil)
	if err != nil {
		return nil, err
	}
	return &writer{handle{c, resp.Handle}}, nil
}

// Rename replaces newName by oldName.
func (c *Client) Rename(oldName, newName string) error {
	_, _, err := c.call(request{Op: opRename, Name: oldName, To: newName}, nil)
	return err
}

// Remove removes one file or empty folder.
func (c *Client) Remove(name string) error {
	_, _, err := c.call(request{Op: opRemove, Name: name}, nil)
	return err
}

// List gives at most limit entries of a folder.
func (c *Client) List(name string, limit int) ([]dray.FileInfo, bool, error) {
	limit = min(max(limit, 0), MaxList)
	resp, _, err := c.call(request{Op: opList, Name: name, Limit: limit}, nil)
	if err == nil && len(resp.Entries) > limit {
		err = lost(fmt.Errorf("it listed %d entries of %d asked for", len(resp.Entries), limit))
	}
	if err != nil {
		return nil, false, err
	}
	return resp.Entries, resp.More, nil
}

// handle is a file that the helper holds open.
type handle struct {
	client *Client
	id     int
}

func (h handle) Close() error {
	_, _, err := h.client.call(request{Op: opClose, Handle: h.id}, nil)
	return err
}

type reader struct {
	handle
	rest   []byte
	eof    bool
	closed bool // by the helper
}

func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	return r.handle.Close()
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && !r.eof {
		resp, data, err := r.client.call(request{Op: opRead, Handle: r.id, Limit: chunk}, nil)
		if err != nil {
			return 0, err
		}
		if len(data) == 0 && !resp.EOF {
			return 0, lost(io.ErrNoProgress)
		}
		r.rest, r.eof = data, resp.EOF
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

type writer struct{ handle }

func (w *writer) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		n := min(len(p), chunk)
		if _, _, err := w.client.call(request{Op: opWrite, Handle: w.id}, p[:n]); err != nil {
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

// ReadTree lets the helper stream a tree, as Local.ReadTree makes it, and believes nothing of it
// (package tree). While the tree is open, the other operations fail with conflict. A tree that is
// not read to its end, and a context that is done, end the helper.
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

var errTreeOpen = dray.Errorf(dray.CodeConflict, "files are being collected").
	WithHint("close the tree first, or open the folder once more")

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

// end is the end of the stream. Where the helper itself ended it, other operations may follow; else
// the helper is ended.
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
