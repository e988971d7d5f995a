package files

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
)

// maxOpen bounds the files that one client holds open.
const maxOpen = 64

// Serve answers operations on the files beneath root until its input ends.
func Serve(root string, in io.Reader, out io.Writer) error {
	local, err := Open(root)
	if err != nil {
		// The client learns it from its first operation; there is no other way to tell it.
		return serveError(err, in, out)
	}
	s := &server{local: local, open: map[int]io.Closer{}}
	defer s.close()
	r := bufio.NewReader(in)
	for {
		var req request
		data, err := readMessage(r, &req, packRequest)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if streams, err := s.stream(req, r, out); err != nil {
			return err
		} else if streams {
			continue
		}
		resp, payload := s.handle(req, data)
		if err := writeMessage(out, &resp, packResponse, payload); err != nil {
			return err
		}
	}
}

// stream answers the operations that a tree goes with. An error means that the client cannot be
// answered any more.
func (s *server) stream(req request, r *bufio.Reader, out io.Writer) (streams bool, err error) {
	switch req.Op {
	case opCollect:
		return true, s.collect(r, out)
	case opPlace:
		return true, s.place(r, out, req)
	default:
		return false, nil
	}
}

func serveError(cause error, in io.Reader, out io.Writer) error {
	var req request
	if _, err := readMessage(in, &req, packRequest); err != nil {
		return cause
	}
	return writeMessage(out, &response{Error: toFailure(classify(cause))}, packResponse, nil)
}

type server struct {
	local *Local
	open  map[int]io.Closer
	last  int
}

func (s *server) close() {
	for _, f := range s.open {
		_ = f.Close()
	}
	_ = s.local.Close()
}

func (s *server) handle(req request, data []byte) (response, []byte) {
	resp, payload, err := s.dispatch(req, data)
	if err != nil {
		return response{Error: toFailure(err)}, nil
	}
	return resp, payload
}

func (s *server) dispatch(req request, data []byte) (resp response, payload []byte, err error) {
	name := req.Name
	switch req.Op {
	case opStat:
		resp.Info, err = s.local.Stat(name)
		return resp, nil, err
	case opOpen:
		return s.openFile(req)
	case opCreate:
		f, err := s.local.Create(name, req.Mode)
		if err != nil {
			return resp, nil, err
		}
		handle, err := s.addHandle(f)
		return response{Handle: handle}, nil, err
	case opRead:
		return s.read(req)
	case opWrite:
		return resp, nil, s.write(req.Handle, data)
	case opClose:
		return resp, nil, s.closeHandle(req.Handle)
	case opRename:
		return resp, nil, s.local.Rename(name, req.To)
	case opRemove:
		return resp, nil, s.local.Remove(name)
	case opList:
		return s.list(name, req.Limit)
	case opWalk:
		return s.walk(name)
	case opWalkOn:
		return s.walkNext(req.Handle, req.Limit)
	default:
		return resp, nil, dray.Errorf(dray.CodeInternal, "unknown file operation %d", req.Op)
	}
}

// openFile opens a file and reads its beginning, so that a small one takes one message. What was
// read to its end is not kept open.
func (s *server) openFile(req request) (response, []byte, error) {
	f, info, err := s.local.Open(req.Name, req.Offset)
	if err != nil {
		return response{}, nil, err
	}
	handle, err := s.addHandle(f)
	if err != nil {
		return response{}, nil, err
	}
	resp, data, err := s.read(request{Handle: handle, Limit: readAhead})
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

func (s *server) read(req request) (response, []byte, error) {
	f, ok := s.open[req.Handle].(io.Reader)
	if !ok {
		return response{}, nil, errNoHandle
	}
	buf := make([]byte, min(max(req.Limit, 1), chunk))
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

func (s *server) list(name string, limit int) (response, []byte, error) {
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
	return resp, nil, err
}

// collect streams a tree. An error means that the client cannot be answered any more.
func (s *server) collect(r *bufio.Reader, out io.Writer) error {
	what, err := tree.ReadRequest(r)
	if err != nil {
		return err
	}
	// the daemon ends this process where it wants no more
	t, err := s.local.ReadTree(context.Background(), what)
	if err != nil {
		return writeMessage(out, &response{Error: toFailure(err)}, packResponse, nil)
	}
	defer func() { _ = t.Close() }()
	if err := writeMessage(out, &response{}, packResponse, nil); err != nil {
		return err
	}
	if broken, ok := errors.AsType[*tree.WriteError](tree.Send(out, t)); ok {
		return broken
	}
	return nil // whatever else ended the tree was told
}

// place takes the tree that follows its request. An error means that the client cannot be answered
// any more.
func (s *server) place(r *bufio.Reader, out io.Writer, req request) error {
	ctx := context.Background() // the daemon ends the stream, or this process, where it wants no more
	if !req.DryRun {
		_, _ = s.local.Recover(ctx) // what cannot be finished there is no reason not to place this
	}
	t := tree.NewReaderAny(r, dray.TreeLimits{})
	placed, err := s.local.WriteTree(ctx, t,
		dray.WriteTreeOptions{Executable: req.Executable, DryRun: req.DryRun})
	if err != nil {
		if err := writeMessage(out, &response{Error: toFailure(err)}, packResponse, nil); err != nil {
			return err
		}
		return rest(t)
	}
	for more := true; more; {
		n := min(len(placed), MaxList)
		resp := response{More: n < len(placed)}
		for _, p := range placed[:n] {
			resp.Outcomes = append(resp.Outcomes, outcomeOf(p))
		}
		if err := writeMessage(out, &resp, packResponse, nil); err != nil {
			return err
		}
		placed, more = placed[n:], resp.More
	}
	return nil
}

// rest reads what is left of a tree that is not wanted, so that the next request follows.
func rest(t *tree.Reader) error {
	for !t.Complete() {
		if _, err := t.Next(); err != nil && !t.Complete() {
			return errors.Join(errors.New("the rest of a tree"), err)
		}
	}
	return nil
}
