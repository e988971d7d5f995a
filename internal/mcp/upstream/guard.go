package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxUnanswered bounds the requests of a server whose answers are not written yet. The SDK keeps
// all of them, and a server that does not read its stdin gets no answer.
const maxUnanswered = 256

var (
	errUnread     = errors.New("it did not read its stdin")
	errUnanswered = fmt.Errorf("it sent more than %d requests and read no answer", maxUnanswered)
)

// guardedTransport bounds what a server costs that sends without end or reads nothing.
type guardedTransport struct {
	sdk.Transport

	grace time.Duration
	stop  func(error) // ends the server
}

// Connect implements [sdk.Transport].
func (t guardedTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &guardedConnection{Connection: conn, grace: t.grace, stop: t.stop}, nil
}

type guardedConnection struct {
	sdk.Connection

	grace      time.Duration
	stop       func(error)
	unanswered atomic.Int32
}

// Read implements [sdk.Connection]. It leaves out notifications, because the client has no use for
// them. It ends a server that cannot be read any more, also while no call waits for it.
func (c *guardedConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := c.Connection.Read(ctx)
		request, ok := msg.(*jsonrpc.Request)
		switch {
		case err != nil:
		case !ok:
			return msg, nil
		case !request.IsCall():
			continue
		case c.unanswered.Add(1) <= maxUnanswered:
			return msg, nil
		default:
			err = errUnanswered
		}
		if !errors.Is(err, io.EOF) { // else the process has most likely ended, which says more
			c.stop(err)
		}
		return nil, err
	}
}

// Write implements [sdk.Connection]. The SDK blocks until the server has read enough, whatever
// happens to ctx. So the server is ended if that is not within the grace after the end of ctx.
func (c *guardedConnection) Write(ctx context.Context, msg jsonrpc.Message) error {
	if _, ok := msg.(*jsonrpc.Response); ok {
		defer c.unanswered.Add(-1)
	}
	written := make(chan struct{})
	defer close(written)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-written:
		case <-time.After(c.grace):
			c.stop(errUnread)
		}
	})()
	return c.Connection.Write(ctx, msg)
}
