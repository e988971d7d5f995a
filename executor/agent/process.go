package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/wire"
)

// agentProcess is a process that an agent runs. It implements dray.Process.
type agentProcess struct {
	env           *environment
	agent         *agent
	stream        *wire.Stream
	pipes         *process.Pipes // nil if the stream carries stdin and output
	permit        *os.File       // of the start; nil if the agent asks for it
	terminal      bool
	keepLeftovers bool
	warnings      []string
	allowed       bool          // without a permit: the agent was told to start it
	done          chan struct{} // closed when exit and err are set
	exit          dray.Exit
	err           error

	mu           sync.Mutex
	stopTimer    *time.Timer // set by Stop: the agent has to report the end by then
	stopDeadline time.Time
	stopTimedOut bool
}

// awaitStart waits for the agent's reply to a start. When ctx ends, it fails, and the agent must
// not start the process. If the agent has started it already, the process is ended. Then, and if
// the agent does not reply, the error is a *process.UnconfirmedError.
func (p *agentProcess) awaitStart(ctx context.Context) (*agentProcess, error) {
	p.agent.calls.Add(1)
	var giveUp *time.Timer
	abandoned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(abandoned)
		giveUp = p.abandon()
	})
	started, err := p.firstReply(ctx)
	ended := !stop()
	if ended {
		<-abandoned
		giveUp.Stop()
	}
	if err != nil {
		defer p.release()
		return nil, p.startError(ctx, err, ended)
	}
	p.warnings = append(truncateMessages(started.Warnings), p.env.pool.Warnings(p.env.conn.c)...)
	if p.permit != nil {
		_ = p.permit.Close()
	}
	p.stream.ReceiveFunc(p.onMessage)
	if ended {
		return nil, p.endAbandoned(ctx)
	}
	return p, nil
}

// endAbandoned ends a process that was started when its call had ended, and waits for it.
func (p *agentProcess) endAbandoned(ctx context.Context) error {
	var outputs sync.WaitGroup
	for _, stream := range []dray.Stream{dray.Stdout, dray.Stderr} {
		outputs.Go(func() { _, _ = io.Copy(io.Discard, p.Output(stream)) })
	}
	p.Stop(0)
	exit, _ := p.Wait() // without its end the survivors are unknown
	outputs.Wait()
	if exit.Results != nil {
		exit.Results.Remove()
	}
	return &process.UnconfirmedError{Err: context.Cause(ctx), Survivors: exit.Survivors}
}

// abandonTimeout bounds the wait for the reply of an agent that was told not to start a process.
const abandonTimeout = 2 * time.Second

// abandon prevents the start. When the returned timer fires the agent's reply is not awaited any
// more.
func (p *agentProcess) abandon() *time.Timer {
	if p.permit != nil {
		process.TakePermit(p.permit) // also of an agent that is stopped
	}
	timer := time.AfterFunc(abandonTimeout, p.stream.Close)
	_ = p.stream.Send(&wire.Request{Stop: &wire.Stop{}}) // if the agent is lost, no reply comes
	return timer
}

// failedStartError is the agent's report that no process runs.
type failedStartError struct{ error }

func (e failedStartError) Unwrap() error { return e.error }

// firstReply returns the agent's report of the start. It allows the start if the agent asks and the
// call still wants it.
func (p *agentProcess) firstReply(ctx context.Context) (*wire.Started, error) {
	for {
		b, err := p.stream.Receive()
		var reply wire.Reply
		if err == nil {
			err = wire.Decode(b, &reply)
		}
		switch {
		case err != nil:
			return nil, err
		case reply.Failed != nil && reply.Failed.Code == dray.CodeAgentLost:
			return nil, p.failedStart(reply.Failed)
		case reply.Failed != nil:
			return nil, failedStartError{p.failedStart(reply.Failed)}
		case reply.Started != nil:
			return reply.Started, nil
		case !reply.Ready || p.permit != nil || p.allowed:
			return nil, wire.ErrProtocol
		}
		if p.allowed = true; ctx.Err() == nil {
			_ = p.stream.Send(&wire.Request{Go: true}) // if the agent is lost, no reply comes
		}
	}
}

// startError returns the error of a start that failed with err. ended is set if the call has ended
// meanwhile.
func (p *agentProcess) startError(ctx context.Context, err error, ended bool) error {
	failed, ok := errors.AsType[failedStartError](err)
	switch {
	case ok && ended:
		return context.Cause(ctx)
	case ok:
		return failed.error
	case p.agent.mux.Err() != nil:
		<-p.agent.cleaned
		return &process.UnconfirmedError{
			//nolint:contextcheck // the call may be over
			Err: p.env.conn.lossError(err), Survivors: dray.Survivors{Proven: p.agent.verified},
		}
	}
	p.env.pool.taint(p.env.conn.c)
	if _, ok := errors.AsType[*dray.Error](err); ended {
		err = context.Cause(ctx)
	} else if !ok {
		err = p.env.conn.lossError(err) //nolint:contextcheck // the call may be over
	}
	return &process.UnconfirmedError{Err: err}
}

