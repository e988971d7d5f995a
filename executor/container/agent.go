package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/internal/wire"
)

const (
	// handshakeTimeout bounds the wait for an agent's hello.
	handshakeTimeout = 10 * time.Second
	// maxReply bounds a message of an agent.
	maxReply = 256 << 10
)

// agent is one living agent.
type agent struct {
	mux     *wire.Mux
	hello   wire.Hello
	channel string
	cgroup  *cgroup.Manager // of all that it starts; nil where there is none

	calls   atomic.Int64  // in flight
	cleaned chan struct{} // closed when what it left behind was seen to
	proven  bool          // set by then: nothing of it is left
}

// placementError says that no agent can be had in a container that is otherwise well: the engine's
// own exec is used instead.
type placementError struct{ cause error }

func (e *placementError) Error() string { return e.cause.Error() }
func (e *placementError) Unwrap() error { return e.cause }

// connect places an agent in a running container and shakes hands with it. User is empty for the
// agent of all users.
func (e *Engine) connect(ctx context.Context, c Container, user string) (*agent, error) {
	arch := c.Arch
	if arch == "" {
		var err error
		if arch, err = e.engineArch(ctx); err != nil {
			return nil, err
		}
	}
	bin, err := agentbin.For(arch)
	if err != nil {
		return nil, &placementError{err}
	}
	e.recreateAgentDir(ctx, c)
	var first error
	if path, ok := e.writeToMount(c, bin); ok {
		a, err := e.startAgent(ctx, c, path, user)
		if err == nil || ctx.Err() != nil {
			return a, err
		}
		first = err
		e.log.Info("agent in its mounted folder does not answer, copied instead",
			zap.String("container", c.Name), zap.Error(err))
	}
	path, err := e.installAgent(ctx, c, bin)
	if err != nil {
		return nil, e.classifyConnectError(ctx, c, errors.Join(first, err))
	}
	a, err := e.startAgent(ctx, c, path, user)
	if err != nil {
		return nil, e.classifyConnectError(ctx, c, errors.Join(first, err))
	}
	return a, nil
}

// classifyConnectError tells a container that takes no agent from one that is gone and from an
// engine that does not answer.
func (e *Engine) classifyConnectError(ctx context.Context, c Container, cause error) error {
	if ctx.Err() != nil {
		return dray.Errorf(dray.CodeContainerUnavailable, "connecting to the agent in container %s: %w",
			c.Name, context.Cause(ctx)).
			WithHint("repeat the call; if it happens again, look at the engine's load and at the container's limits")
	}
	now, err := e.Inspect(ctx, c.ID)
	switch {
	case err != nil:
		return err
	case !now.Running():
		return now.NotRunning()
	case now.StartedAt != c.StartedAt:
		return dray.Errorf(dray.CodeContainerUnavailable, "container %s was restarted meanwhile", c.Name).
			WithHint("repeat the call")
	default:
		return &placementError{cause}
	}
}

