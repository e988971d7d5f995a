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
	mux     *wire.Mux
	hello   wire.Hello
	channel Channel
	cgroup  *cgroup.Manager // of all processes that it starts; nil if there is none

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
		a.verified = verified && len(pids) == 0
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
	user = cmp.Or(user, "0")
	ways, err := n.c.Placements(ctx)
	errs := []error{err}
	for _, place := range ways {
		a, err := n.start(ctx, place, user)
		if err == nil {
			return a, nil
		}
		n.log.Info("agent start failed", zap.Error(err))
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, n.classify(ctx, errors.Join(errs...))
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

func (n connector) start(ctx context.Context, place Placement, user string) (*agent, error) {
	conn, err := place(ctx, user)
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
	if p, ok := conn.(interface{ Stderr() string }); ok && p.Stderr() != "" {
		err = fmt.Errorf("%w (stderr: %s)", err, p.Stderr())
	}
	return nil, err
}

// exchangeHello exchanges hellos and offers a socket if there is a directory for it.
func (n connector) exchangeHello(ctx context.Context, conn io.ReadWriteCloser) (*agent, error) {
	hello, err := wire.ReadHello(conn)
	if err != nil {
		return nil, err
	}
	ours := wire.Hello{Version: n.Version, Lease: n.Lease}
	l, err := n.listen(ctx, pidOf(ctx, conn))
	if err != nil {
		return nil, err
	}
	if l == nil {
		return n.newAgent(conn, hello, Stdio), wire.WriteHello(conn, ours)
	}
	defer l.close()
	ours.Dial = &l.dial
	if err := wire.WriteHello(conn, ours); err != nil {
		return nil, err
	}
	return n.selectChannel(ctx, hello, conn, l)
}

func (n connector) newAgent(conn io.ReadWriteCloser, hello wire.Hello, channel Channel) *agent {
	mux := wire.NewMux(conn, wire.Config{MaxMessage: maxReply, Lease: n.Lease / 3})
	return &agent{mux: mux, hello: hello, channel: channel, cleaned: make(chan struct{})}
}

// errNoSocket is returned when Config.Channel is Socket and the agent cannot use one.
var errNoSocket = errors.New("no socket is shared with the container (agent.transport is socket)")

// pidOf returns the pid of the agent behind conn on the engine's machine, 0 if it is not known.
func pidOf(ctx context.Context, conn io.ReadWriteCloser) int {
	if p, ok := conn.(interface{ PID(ctx context.Context) int }); ok {
		return p.PID(ctx)
	}
	return 0
}

// listen opens a socket for the agent with the given pid. It returns nil if stdio is to be used.
func (n connector) listen(ctx context.Context, agentPID int) (*listener, error) {
	if n.Channel == Stdio {
		return nil, nil //nolint:nilnil // documented
	}
	local, inside, err := n.c.SocketDir()
	if err == nil {
		var l *listener
		if l, err = listen(ctx, n.log, local, inside, agentPID); err == nil {
			return l, nil
		}
		n.log.Warn("agent socket failed, stdio is used", zap.Error(err))
	}
	if n.Channel == Socket {
		return nil, fmt.Errorf("%w: %w", errNoSocket, err)
	}
	return nil, nil //nolint:nilnil // documented
}

// fallbackReply is the message of an agent on stdio that could not use the socket.
type fallbackReply struct {
	wire.StdioFallback
	err error
}

// selectChannel waits until the agent has authenticated on the socket or reports on stdio that it
// stays there. The end of ctx closes conn.
func (n connector) selectChannel(ctx context.Context, hello wire.Hello, conn io.ReadWriteCloser,
	l *listener,
) (*agent, error) {
	fallback := make(chan fallbackReply, 1)
	go func() { // ends when conn is closed
		var f fallbackReply
		if err := logging.RecoverPanics(n.log, "reading the channel of an agent",
			func() { f.StdioFallback, f.err = wire.ReadFallback(conn) }); err != nil {
			f.err = err
		}
		fallback <- f
	}()
	authenticated := l.authenticated
	for {
		select {
		case socket := <-authenticated:
			if socket == nil { // the listener failed: the agent reports it on stdio
				authenticated = nil
				continue
			}
			_ = conn.Close() // the agent needs it no longer
			return n.useSocket(hello, socket)
		case f := <-fallback:
			if f.err != nil {
				return nil, fmt.Errorf("wait for the agent on its socket: %w",
					errors.Join(context.Cause(ctx), f.err))
			}
			return n.useStdio(hello, conn, f.Reason)
		}
	}
}

func (n connector) useStdio(hello wire.Hello, conn io.ReadWriteCloser, reason string,
) (*agent, error) {
	reason = truncateMessages([]string{reason})[0]
	if n.Channel == Socket {
		return nil, fmt.Errorf("%w: %s", errNoSocket, reason)
	}
	n.log.Info("agent uses stdio", zap.String("reason", reason))
	return n.newAgent(conn, hello, Stdio), nil
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
