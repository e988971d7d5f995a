package container

import (
	"encoding/json"
	"io"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/wire"
)

// agentProcess is a process behind an agent.
type agentProcess struct {
	env    *environment
	stream *wire.Stream
	done   chan struct{} // closed when exit and err are set
	exit   dray.Exit
	err    error
}

func follow(e *environment, stream *wire.Stream) *agentProcess {
	p := &agentProcess{env: e, stream: stream, done: make(chan struct{})}
	go func() { // ends with the process, or with the agent's connection
		defer close(p.done)
		p.exit, p.err = p.end()
	}()
	return p
}

func (p *agentProcess) end() (dray.Exit, error) {
	c := p.env.target.Container
	b, err := p.stream.Receive()
	var reply wire.Reply
	if err == nil {
		err = wire.Decode(b, &reply)
	}
	if err == nil && reply.Exited == nil {
		err = wire.ErrProtocol
	}
	if err != nil {
		p.stream.Close()
		return dray.Exit{}, p.env.engine.lost(c.ID, c.Name, err)
	}
	x := reply.Exited
	if x.Lost {
		return dray.Exit{}, dray.Errorf(dray.CodeAgentLost, "the supervisor of the call was killed in container %s; how the tool ended is not known", c.Name).
			WithHint("a tool that runs as root can do that; let it run as another user (remoteUser)")
	}
	return dray.Exit{
		Code: x.Code, Signal: syscall.Signal(x.Signal), Leftover: x.Leftover,
		Survivors: dray.Survivors{Proven: x.Proven, PIDs: x.Survivors},
	}, nil
}

// Stdin is channel 0.
func (p *agentProcess) Stdin() io.WriteCloser { return p.stream.Writer(0) }

// Output is channel 1 or 2.
func (p *agentProcess) Output(stream dray.Stream) io.Reader { return p.stream.Reader(int(stream)) }

// Signal asks the agent for a signal.
func (p *agentProcess) Signal(sig syscall.Signal) error {
	return p.stream.Send(wire.Request{Signal: int(sig)})
}

// Stop asks the agent to end everything.
func (p *agentProcess) Stop(grace time.Duration) {
	_ = p.stream.Send(wire.Request{Stop: &wire.Stop{Grace: grace}}) // a lost agent ends by itself, and Wait says that it is lost
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
