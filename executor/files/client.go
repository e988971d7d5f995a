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

// Client accesses the files of a helper process. It implements dray.Files and is safe for
// concurrent use; it runs one operation at a time.
type Client struct {
	close func() error

	mu  sync.Mutex
	w   io.Writer
	r   *bufio.Reader
	err error // that all further operations return: the helper was lost, or a tree is open
}

// NewClient returns a client of Serve, over its stdin and stdout. closeHelper must end the helper.
func NewClient(stdin io.Writer, stdout io.Reader, closeHelper func() error) *Client {
	r := bufio.NewReaderSize(stdout, 64<<10)
	return &Client{close: sync.OnceValue(closeHelper), w: stdin, r: r}
}

// Close ends the helper.
func (c *Client) Close() error { return c.close() }

// call makes a request with data, and returns the response and its data.
func (c *Client) call(req request, data []byte) (resp response, payload []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return resp, nil, c.err
	}
	if err := writeMessage(c.w, &req, packRequest, data); err != nil {
		return resp, nil, c.fail(err)
	}
	return c.receive()
}

// do is call without data.
func (c *Client) do(req request) error {
	_, _, err := c.call(req, nil)
	return err
}

// receive reads a response and its data.
func (c *Client) receive() (response, []byte, error) {
	var resp response
	payload, err := readMessage(c.r, &resp, packResponse)
	switch {
	case err != nil:
		return response{}, nil, c.fail(err)
	case resp.Error != nil:
		return response{}, nil, resp.Error.err()
	default:
		return resp, payload, nil
	}
}

// fail makes all further operations fail: their responses would not belong to their requests.
func (c *Client) fail(err error) error {
	c.err = lost(err)
	return c.err
}

// lost returns the error for a helper that ended or sent an invalid response.
func lost(err error) error {
	if _, ok := errors.AsType[*dray.Error](err); ok {
		return err
	}
	return dray.Errorf(dray.CodeAgentLost, "the file helper in the container was lost: %w", err).
		WithHint("repeat the call; if it fails again, check the container's memory and disk")
}

// Stat implements dray.Files.
func (c *Client) Stat(name string) (dray.FileInfo, error) {
	resp, _, err := c.call(request{Op: opStat, Name: name}, nil)
	return resp.Info, err
}

// Open implements dray.Files.
func (c *Client) Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error) {
	resp, data, err := c.call(request{Op: opOpen, Name: name, Offset: offset}, nil)
	if err != nil {
		return nil, dray.FileInfo{}, err
	}
	return &reader{handle{c, resp.Handle}, data, resp.EOF, resp.EOF}, resp.Info, nil
}

// Create implements dray.Files.
func (c *Client) Create(name string, mode fs.FileMode) (io.WriteCloser, error) {
	resp, _, err := c.call(request{Op: opCreate, Name: name, Mode: mode}, nil)
	if err != nil {
		return nil, err
	}
	return &writer{handle{c, resp.Handle}}, nil
}

// Rename implements dray.Files.
func (c *Client) Rename(oldName, newName string) error {
	return c.do(request{Op: opRename, Name: oldName, To: newName})
}

// Remove implements dray.Files.
func (c *Client) Remove(name string) error { return c.do(request{Op: opRemove, Name: name}) }

// List implements dray.Files.
func (c *Client) List(name string, limit int) ([]dray.FileInfo, bool, error) {
	limit = min(max(limit, 0), MaxList)
	resp, _, err := c.call(request{Op: opList, Name: name, Limit: limit}, nil)
	if err == nil && len(resp.Entries) > limit {
		err = lost(fmt.Errorf("it returned %d entries (maximum %d)", len(resp.Entries), limit))
	}
	if err != nil {
		return nil, false, err
	}
	return resp.Entries, resp.More, nil
}

// handle is a file that is open in the helper.
type handle struct {
	client *Client
	id     int
}

func (h handle) Close() error { return h.client.do(request{Op: opClose, Handle: h.id}) }

type reader struct {
	handle
	buffered []byte
	eof      bool
	closed   bool // by the helper
}

func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	return r.handle.Close()
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.buffered) == 0 && !r.eof {
		resp, data, err := r.client.call(request{Op: opRead, Handle: r.id, Limit: chunk}, nil)
		if err != nil {
			return 0, err
		}
		if len(data) == 0 && !resp.EOF {
			return 0, lost(io.ErrNoProgress)
		}
		r.buffered, r.eof = data, resp.EOF
	}
	if len(r.buffered) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.buffered)
	r.buffered = r.buffered[n:]
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

// ReadTree makes the helper send a tree, which it reads with Local.ReadTree, and validates it
// (package tree). While the tree is open, other operations fail with conflict. A tree that is
// closed before its end, and the end of the context, end the helper.
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
		if stopErr := t.stopErr(); stopErr != nil {
			return nil, stopErr
		}
		return nil, err
	}
	return t, nil
}

func (c *Client) startTree(what dray.ReadTreeOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	err := writeMessage(c.w, &request{Op: opReadTree}, packRequest, nil)
	if err == nil {
		err = tree.WriteRequest(c.w, what)
	}
	if err != nil {
		return c.fail(err)
	}
	if _, _, err := c.receive(); err != nil {
		return err
	}
	c.err = errTreeOpen
	return nil
}

var errTreeOpen = dray.Errorf(dray.CodeConflict, "a tree is being read").
	WithHint("close the tree first, or open the files a second time")

// remoteTree is a tree that a helper sends.
type remoteTree struct {
	client  *Client
	reader  *tree.Reader
	stopErr func() error
	stop    func() bool
	err     error
}

// Next returns the next entry.
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
	if err != nil && err != io.EOF { //nolint:errorlint // never wrapped
		return n, t.end(err)
	}
	return n, err
}

// end records the end of the tree. If the helper ended the stream, other operations may follow;
// otherwise end ends the helper.
func (t *remoteTree) end(err error) error {
	if t.err != nil {
		return t.err
	}
	t.err = err
	if stopErr := t.stopErr(); stopErr != nil {
		t.err = stopErr
	}
	complete := t.stop() && t.reader.Complete() && t.client.r.Buffered() == 0
	t.client.mu.Lock()
	t.client.err = nil
	if !complete {
		t.client.err = errTreeClosed
	}
	t.client.mu.Unlock()
	if !complete {
		_ = t.client.close()
	}
	return t.err
}

// Close closes the tree. It can be closed before its end.
func (t *remoteTree) Close() error {
	_ = t.end(errTreeClosed)
	return nil
}
