package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/wire"
)

// Channel is the connection that carries the frames of an agent.
type Channel string

// The channels. AnyChannel is the socket if the agent reaches it, else stdio.
const (
	AnyChannel Channel = ""
	Socket     Channel = "socket"
	Stdio      Channel = "stdio"
)

const (
	// helloTimeout bounds the wait for the hello of an agent and for its choice of the channel.
	helloTimeout = 10 * time.Second
	// maxReply bounds one message of an agent, in bytes.
	maxReply = 256 << 10
	// leftoverKillTimeout bounds the wait for the end of the processes of a lost agent.
	leftoverKillTimeout = time.Second
)

// agent is a connected agent.
type agent struct {
	mux      *wire.Mux
	hello    wire.Hello
	channel  Channel
	cgroup   *cgroup.Manager // of all processes that it starts; nil if there is none
	canLeave bool            // its processes can leave the cgroup

	calls    atomic.Int64  // in flight
	cleaned  chan struct{} // closed when killLeftovers has returned
	verified bool          // set before cleaned is closed: no process of it is left
}

// killLeftovers kills the processes of a lost agent by its cgroup. It reports false if calls were
// lost with the agent and may have left processes.
func (a *agent) killLeftovers() (clean bool) {
	defer close(a.cleaned)
	if a.cgroup != nil {
		pids, verified := a.cgroup.KillAndWait(leftoverKillTimeout)
		// the survivors' pids are of this machine and mean nothing in the container
		a.verified = verified && len(pids) == 0 && !a.canLeave
		_ = a.cgroup.Close() // a process stuck in the kernel is left to the next sweep
	}
	return a.verified || a.calls.Load() == 0
}

// PlacementError is returned when a healthy container cannot run an agent.
type PlacementError struct{ error }

// Unwrap returns the cause.
func (e *PlacementError) Unwrap() error { return e.error }

// connector connects to the agents of one container.
type connector struct {
	Config
	c   Container
	log *zap.Logger
}

// connect starts an agent as user, which is empty for an agent that serves all users.
func (n connector) connect(ctx context.Context, user string) (*agent, error) {
	a, err := n.start(ctx, cmp.Or(user, "0"))
	if err != nil {
		n.log.Info("agent start failed", zap.Error(err))
		return nil, n.classify(ctx, err)
	}
	return a, nil
}

// classify turns the error of connect into the reason: a stopped container, an engine that does not
// answer, or a PlacementError.
func (n connector) classify(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return dray.Errorf(dray.CodeContainerUnavailable, "connect to the agent in container %s: %w",
			n.c.Metadata.Name, context.Cause(ctx)).
			WithHint("repeat the call; if it fails again, check the load and the container's limits")
	}
	now, err := n.c.State(ctx)
	if err == nil {
		err = n.stateError(now, "while dray connected to it")
	}
	if err != nil {
		return err
	}
	return &PlacementError{cause}
}

// stateError returns the error of a call whose container stopped or was restarted, else nil.
func (n connector) stateError(now State, when string) error {
	if !now.Running {
		return dray.Errorf(dray.CodeContainerUnavailable, "container %s stopped %s (state: %s)",
			n.c.Metadata.Name, when, now.Status).
			WithHint("start it, for example with `dray workspace up`, and repeat the call")
	}
	if now.StartedAt != n.c.StartedAt {
		return dray.Errorf(dray.CodeContainerUnavailable, "container %s was restarted %s",
			n.c.Metadata.Name, when).WithHint("repeat the call")
	}
	return nil
}

