package container

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/internal/wire"
)

// errNoSocket says why agent.transport cannot be socket here.
var errNoSocket = errors.New("agent.transport is socket, and no socket is shared with the container")

// offer opens a door for an agent to the folder that this machine shares with the container; nil where none is to be had.
func (e *Engine) offer(ctx context.Context, c Container) (*door, error) {
	if e.opts.Transport == TransportStdio {
		return nil, nil //nolint:nilnil // as said
	}
	folder, ok := e.sharedFolder(c)
	var err error
	switch {
	case !ok:
		err = errors.New("the container was made without dray's folder, or for another daemon")
	default:
		var d *door
		if d, err = e.openDoor(ctx, folder); err == nil {
			return d, nil
		}
		e.log.Warn("no socket for the agent, stdio is used", zap.String("container", c.Name), zap.Error(err))
	}
	if e.opts.Transport == TransportSocket {
		return nil, fmt.Errorf("%w: %w", errNoSocket, err)
	}
	return nil, nil //nolint:nilnil // as said
}

// answer is what an agent says on its stdio when it was told to dial.
type answer struct {
	stay wire.Stay
	err  error
}

// choose waits for what succeeds: the proof on the socket, or the agent's word that it stays on stdio. The connection ends with the context.
func (e *Engine) choose(ctx context.Context, c Container, hello wire.Hello, conn *attached, d *door) (*agent, error) {
	said := make(chan answer, 1)
	go func() { // ends with the word, or with the connection
		var a answer
		if defect := e.guard("hearing an agent", func() { a.stay, a.err = wire.HearStay(conn) }); defect != nil {
			a.err = defect
		}
		said <- a
	}()
	proven := d.proven
	for {
		select {
		case socket := <-proven:
			if socket == nil { // no more dialers can be taken: the agent will say so
				proven = nil
				continue
			}
			_ = conn.Close() // of no more use, and nothing that the agent needs
			return e.welcome(c, hello, socket)
		case a := <-said:
			if a.err != nil {
				return nil, fmt.Errorf("waiting for the agent at its socket: %w", errors.Join(context.Cause(ctx), a.err))
			}
			return e.stay(c, hello, conn, a.stay)
		}
	}
}

// stay goes on over stdio.
func (e *Engine) stay(c Container, hello wire.Hello, conn *attached, stay wire.Stay) (*agent, error) {
	why := bounded([]string{stay.Why})[0]
	if e.opts.Transport == TransportSocket {
		return nil, fmt.Errorf("%w: %s", errNoSocket, why)
	}
	e.log.Info("the agent stays on stdio", zap.String("container", c.Name), zap.String("why", why))
	return e.newAgent(conn, hello, channelStdio), nil
}

// welcome takes an agent that proved itself on the socket, and, before it starts anything, into a control group.
func (e *Engine) welcome(c Container, hello wire.Hello, socket *wire.Socket) (*agent, error) {
	tree, err := adopt(c, socket.PeerPID())
	if err != nil {
		e.log.Info("no control group for the container", zap.String("container", c.Name), zap.Error(err))
	}
	if err := wire.Welcome(socket); err != nil {
		_ = socket.Close()
		if tree != nil {
			_ = tree.Close()
		}
		return nil, err
	}
	a := e.newAgent(socket, hello, channelSocket)
	a.tree, a.pid = tree, socket.PeerPID()
	return a, nil
}

// adopt puts an agent into a group of its own beneath its container's. It fails where this daemon is not root on the container's kernel,
// which shows in what it can open.
func adopt(c Container, pid int) (*cgroup.Tree, error) {
	folder, err := cgroup.OfContainer(c.ID, pid)
	if err != nil {
		return nil, err
	}
	tree, err := cgroup.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := tree.Adopt(pid); err != nil {
		_ = tree.Close()
		return nil, err
	}
	return tree, nil
}
