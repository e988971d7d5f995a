package files

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// maxOpen is the maximum number of files that one client may have open.
const maxOpen = 64

// Serve handles operations on the files beneath root until its input ends.
func Serve(root string, in io.Reader, out io.Writer) error {
	local, err := Open(root)
	if err != nil {
		return serveError(err, in, out)
	}
	s := &server{local: local, open: map[int]io.Closer{}, r: bufio.NewReader(in), w: out}
	defer s.close()
	for err == nil {
		err = s.serveOne()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// serveError returns an error to the first operation of the client.
func serveError(cause error, in io.Reader, out io.Writer) error {
	var req request
	if _, err := readMessage(in, &req, packRequest); err != nil {
		return cause
	}
	return writeMessage(out, &response{Error: newWireError(classify(cause))}, packResponse, nil)
}

type server struct {
	local *Local
	r     *bufio.Reader
	w     io.Writer
	open  map[int]io.Closer
	last  int // handle
}

func (s *server) close() {
	for _, f := range s.open {
		_ = f.Close()
	}
	_ = s.local.Close()
}

// serveOne handles one operation. An error means that the connection is unusable.
func (s *server) serveOne() error {
	var req request
	data, err := readMessage(s.r, &req, packRequest)
	if err != nil {
		return err
	}
	switch req.Op {
	case opReadTree:
		return s.readTree()
	case opWriteTree:
		return s.writeTree(req)
	}
	resp, payload, err := s.dispatch(req, data)
	if err != nil {
		return s.respondError(err)
	}
	return s.respond(&resp, payload)
}

func (s *server) respond(resp *response, payload []byte) error {
	return writeMessage(s.w, resp, packResponse, payload)
}

func (s *server) respondError(err error) error {
	return s.respond(&response{Error: newWireError(err)}, nil)
}

func (s *server) dispatch(req request, data []byte) (resp response, payload []byte, err error) {
	switch req.Op {
	case opStat:
		resp.Info, err = s.local.Stat(req.Name)
	case opOpen:
		return s.openFile(req)
	case opCreate:
		var f io.WriteCloser
		f, err = s.local.Create(req.Name, req.Mode)
		if err == nil {
			resp.Handle, err = s.addHandle(f)
		}
	case opRead:
		return s.read(req.Handle, req.Limit)
	case opWrite:
		err = s.write(req.Handle, data)
	case opClose:
		err = s.closeHandle(req.Handle)
	case opRename:
		err = s.local.Rename(req.Name, req.To)
	case opRemove:
		err = s.local.Remove(req.Name)
	case opList:
		resp, err = s.list(req.Name, req.Limit)
	case opWalk:
		resp, err = s.walk(req.Name)
	case opWalkNext:
		resp, err = s.walkNext(req.Handle, req.Limit)
	default:
		err = dray.Errorf(dray.CodeInternal, "unknown file operation %d", req.Op)
	}
	return resp, nil, err
}

// openFile opens a file and reads its start, so that a small file needs one message. It closes a
// file that was read to its end.
func (s *server) openFile(req request) (response, []byte, error) {
	f, info, err := s.local.Open(req.Name, req.Offset)
	if err != nil {
		return response{}, nil, err
	}
	handle, err := s.addHandle(f)
	if err != nil {
		return response{}, nil, err
	}
	resp, data, err := s.read(handle, readAhead)
	if err != nil {
		return response{}, nil, errors.Join(err, s.closeHandle(handle))
	}
	resp.Handle, resp.Info = handle, info
	if resp.EOF {
		return resp, data, s.closeHandle(handle)
	}
	return resp, data, nil
}

func (s *server) addHandle(f io.Closer) (int, error) {
	if len(s.open) >= maxOpen {
		_ = f.Close()
		return 0, dray.Errorf(dray.CodeLimitExceeded, "more than %d files are open", maxOpen)
	}
	s.last++
	s.open[s.last] = f
	return s.last, nil
}

func (s *server) read(handle, limit int) (response, []byte, error) {
	f, ok := s.open[handle].(io.Reader)
	if !ok {
		return response{}, nil, errNoHandle
	}
	buf := make([]byte, min(max(limit, 1), chunk))
	n, err := io.ReadFull(f, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return response{EOF: true}, buf[:n], nil
	}
	return response{}, buf[:n], err
}

var errNoHandle = dray.Errorf(dray.CodeInternal, "the file is not open")

func (s *server) write(handle int, data []byte) error {
	f, ok := s.open[handle].(io.Writer)
	if !ok {
		return errNoHandle
	}
	_, err := f.Write(data)
	return classify(err)
}

func (s *server) closeHandle(handle int) error {
	f, ok := s.open[handle]
	if !ok {
		return errNoHandle
	}
	delete(s.open, handle)
	return classify(f.Close())
}

func (s *server) list(name string, limit int) (response, error) {
	entries, more, err := s.local.List(name, min(limit, MaxList))
	resp := response{More: more}
	size := 0
	for _, e := range entries {
		if size += len(e.Name) + len(e.Target); size > maxListing {
			resp.More = true
			break
		}
		resp.Entries = append(resp.Entries, e)
	}
	return resp, err
}

// readTree sends a tree. The daemon ends this process to cancel it.
func (s *server) readTree() error {
	what, err := tree.ReadRequest(s.r)
	if err != nil {
		return err
	}
	t, err := s.local.ReadTree(context.Background(), what)
	if err != nil {
		return s.respondError(err)
	}
	defer func() { _ = t.Close() }()
	if err := s.respond(&response{}, nil); err != nil {
		return err
	}
	if writeErr, ok := errors.AsType[*tree.WriteError](tree.Send(s.w, t)); ok {
		return writeErr
	}
	return nil // the stream contains any other error
}

// writeTree writes the tree that follows the request. The daemon ends the stream, or this process,
// to cancel it.
func (s *server) writeTree(req request) error {
	ctx := context.Background()
	how := dray.WriteTreeOptions{
		Executable: req.Executable, DryRun: req.DryRun, RefuseRepositories: req.RefuseRepositories,
	}
	if !req.DryRun {
		_, _ = s.local.Recover(ctx, how) // a failed recovery does not prevent the write
	}
	t := tree.NewReaderAny(s.r, dray.TreeLimits{})
	written, err := s.local.WriteTree(ctx, t, how)
	if err != nil {
		if err := s.respondError(err); err != nil {
			return err
		}
		return drain(t)
	}
	for more := true; more; {
		n := min(len(written), MaxList)
		resp := response{More: n < len(written)}
		for _, f := range written[:n] {
			resp.Outcomes = append(resp.Outcomes, newOutcome(f))
		}
		if err := s.respond(&resp, nil); err != nil {
			return err
		}
		written, more = written[n:], resp.More
	}
	return nil
}

// drain reads the rest of a tree, so that the next request follows.
func drain(t *tree.Reader) error {
	for !t.Complete() {
		if _, err := t.Next(); err != nil && !t.Complete() {
			return fmt.Errorf("read the rest of a tree: %w", err)
		}
	}
	return nil
}
