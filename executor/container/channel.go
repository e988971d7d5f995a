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

// openAgentListener opens a door for an agent to the folder that this machine shares with the container; nil where none is to be had.
func (e *Engine) openAgentListener(ctx context.Context, c Container) (*agentListener, error) {
	if e.opts.Transport == TransportStdio {
		return nil, nil //nolint:nilnil // as said
	}
	folder, ok := e.agentDirOf(c)
	var err error
	switch {
	case !ok:
		err = errors.New("the container was made without dray's folder, or for another daemon")
	default:
		var d *agentListener
		if d, err = e.listenForAgent(ctx, folder); err == nil {
			return d, nil
		}
		e.log.Warn("no socket for the agent, stdio is used", zap.String("container", c.Name), zap.Error(err))
	}
	if e.opts.Transport == TransportSocket {
		return nil, fmt.Errorf("%w: %w", errNoSocket, err)
	}
	return nil, nil //nolint:nilnil // as said
}

// stdioReply is what an agent says on its stdio when it was told to dial.
type stdioReply struct {
	stay wire.StdioFallback
	err  error
}

// selectChannel waits for what succeeds: the proof on the socket, or the agent's word that it stays on stdio. The connection ends with the context.
func (e *Engine) selectChannel(ctx context.Context, c Container, hello wire.Hello, conn *execStream, d *agentListener) (*agent, error) {
	said := make(chan stdioReply, 1)
	go func() { // ends with the word, or with the connection
		var a stdioReply
		if defect := e.recoverPanics("hearing an agent", func() { a.stay, a.err = wire.ReadFallback(conn) }); defect != nil {
			a.err = defect
		}
		said <- a
	}()
	proven := d.authenticated
	for {
		select {
		case socket := <-proven:
			if socket == nil { // no more dialers can be taken: the agent will say so
				proven = nil
				continue
			}
			_ = conn.Close() // of no more use, and nothing that the agent needs
			return e.useSocket(c, hello, socket)
		case a := <-said:
			if a.err != nil {
				return nil, fmt.Errorf("waiting for the agent at its socket: %w", errors.Join(context.Cause(ctx), a.err))
			}
			return e.useStdio(c, hello, conn, a.stay)
		}
	}
}

// useStdio goes on over stdio.
func (e *Engine) useStdio(c Container, hello wire.Hello, conn *execStream, stay wire.StdioFallback) (*agent, error) {
	why := truncateMessages([]string{stay.Reason})[0]
	if e.opts.Transport == TransportSocket {
		return nil, fmt.Errorf("%w: %s", errNoSocket, why)
	}
	e.log.Info("the agent stays on stdio", zap.String("container", c.Name), zap.String("why", why))
	return e.newAgent(conn, hello, channelStdio), nil
}

// useSocket takes an agent that proved itself on the socket, and, before it starts anything, into a control group.
func (e *Engine) useSocket(c Container, hello wire.Hello, socket *wire.Socket) (*agent, error) {
	tree, err := joinCgroup(c, socket.PeerPID())
	if err != nil {
		e.log.Info("no control group for the container", zap.String("container", c.Name), zap.Error(err))
	}
	if err := wire.ConfirmAgent(socket); err != nil {
		_ = socket.Close()
		if tree != nil {
			_ = tree.Close()
		}
		return nil, err
	}
	a := e.newAgent(socket, hello, channelSocket)
	a.cgroup, a.pid = tree, socket.PeerPID()
	return a, nil
}

// joinCgroup puts an agent into a group of its own beneath its container's. It fails where this daemon is not root on the container's kernel,
// which shows in what it can open.
func joinCgroup(c Container, pid int) (*cgroup.Manager, error) {
	folder, err := cgroup.ContainerPath(c.ID, pid)
	if err != nil {
		return nil, err
	}
	tree, err := cgroup.NewManager(folder)
	if err != nil {
		return nil, err
	}
	if err := tree.AddProc(pid); err != nil {
		_ = tree.Close()
		return nil, err
	}
	return tree, nil
}