func (n connector) start(ctx context.Context, user string) (*agent, error) {
	conn, err := n.c.Start(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	a, err := n.exchangeHello(ctx, conn)
	if !stop() && err == nil {
		a.mux.Close()
		a.killLeftovers()
		err = ctx.Err()
	}
	if err == nil {
		return a, nil
	}
	_ = conn.Close()
	if text := conn.Stderr(); text != "" {
		err = fmt.Errorf("%w (stderr: %s)", err, text)
	}
	return nil, err
}

// exchangeHello exchanges hellos and selects the channel: a socket if the agent's process is on
// this machine and both sides authenticate there, else stdio.
func (n connector) exchangeHello(ctx context.Context, conn Conn) (*agent, error) {
	hello, err := wire.ReadHello(conn)
	if err != nil {
		return nil, err
	}
	ours := wire.Hello{Version: n.Version, Lease: n.Lease}
	if n.Channel == Stdio {
		return n.newAgent(conn, hello, Stdio), wire.WriteHello(conn, ours)
	}
	process, err := findAgent(ctx, conn, hello)
	if err != nil {
		return n.useStdio(conn, hello, err, wire.WriteHello(conn, ours))
	}
	ours.Listen = process.socketRequest()
	var reply wire.Listening
	if err = wire.WriteHello(conn, ours); err == nil {
		reply, err = wire.ReadListening(conn)
	}
	if err != nil {
		process.close()
		return nil, fmt.Errorf("ask the agent to listen: %w", err)
	}
	socket, err := n.dialSocket(ctx, process, reply, ours.Listen.Secret)
	switch {
	case err == nil:
		defer func() { _ = conn.Close() }() // the agent needs it no longer
		return n.useSocket(hello, socket)
	case reply.Reason != "":
		return n.useStdio(conn, hello, err, nil)
	default:
		return n.useStdio(conn, hello, err, wire.WriteFallback(conn, err))
	}
}

func (n connector) newAgent(conn io.ReadWriteCloser, hello wire.Hello, channel Channel) *agent {
	mux := wire.NewMux(conn, wire.Config{MaxMessage: maxReply, Lease: n.Lease / 3})
	return &agent{mux: mux, hello: hello, channel: channel, cleaned: make(chan struct{})}
}

// errNoSocket is returned when Config.Channel is Socket and the agent cannot use one.
var errNoSocket = errors.New("the agent's socket cannot be used, and agent.transport is socket")

// useStdio continues on stdio because of reason. sent is the result of telling the agent.
func (n connector) useStdio(conn Conn, hello wire.Hello, reason, sent error) (*agent, error) {
	if n.Channel == Socket {
		return nil, fmt.Errorf("%w: %w", errNoSocket, reason)
	}
	n.log.Info("agent uses stdio", zap.NamedError("reason", reason))
	return n.newAgent(conn, hello, Stdio), sent
}

// useSocket moves an authenticated agent into a cgroup before it starts anything.
func (n connector) useSocket(hello wire.Hello, socket *wire.Socket) (*agent, error) {
	group, err := n.joinCgroup(socket.PeerPID())
	if err != nil {
		n.log.Info("agent cgroup failed", zap.Error(err))
	}
	if err := wire.ConfirmAgent(socket); err != nil {
		_ = socket.Close()
		if group != nil {
			_ = group.Close()
		}
		return nil, err
	}
	a := n.newAgent(socket, hello, Socket)
	a.cgroup = group
	a.canLeave = cgroup.CanLeave(socket.PeerPID())
	return a, nil
}

// joinCgroup moves an agent into a new cgroup below that of its container. It fails if this daemon
// is not root on the container's kernel.
func (n connector) joinCgroup(pid int) (*cgroup.Manager, error) {
	path, err := n.c.CgroupPath(pid)
	if err != nil {
		return nil, err
	}
	group, err := cgroup.NewManager(path)
	if err != nil {
		return nil, err
	}
	if err := group.AddProc(pid); err != nil {
		_ = group.Close()
		return nil, err
	}
	return group, nil
}

// The agent exits before the engine notices that its container stopped: a container that looks
// unchanged is inspected again for settleTime.
const (
	settleTime       = 500 * time.Millisecond
	settleInterval   = 50 * time.Millisecond
	lossStateTimeout = 2 * time.Second
)

func (n connector) stateAfterLoss() (State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lossStateTimeout) // the call may be over
	defer cancel()
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for settled := time.Now().Add(settleTime); ; <-tick.C {
		now, err := n.c.State(ctx)
		if err != nil || !now.Running || now.StartedAt != n.c.StartedAt || time.Now().After(settled) {
			return now, err
		}
	}
}

// lossError turns the end of a connection into the error of its calls: the container stopped, the
// engine does not answer, or the agent was lost.
func (n connector) lossError(cause error) error {
	if errors.Is(cause, wire.ErrClosed) || errors.Is(cause, errClosed) {
		return dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
			WithHint("repeat the call when it runs again")
	}
	name := n.c.Metadata.Name
	if p, ok := errors.AsType[*wire.PanicError](cause); ok {
		return logging.PanicError(n.log, "serving the agent in container "+name, p.Value, p.Stack)
	}
	now, err := n.stateAfterLoss()
	switch {
	case dray.CodeOf(err) == dray.CodeContainerNotFound:
		return dray.Errorf(dray.CodeContainerUnavailable,
			"container %s was removed while the call was running", name).
			WithHint("create it again, for example with `dray workspace up`, and repeat the call")
	case dray.CodeOf(err) == dray.CodeEngineUnavailable:
		return err
	case err == nil:
		if err := n.stateError(now, "while the call was running"); err != nil {
			return err
		}
	}
	return dray.Errorf(dray.CodeAgentLost, "lost the agent in container %s: %w", name, cause).
		WithHint("repeat the call: it starts the agent again, which a process may have killed")
}

// Loss returns the error of a call whose connection into the container ended with cause.
func (p *Pool) Loss(c Container, cause error) error { return p.connector(c).lossError(cause) }