// startAgent starts the agent's program and exchanges hellos.
func (e *Engine) startAgent(ctx context.Context, c Container, path, user string) (*agent, error) {
	execUser := user
	if execUser == "" {
		execUser = "0"
	}
	conn, err := e.openExec(ctx, c.ID, client.ExecCreateOptions{
		User: execUser, WorkingDir: "/",
		Cmd: []string{path, "serve"},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	a, err := e.exchangeHello(ctx, c, conn)
	if !stop() && err == nil {
		a.mux.Close()
		a.killLeftovers()
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		if noise := conn.stderrText(); noise != "" {
			err = fmt.Errorf("%w (it said: %s)", err, noise)
		}
		return nil, err
	}
	return a, nil
}

// exchangeHello exchanges hellos, and offers the socket where there can be one.
func (e *Engine) exchangeHello(ctx context.Context, c Container, conn *execStream) (*agent, error) {
	hello, err := wire.ReadHello(conn)
	if err != nil {
		return nil, err
	}
	ours := wire.Hello{Version: e.opts.Version, Lease: e.opts.Lease}
	d, err := e.openAgentListener(ctx, c)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return e.newAgent(conn, hello, channelStdio), wire.WriteHello(conn, ours)
	}
	defer d.close()
	ours.Dial = &d.dial
	if err := wire.WriteHello(conn, ours); err != nil {
		return nil, err
	}
	return e.selectChannel(ctx, c, hello, conn, d)
}

// What carries an agent's frames.
const (
	channelStdio  = "stdio"
	channelSocket = "socket"
)

func (e *Engine) newAgent(conn io.ReadWriteCloser, hello wire.Hello, channel string) *agent {
	mux := wire.NewMux(conn, wire.Config{MaxMessage: maxReply, Lease: e.opts.Lease / 3})
	return &agent{mux: mux, hello: hello, channel: channel, cleaned: make(chan struct{})}
}

// afterLoss gives a container as it is after its agent went. The agent goes before the engine knows
// that the container does: a container that still looks the same is looked at for a moment longer.
func (e *Engine) afterLoss(c Container) (Container, error) {
	// the call's own may be over
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	moment := time.Now().Add(500 * time.Millisecond)
	for {
		now, err := e.Inspect(ctx, c.ID)
		if err != nil || !now.Running() || now.StartedAt != c.StartedAt || time.Now().After(moment) {
			return now, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// lossError gives the end of an agent's connection its code: the container's fault where that has
// stopped, the engine's where it is gone.
func (e *Engine) lossError(c Container, cause error) error {
	if errors.Is(cause, wire.ErrClosed) || errors.Is(cause, errClosing) {
		return dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
			WithHint("repeat the call when it is up again")
	}
	if p, ok := errors.AsType[*wire.PanicError](cause); ok {
		return e.panicError("serving the agent in container "+c.Name, p.Value, p.Stack)
	}
	now, err := e.afterLoss(c)
	switch {
	case dray.CodeOf(err) == dray.CodeContainerNotFound:
		return dray.Errorf(dray.CodeContainerUnavailable, "container %s was removed while the call ran",
			c.Name).
			WithHint("bring it up again; the next call uses it")
	case dray.CodeOf(err) == dray.CodeEngineUnavailable:
		return err
	case err == nil && !now.Running():
		return dray.Errorf(dray.CodeContainerUnavailable,
			"container %s is %s: it went down while the call ran", c.Name, now.stateName()).
			WithHint("start it again (`dray workspace up`); the next call uses it")
	case err == nil && now.StartedAt != c.StartedAt:
		return dray.Errorf(dray.CodeContainerUnavailable, "container %s was restarted while the call ran",
			c.Name).
			WithHint("the next call runs in it again")
	default:
		return dray.Errorf(dray.CodeAgentLost, "the agent in container %s is lost: %w", c.Name, cause).
			WithHint("the next call starts it again; something in the container may have killed it")
	}
}

// errNoSocket says why agent.transport cannot be socket here.
var errNoSocket = errors.New("agent.transport is socket, and no socket is shared with the container")

// openAgentListener opens a door for an agent to the folder that this machine shares with the
// container; nil where none is to be had.
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
		e.log.Warn("no socket for the agent, stdio is used", zap.String("container", c.Name),
			zap.Error(err))
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

// selectChannel waits for what succeeds: the proof on the socket, or the agent's word that it stays
// on stdio. The connection ends with the context.
func (e *Engine) selectChannel(ctx context.Context, c Container, hello wire.Hello, conn *execStream,
	d *agentListener,
) (*agent, error) {
	said := make(chan stdioReply, 1)
	go func() { // ends with the word, or with the connection
		var a stdioReply
		if defect := e.recoverPanics("hearing an agent",
			func() { a.stay, a.err = wire.ReadFallback(conn) }); defect != nil {
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
				return nil, fmt.Errorf("waiting for the agent at its socket: %w",
					errors.Join(context.Cause(ctx), a.err))
			}
			return e.useStdio(c, hello, conn, a.stay)
		}
	}
}

// useStdio goes on over stdio.
func (e *Engine) useStdio(c Container, hello wire.Hello, conn *execStream,
	stay wire.StdioFallback,
) (*agent, error) {
	why := truncateMessages([]string{stay.Reason})[0]
	if e.opts.Transport == TransportSocket {
		return nil, fmt.Errorf("%w: %s", errNoSocket, why)
	}
	e.log.Info("the agent stays on stdio", zap.String("container", c.Name), zap.String("why", why))
	return e.newAgent(conn, hello, channelStdio), nil
}

// useSocket takes an agent that proved itself on the socket, and, before it starts anything, into a
// control group.
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
	a.cgroup = tree
	return a, nil
}

// joinCgroup puts an agent into a group of its own beneath its container's. It fails where this
// daemon is not root on the container's kernel, which shows in what it can open.
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
