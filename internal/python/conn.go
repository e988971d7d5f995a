package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/dray-dev/dray"
)

// The maximum sizes of assembled bodies in bytes.
const (
	maxHello = 64 << 10
	maxCall  = 4 << 20
	// maxReply is for a value and globals of [MaxValue] each, and the texts of a failure (1 MiB).
	maxReply = 2*MaxValue + 1<<20
)

// errWorkerEnded is returned by [Execution].Reply if the worker ended without a reply. Then
// [Worker].Exit returns how.
var errWorkerEnded = errors.New("the Python worker ended without a reply")

// conn is the daemon's end of the frames of one worker, for both runtimes. Its creator sets
// the fields that it needs, calls run in a goroutine of its own, and waits for the hello:
//
//	c := newConn(stdout, stdin, spec.Generation)
//	c.kill = worker.Kill
//	group.Go(func() { c.run() })
//	hello, err := c.hello(ctx)
//
// It is safe for concurrent use.
type conn struct {
	// kill ends the worker. conn calls it once, when the worker has violated the protocol or its
	// stdout has ended. It must not block, and must make blocked reads and writes end.
	kill func()
	// newBroker returns what receives the brokered calls of a request. If it is nil, such a call is a
	// violation. The caller of execute closes the broker when the request has ended.
	newBroker func(e *execution, req Request) *broker

	frames      *frameReader
	out         *frameWriter
	generation  uint32
	ready       chan struct{} // closed when workerHello is set
	workerHello Hello
	done        chan struct{} // closed when err is set

	mu      sync.Mutex
	err     error
	request uint32     // of the last execution
	active  *execution // nil if no request runs
}

// newConn returns the conn of a worker whose frames come from r, and whose stdin is w.
func newConn(r io.Reader, w io.Writer, generation uint32) *conn {
	return &conn{
		frames: newFrameReader(r, generation), out: newFrameWriter(w, generation),
		generation: generation, kill: func() {},
		ready: make(chan struct{}), done: make(chan struct{}),
	}
}

// run reads frames until the worker ends or violates the protocol. Then it kills the worker, ends
// the request that runs, and returns when all reads and writes have ended.
func (c *conn) run() error {
	kill := sync.OnceFunc(c.kill)
	var writer sync.WaitGroup
	writer.Go(func() {
		if c.out.run() != nil {
			kill() // code closed the worker's stdin, or the worker has ended
		}
	})
	err := c.readFrames()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errWorkerEnded
	}
	kill()
	c.out.stop()
	c.end(err)
	writer.Wait()
	return err
}

// end ends the conn and the request that runs.
func (c *conn) end(err error) {
	c.mu.Lock()
	e := c.active
	c.active, c.err = nil, err
	close(c.done)
	c.mu.Unlock()
	if e != nil {
		e.end(Reply{}, err)
	}
}

// hello blocks until the worker is ready, and returns its hello. It fails if the worker ends first,
// and with the cause of ctx if ctx ends first.
func (c *conn) hello(ctx context.Context) (Hello, error) {
	select {
	case <-c.ready:
		return c.workerHello, nil
	case <-c.done:
		return Hello{}, c.err
	case <-ctx.Done():
		return Hello{}, context.Cause(ctx)
	}
}

// nextRequest returns the number of the next request, which the caller is about to start.
func (c *conn) nextRequest() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.request + 1
}

// execute starts a request. It does not block. The worker must send changes if they are not nil.
func (c *conn) execute(req Request, changes *changes) (*execution, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "encode a request for Python: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case c.active != nil:
		return nil, dray.Errorf(dray.CodeInternal, "the Python worker runs a request already")
	}
	c.request++
	e := newExecution(c, c.request, req.Globals, changes)
	if c.newBroker != nil {
		e.broker = c.newBroker(e, req)
	}
	c.active = e
	c.out.add(message{
		request: e.request, part: kindRequest, last: kindRequestEnd, body: body, until: e.done,
	})
	return e, nil
}

// readFrames handles frames until one is invalid or the stream ends.
func (c *conn) readFrames() error {
	for {
		// A byte while no request runs is a violation, also if no whole frame follows.
		if err := c.frames.wait(); err != nil {
			return err
		}
		e := c.running()
		if e == nil && c.isReady() {
			return protocolError("it wrote while no request ran")
		}
		h, err := c.frames.next()
		if err != nil {
			return err
		}
		if e == nil {
			err = c.receiveHello(h)
		} else {
			err = c.handle(e, h)
		}
		if err != nil {
			return err
		}
	}
}

func (c *conn) running() *execution {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}

func (c *conn) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// receiveHello receives the first frame, which must be a hello.
func (c *conn) receiveHello(h header) error {
	if h.kind != kindHello || h.request != 0 || h.body > maxHello {
		return protocolError("its first frame is of type %q with %d bytes for request %d, not a hello",
			byte(h.kind), h.body, h.request)
	}
	body, err := c.frames.read(nil, h.body)
	if err != nil {
		return err
	}
	hello, err := checkHello(body)
	if err != nil {
		return err
	}
	c.workerHello = hello
	close(c.ready)
	return nil
}

// handle receives a frame of the request that runs.
func (c *conn) handle(e *execution, h header) error {
	if h.request != e.request {
		return protocolError("a frame is of request %d, not %d", h.request, e.request)
	}
	switch h.kind {
	case kindStdout:
		return c.frames.copyTo(e.stdout.w, h.body)
	case kindStderr:
		return c.frames.copyTo(e.stderr.w, h.body)
	case kindChanged, kindChangedEnd:
		return e.receiveFiles(h)
	case kindCall, kindCallEnd:
		return e.receiveCall(h)
	case kindReply, kindReplyEnd, kindCPULimit:
		return e.receiveReply(h)
	default:
		return protocolError("a frame has the type %q", byte(h.kind))
	}
}

// finish ends a request by its reply.
func (c *conn) finish(e *execution, reply Reply) {
	c.mu.Lock()
	c.active = nil
	c.mu.Unlock()
	e.end(reply, nil)
}

// assembly is a body that arrives in several frames.
type assembly struct {
	body  bytes.Buffer
	limit int
}

// add reads a part. It checks the limit before it reads.
func (a *assembly) add(f *frameReader, h header) error {
	if a.body.Len()+h.body > a.limit {
		return protocolError("a body of type %q is larger than %d bytes", byte(h.kind), a.limit)
	}
	return f.copyTo(&a.body, h.body)
}

// take returns the body and starts the next one.
func (a *assembly) take() []byte {
	b := a.body.Bytes()
	a.body = bytes.Buffer{}
	return b
}
