package container

import (
	"context"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

// agentProcess is a process behind an agent.
type agentProcess struct {
	env           *environment
	agent         *agent
	stream        *wire.Stream
	pipes         *process.Pipes // nil where the streams are framed
	terminal      bool
	keepLeftovers bool // the caller allowed leftovers
	pid           int  // in the container's numbering, as the agent says
	warnings      []string
	done          chan struct{} // closed when exit and err are set
	exit          dray.Exit
	err           error

	mu           sync.Mutex
	stopTimer    *time.Timer // set by Stop: the agent has to tell the end by then
	stopDeadline time.Time
	stopTimedOut bool
}

func newProcess(e *environment, a *agent, stream *wire.Stream, pipes *process.Pipes,
	req wire.Start,
) *agentProcess {
	a.calls.Add(1)
	return &agentProcess{
		env: e, agent: a, stream: stream, pipes: pipes, terminal: req.Terminal != nil,
		keepLeftovers: req.KeepLeftovers, done: make(chan struct{}),
	}
}

// accepted waits for the agent's first answer. A caller that gives up takes the process with it.
func (p *agentProcess) accepted(ctx context.Context) (*agentProcess, error) {
	stop := context.AfterFunc(ctx, p.stream.Close)
	b, err := p.stream.Receive()
	if !stop() {
		p.release()
		return nil, context.Cause(ctx)
	}
	var reply wire.Reply
	if err == nil {
		err = wire.Decode(b, &reply)
	}
	if err == nil && reply.Failed == nil && reply.Started == nil {
		err = wire.ErrProtocol
	}
	if err != nil || reply.Failed != nil {
		p.release()
	}
	switch {
	case err != nil:
		// the call may be over; afterLoss has a bound of its own
		return nil, p.env.engine.lossError(p.env.target.Container, err) //nolint:contextcheck
	case reply.Failed != nil:
		return nil, failedStart(reply.Failed)
	}
	p.pid = reply.Started.PID
	p.warnings = append(truncateMessages(reply.Started.Warnings),
		p.env.engine.dirt.warningsFor(p.env.key())...)
	go func() { //nolint:contextcheck // the call may be over; afterLoss has a bound of its own
		defer close(p.done) // with the process, or with the agent's connection
		defer p.agent.calls.Add(-1)
		if defect := p.env.engine.recoverPanics("following a process",
			func() { p.exit, p.err = p.end() }); defect != nil {
			p.exit, p.err = dray.Exit{}, defect
			p.closeStream()
		}
	}()
	return p, nil
}

// release lets go of a process that was not started, or is not wanted.
func (p *agentProcess) release() {
	p.agent.calls.Add(-1)
	p.closeStream()
}

// closeStream ends the process by ending its stream, and whatever is read of it or written to it.
func (p *agentProcess) closeStream() {
	p.stream.Close()
	if p.pipes != nil {
		p.pipes.Close()
	}
}

// Warnings are what the agent said at the start, such as a shell that was not asked for its
// environment.
func (p *agentProcess) Warnings() []string { return p.warnings }

func (p *agentProcess) end() (dray.Exit, error) {
	x, err := p.exited()
	// all framed output came before; an agent that sends no end of file keeps no reader waiting
	p.stream.Close()
	silent := p.cancelStopTimer()
	if err != nil {
		return p.lost(err, silent)
	}
	p.finish()
	p.keep(x.Kept)
	survivors := dray.Survivors{Proven: x.Proven, PIDs: x.Survivors}
	if x.Lost {
		if !x.Proven {
			p.env.engine.dirt.taint(p.env.key())
		}
		return dray.Exit{Survivors: survivors},
			dray.Errorf(dray.CodeAgentLost,
				"the supervisor of the call was killed in container %s, or another process traces the tool; how it ended is not known", p.env.target.Container.Name).
				WithHint("a tool that runs as root can do that; let it run as another user (remoteUser)")
	}
	return dray.Exit{
		Code: x.Code, Signal: syscall.Signal(x.Signal), Leftover: x.Leftover, KeptPIDs: x.Kept, OOM: x.OOM, Survivors: survivors,
	}, nil
}

// lost is the end of a call whose agent told none. What is still in its pipes is read once the
// agent's group was ended.
func (p *agentProcess) lost(err error, silent bool) (dray.Exit, error) {
	c := p.env.target.Container
	if silent {
		p.finish()
		p.env.engine.dirt.taint(p.env.key())
		return dray.Exit{}, dray.Errorf(dray.CodeAgentLost,
			"the agent in container %s did not end the call as it was told", c.Name).
			WithHint("what the call started may still run there; restart the container")
	}
	var survivors dray.Survivors
	if p.agent.mux.Err() != nil {
		<-p.agent.cleaned
		survivors.Proven = p.agent.proven
	}
	p.finish()
	return dray.Exit{Survivors: survivors}, p.env.engine.lossError(c, err)
}

// keep takes what the caller wanted kept out of the group that ends with the agent. The agent is
// not given the means to do so: with them a root tool could leave its group too.
func (p *agentProcess) keep(pids []int) {
	if len(pids) == 0 || p.agent.cgroup == nil {
		return
	}
	if err := p.agent.cgroup.Release(pids); err != nil {
		p.env.engine.log.Warn("kept processes stay in the agent's group and end with it", zap.Error(err))
	}
}

func (p *agentProcess) finish() {
	if p.pipes != nil {
		p.pipes.Finish()
	}
}

// exited waits for the agent's last word, and takes none that no process can have earned.
func (p *agentProcess) exited() (*wire.Exited, error) {
	b, err := p.stream.Receive()
	if err != nil {
		return nil, err
	}
	var reply wire.Reply
	if err := wire.Decode(b, &reply); err != nil {
		return nil, err
	}
	x := reply.Exited
	if x == nil || x.Code < 0 || x.Code > 255 || x.Signal < 0 || x.Signal > 64 || x.Leftover < 0 ||
		x.Leftover > maxPID ||
		x.OOM < dray.OOMNo || x.OOM > dray.OOMCertain || len(x.Kept) > 0 && !p.keepLeftovers ||
		!validPIDs(x.Survivors) || !validPIDs(x.Kept) {
		return nil, wire.ErrProtocol
	}
	return x, nil
}

// The bounds of what a container can have: the kernel's largest pid, and as many survivors as
// anybody would look at.
const (
	maxPID       = 1 << 22
	maxSurvivors = 4096
)

func validPIDs(pids []int) bool {
	return len(pids) <= maxSurvivors &&
		!slices.ContainsFunc(pids, func(pid int) bool { return pid <= 0 || pid > maxPID })
}

// cancelStopTimer ends the wait for an overdue end, and says whether it was in vain.
func (p *agentProcess) cancelStopTimer() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopTimer != nil {
		p.stopTimer.Stop()
	}
	return p.stopTimedOut
}