// release closes the streams of a process that was not started.
func (p *agentProcess) release() {
	p.agent.calls.Add(-1)
	p.stream.Close()
	p.closeFiles()
}

// onMessage receives the exit of the process, or the end of its stream. It must not block: it is
// called by the goroutine that reads the connection.
func (p *agentProcess) onMessage(b []byte, err error) {
	var x *wire.Exited
	if err == nil {
		x, err = p.decodeExit(b)
	}
	if err != nil || len(x.Kept) > 0 {
		go p.complete(x, err) // waits for the container, or writes to cgroups
		return
	}
	p.complete(x, nil)
}

// complete sets the result and closes done.
func (p *agentProcess) complete(x *wire.Exited, err error) {
	defer close(p.done)
	defer p.agent.calls.Add(-1)
	// All framed output has arrived. A reader must not wait for an end of file that is never sent.
	if err == nil {
		p.stream.Discard()
	} else {
		p.stream.Close()
	}
	if panicked := logging.RecoverPanics(p.env.conn.log, "completing a process", func() {
		timedOut := p.cancelStopTimer()
		if err != nil {
			p.exit, p.err = p.lost(err, timedOut)
			return
		}
		p.finishPipes()
		p.exit, p.err = p.exited(x)
	}); panicked != nil {
		p.exit, p.err = dray.Exit{}, panicked
		p.finishPipes()
	}
}

func (p *agentProcess) exited(x *wire.Exited) (dray.Exit, error) {
	p.releaseFromCgroup(x.Kept)
	survivors, results := dray.Survivors{Proven: x.Proven, PIDs: x.Survivors}, p.results(x.Results)
	if !x.Lost {
		return dray.Exit{
			Code: x.Code, Signal: syscall.Signal(x.Signal), Leftover: x.Leftover, KeptPIDs: x.Kept,
			OOM: x.OOM, Survivors: survivors, Results: results, SessionState: x.SessionState,
		}, nil
	}
	if !x.Proven {
		p.env.pool.taint(p.env.conn.c)
	}
	return dray.Exit{Survivors: survivors, Results: results}, dray.Errorf(dray.CodeAgentLost,
		"exit status unknown: the supervisor in container %s was killed, or the tool is traced",
		p.env.conn.c.Metadata.Name).
		WithHint("run tools as a non-root user (remoteUser)")
}

// results returns the directory with result files that an agent reported, nil for none. The agent
// removes it without a reply, and all of them when it ends.
func (p *agentProcess) results(dir string) *dray.ResultsDir {
	if dir == "" {
		return nil
	}
	return &dray.ResultsDir{Path: dir, Remove: func() {
		s, err := p.agent.mux.Open(&wire.Start{RemoveResults: dir})
		if err == nil {
			s.Close()
		}
	}}
}

// lost returns the result of a process whose agent reported no exit. The rest of its output is read
// after the processes of the agent were killed.
func (p *agentProcess) lost(err error, timedOut bool) (dray.Exit, error) {
	if timedOut {
		p.finishPipes()
		p.env.pool.taint(p.env.conn.c)
		return dray.Exit{}, dray.Errorf(dray.CodeAgentLost,
			"the agent in container %s did not stop the call in time", p.env.conn.c.Metadata.Name).
			WithHint("its processes may still be running: restart the container")
	}
	var survivors dray.Survivors
	if p.agent.mux.Err() != nil {
		<-p.agent.cleaned
		survivors.Proven = p.agent.verified
	}
	p.finishPipes()
	return dray.Exit{Survivors: survivors}, p.env.conn.lossError(err)
}

// releaseFromCgroup moves the processes that the caller wants to keep out of the cgroup that is
// killed with the agent. The agent cannot do this: a root tool could then leave the cgroup too.
func (p *agentProcess) releaseFromCgroup(pids []int) {
	if len(pids) == 0 || p.agent.cgroup == nil {
		return
	}
	if err := p.agent.cgroup.Release(pids); err != nil {
		p.env.conn.log.Warn("leftovers stay in the cgroup of the agent and end with it", zap.Error(err))
	}
}

func (p *agentProcess) finishPipes() {
	if p.pipes != nil {
		p.pipes.Finish()
	}
}

