package agent

import (
	"context"
	"io"
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
	terminal      bool
	keepLeftovers bool
	warnings      []string
	done          chan struct{} // closed when exit and err are set
	exit          dray.Exit
	err           error

	mu           sync.Mutex
	stopTimer    *time.Timer // set by Stop: the agent has to report the end by then
	stopDeadline time.Time
	stopTimedOut bool
}

// accepted waits for the agent's first reply. If ctx ends first, the process is given up.
func (p *agentProcess) accepted(ctx context.Context) (*agentProcess, error) {
	p.agent.calls.Add(1)
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
	switch {
	case err != nil:
		p.release()
		return nil, p.env.conn.lossError(err) //nolint:contextcheck // the call may be over
	case reply.Failed != nil:
		p.release()
		return nil, failedStart(reply.Failed)
	}
	p.warnings = append(truncateMessages(reply.Started.Warnings), p.env.pool.Warnings(p.env.conn.c)...)
	p.stream.ReceiveFunc(p.onMessage)
	return p, nil
}

// release closes the streams of a process that was not started.
func (p *agentProcess) release() {
	p.agent.calls.Add(-1)
	p.stream.Close()
	if p.pipes != nil {
		p.pipes.Close()
	}
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
			OOM: x.OOM, Survivors: survivors, Results: results,
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
	x := reply.Exited
	if x == nil || x.Code < 0 || x.Code > 255 || x.Signal < 0 || x.Signal > 64 ||
		x.Leftover < 0 || x.Leftover > maxPID || x.OOM < dray.OOMNo || x.OOM > dray.OOMCertain ||
		x.Results != "" && (len(x.Results) > maxMessageBytes || !path.IsAbs(x.Results) ||
			path.Clean(x.Results) != x.Results) ||
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

func failedStart(f *wire.Failed) error {
	code := f.Code
	if !slices.Contains(startCodes, code) {
		code = dray.CodeAgentLost
	}
	return dray.Errorf(code, "%s", truncateMessages([]string{f.Message})[0]).
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

// stopReportTimeout bounds the wait for the exit after the grace has passed. It is longer than the
// agent waits for its supervisors.
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
