package container

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/wire"
)

// agentProcess is a process behind an agent.
type agentProcess struct {
	env    *environment
	stream *wire.Stream
	said   []string
	done   chan struct{} // closed when exit and err are set
	exit   dray.Exit
	err    error

	mu      sync.Mutex
	overdue *time.Timer // set by Stop: the agent has to tell the end by then
	due     time.Time
	silent  bool
}

func follow(e *environment, stream *wire.Stream, warnings []string) *agentProcess {
	p := &agentProcess{env: e, stream: stream, said: warnings, done: make(chan struct{})}
	go func() { // ends with the process, or with the agent's connection
		defer close(p.done)
		p.exit, p.err = p.end()
	}()
	return p
}

// Warnings are what the agent said at the start, such as a shell that was not asked for its environment.
func (p *agentProcess) Warnings() []string { return p.said }

func (p *agentProcess) end() (dray.Exit, error) {
	c := p.env.target.Container
	x, err := p.exited()
	p.stream.Close() // all output came before; an agent that sends no end of file keeps no reader waiting
	silent := p.settle()
	if err != nil && silent {
		return dray.Exit{}, dray.Errorf(dray.CodeAgentLost, "the agent in container %s did not end the call as it was told", c.Name).
			WithHint("what the call started may still run there; restart the container")
	}
	if err != nil {
		return dray.Exit{}, p.env.engine.lost(c, err)
	}
	survivors := dray.Survivors{Proven: x.Proven, PIDs: x.Survivors}
	if x.Lost {
		return dray.Exit{Survivors: survivors},
			dray.Errorf(dray.CodeAgentLost, "the supervisor of the call was killed in container %s, or another process traces the tool; how it ended is not known", c.Name).
				WithHint("a tool that runs as root can do that; let it run as another user (remoteUser)")
	}
	return dray.Exit{Code: x.Code, Signal: syscall.Signal(x.Signal), Leftover: x.Leftover, Survivors: survivors}, nil
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
	if x == nil || x.Code < 0 || x.Code > 255 || x.Signal < 0 || x.Signal > 64 || x.Leftover < 0 || x.Leftover > maxPID || !plausible(x.Survivors) {
		return nil, wire.ErrProtocol
	}
	return x, nil
}

// The bounds of what a container can have: the kernel's largest pid, and as many survivors as anybody would look at.
const (
	maxPID       = 1 << 22
	maxSurvivors = 4096
)

func plausible(pids []int) bool {
	return len(pids) <= maxSurvivors && !slices.ContainsFunc(pids, func(pid int) bool { return pid <= 0 || pid > maxPID })
}

// settle ends the wait for an overdue end, and says whether it was in vain.
func (p *agentProcess) settle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overdue != nil {
		p.overdue.Stop()
	}
	return p.silent
}

// Stdin is channel 0.
func (p *agentProcess) Stdin() io.WriteCloser { return p.stream.Writer(0) }

// Output is channel 1 or 2.
func (p *agentProcess) Output(stream dray.Stream) io.Reader { return p.stream.Reader(int(stream)) }

// Signal asks the agent for a signal.
func (p *agentProcess) Signal(sig syscall.Signal) error {
	return p.stream.Send(wire.Request{Signal: int(sig)})
}

// Resize fails: no process has a terminal yet.
func (p *agentProcess) Resize(dray.TerminalSize) error { return dray.ErrNoTerminal }

// stopPatience is how long beyond the grace an agent may take to tell the end: more than it gives its supervisors.
const stopPatience = 15 * time.Second

// Stop asks the agent to end everything. One that does not tell of it in time keeps nobody waiting: the call's end is then not known.
func (p *agentProcess) Stop(grace time.Duration) {
	p.mu.Lock()
	due := time.Now().Add(grace + stopPatience)
	if p.overdue == nil || due.Before(p.due) {
		if p.overdue != nil {
			p.overdue.Stop()
		}
		p.due, p.overdue = due, time.AfterFunc(time.Until(due), p.giveUp)
	}
	p.mu.Unlock()
	_ = p.stream.Send(wire.Request{Stop: &wire.Stop{Grace: grace}}) // a lost agent ends by itself, and Wait says that it is lost
}

func (p *agentProcess) giveUp() {
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
	p.stream.Close()
}

// Wait waits for the agent's word.
func (p *agentProcess) Wait() (dray.Exit, error) {
	<-p.done
	return p.exit, p.err
}

func toBytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func assignments(vars map[string]string) [][]byte {
	out := make([][]byte, 0, len(vars))
	for name, value := range vars {
		out = append(out, []byte(name+"="+value))
	}
	return out
}

// mustEncode encodes a message of ours, which holds nothing that JSON cannot say.
func mustEncode(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	return b
}