// decodeExit decodes the last reply and rejects one that no process can have caused.
func (p *agentProcess) decodeExit(b []byte) (*wire.Exited, error) {
	var reply wire.Reply
	if err := wire.Decode(b, &reply); err != nil {
		return nil, err
	}
	if reply.Failed != nil {
		return nil, p.failedStart(reply.Failed) // a panic after the start
	}
	x := reply.Exited
	if x == nil || x.Code < 0 || x.Code > 255 || x.Signal < 0 || x.Signal > 64 ||
		x.Leftover < 0 || x.Leftover > maxPID || x.OOM < dray.OOMNo || x.OOM > dray.OOMCertain ||
		x.Results != "" && (len(x.Results) > maxMessageBytes || !path.IsAbs(x.Results) ||
			path.Clean(x.Results) != x.Results) ||
		len(x.SessionState) > dray.MaxSessionState ||
		len(x.Kept) > 0 && !p.keepLeftovers || !validPIDs(x.Survivors) || !validPIDs(x.Kept) {
		return nil, wire.ErrProtocol
	}
	return x, nil
}

// Bounds of an agent's reports: the largest pid of Linux, and the survivors and kept processes of
// one call.
const (
	maxPID       = 1 << 22
	maxSurvivors = 4096
)

func validPIDs(pids []int) bool {
	return len(pids) <= maxSurvivors &&
		!slices.ContainsFunc(pids, func(pid int) bool { return pid <= 0 || pid > maxPID })
}

// Bounds of the messages of an agent, which may be any process.
const (
	maxMessageBytes = 4 << 10
	maxWarnings     = 8
)

func truncateMessages(messages []string) []string {
	list := make([]string, 0, maxWarnings)
	for _, m := range messages[:min(len(messages), maxWarnings)] {
		list = append(list, strings.ToValidUTF8(m[:min(len(m), maxMessageBytes)], "\uFFFD"))
	}
	return list
}

// startCodes are the codes with which an agent may fail a start.
var startCodes = []dray.Code{
	dray.CodeExecutableNotFound, dray.CodeNotExecutable, dray.CodeBadCwd, dray.CodeBadUser,
	dray.CodeLimitExceeded, dray.CodeAgentLost,
}

// failedStart returns the error of a failed start. A panic of the agent is logged under an id.
func (p *agentProcess) failedStart(f *wire.Failed) error {
	code, message := f.Code, truncateMessages([]string{f.Message})[0]
	if code == dray.CodeInternal {
		value, stack, _ := strings.Cut(message, "\n")
		return logging.PanicError(p.env.conn.log, "serving the call in the container", value,
			[]byte(stack))
	}
	if !slices.Contains(startCodes, code) {
		code = dray.CodeAgentLost
	}
	return dray.Errorf(code, "%s", message).
		WithHint("%s", process.Hint(code))
}

// Warnings returns what the agent warned of at the start, for example a failed probe of the shell.
func (p *agentProcess) Warnings() []string { return p.warnings }

// Stdin returns a pipe, or channel 0 of the stream.
func (p *agentProcess) Stdin() io.WriteCloser {
	if p.pipes != nil {
		return p.pipes.Stdin
	}
	return p.stream.Writer(0)
}

// Output returns a pipe, or channel 1 or 2 of the stream.
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

func (p *agentProcess) Signal(sig syscall.Signal) error {
	return p.stream.Send(&wire.Request{Signal: int(sig)})
}

func (p *agentProcess) Resize(size dray.TerminalSize) error {
	if !p.terminal {
		return dray.ErrNoTerminal
	}
	return p.stream.Send(&wire.Request{Resize: &size})
}

// stopReportTimeout bounds the wait for the exit after the grace has passed. It is longer than a
// supervisor kills a fork bomb. A process that KILL does not end is reported long before.
const stopReportTimeout = 15 * time.Second

// Stop requests the end of all processes of the call. If the agent does not report it in time, Wait
// returns agent_lost.
func (p *agentProcess) Stop(grace time.Duration) {
	p.mu.Lock()
	deadline := time.Now().Add(grace + stopReportTimeout)
	if p.stopTimer == nil || deadline.Before(p.stopDeadline) {
		if p.stopTimer != nil {
			p.stopTimer.Stop()
		}
		p.stopDeadline = deadline
		p.stopTimer = time.AfterFunc(time.Until(deadline), p.onStopTimeout)
	}
	p.mu.Unlock()
	// if the agent is lost, Wait reports it
	_ = p.stream.Send(&wire.Request{Stop: &wire.Stop{Grace: grace}})
}

func (p *agentProcess) onStopTimeout() {
	p.mu.Lock()
	p.stopTimedOut = true
	p.mu.Unlock()
	p.stream.Close()
}

// cancelStopTimer stops the timer of Stop and reports whether it has fired.
func (p *agentProcess) cancelStopTimer() (fired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopTimer != nil {
		p.stopTimer.Stop()
	}
	return p.stopTimedOut
}

func (p *agentProcess) Wait() (dray.Exit, error) {
	<-p.done
	return p.exit, p.err
}
