package main

import (
	"context"
	"sync"
	"syscall"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

// call is a stream with the requests for its process. A stop, or the end of the stream, ends the
// process or prevents its start.
type call struct {
	stream   *wire.Stream
	ctx      context.Context //nolint:containedctx // of the start: ends with the first stop
	stop     context.CancelFunc
	allowed  chan struct{} // closed by Request.Go
	requests sync.WaitGroup

	mu   sync.Mutex
	proc *process.Process // nil before it has started
}

// newCall handles the requests of a stream until it ends.
func newCall(s *wire.Stream) *call {
	c := &call{stream: s, allowed: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.requests.Go(c.handleRequests)
	return c
}

func (c *call) handleRequests() {
	defer c.stop()
	for {
		b, err := c.stream.Receive()
		var req wire.Request
		if err == nil {
			err = wire.Decode(b, &req)
		}
		if err != nil {
			c.handle(wire.Request{Stop: &wire.Stop{}})
			return
		}
		c.handle(req)
	}
}

func (c *call) handle(req wire.Request) {
	if req.Go {
		c.allow()
	}
	if req.Stop != nil {
		c.stop()
	}
	c.mu.Lock()
	proc := c.proc
	c.mu.Unlock()
	if proc != nil {
		handleRequest(req, proc)
	}
}

// allow closes allowed once. Only handleRequests calls it.
func (c *call) allow() {
	select {
	case <-c.allowed:
	default:
		close(c.allowed)
	}
}

// started sets the process, and stops it if the start was abandoned meanwhile.
func (c *call) started(proc *process.Process) {
	c.mu.Lock()
	c.proc = proc
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		proc.Stop(0)
	}
}

// permission waits until the daemon allows the start.
func (c *call) permission() error {
	err := c.stream.Send(&wire.Reply{Ready: true})
	if err != nil {
		return err
	}
	select {
	case <-c.allowed:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func handleRequest(req wire.Request, proc *process.Process) {
	if req.Signal != 0 {
		_ = proc.Signal(syscall.Signal(req.Signal)) // the process may have ended
	}
	if req.Resize != nil {
		_ = proc.Resize(*req.Resize) // it may have no terminal
	}
	if req.Stop != nil {
		proc.Stop(req.Stop.Grace)
	}
}