// Stdin is a pipe, or channel 0.
func (p *agentProcess) Stdin() io.WriteCloser {
	if p.pipes != nil {
		return p.pipes.Stdin
	}
	return p.stream.Writer(0)
}

// Output is a pipe, or channel 1 or 2.
func (p *agentProcess) Output(stream dray.Stream) io.Reader {
	switch {
	case p.pipes == nil:
		return p.stream.Reader(int(stream))
	case stream == dray.Stderr:
		return p.pipes.Stderr
	default:
		return p.pipes.Stdout
	}
}

// Signal asks the agent for a signal.
func (p *agentProcess) Signal(sig syscall.Signal) error {
	return p.stream.Send(&wire.Request{Signal: int(sig)})
}

// Resize asks the agent for another size of the terminal.
func (p *agentProcess) Resize(size dray.TerminalSize) error {
	if !p.terminal {
		return dray.ErrNoTerminal
	}
	return p.stream.Send(&wire.Request{Resize: &size})
}

// stopReportTimeout is how long beyond the grace an agent may take to tell the end: more than it
// gives its supervisors.
const stopReportTimeout = 15 * time.Second

// Stop asks the agent to end everything. One that does not tell of it in time keeps nobody waiting:
// the call's end is then not known.
func (p *agentProcess) Stop(grace time.Duration) {
	p.mu.Lock()
	due := time.Now().Add(grace + stopReportTimeout)
	if p.stopTimer == nil || due.Before(p.stopDeadline) {
		if p.stopTimer != nil {
			p.stopTimer.Stop()
		}
		p.stopDeadline, p.stopTimer = due, time.AfterFunc(time.Until(due), p.onStopTimeout)
	}
	p.mu.Unlock()
	// a lost agent ends by itself, and Wait says that it is lost
	_ = p.stream.Send(&wire.Request{Stop: &wire.Stop{Grace: grace}})
}

func (p *agentProcess) onStopTimeout() {
	p.mu.Lock()
	p.stopTimedOut = true
	p.mu.Unlock()
	p.stream.Close()
}

// Wait waits for the agent's word.
func (p *agentProcess) Wait() (dray.Exit, error) {
	<-p.done
	return p.exit, p.err
}

func assignments(vars map[string]string) []string {
	out := make([]string, 0, len(vars))
	for name, value := range vars {
		out = append(out, name+"="+value)
	}
	return out
}
