package wire

import (
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Message is one of this package's: *Start, *Request, *Reply; *Hello and *Stay before there are
// streams.
type Message interface{ fields(f *pack.Fields) }

// encode has room for most messages.
func encode(m Message) []byte { return pack.Append(make([]byte, 0, 256), &m, packMessage) }

func packMessage(f *pack.Fields, m *Message) { (*m).fields(f) }

// Start is the first message of a stream: run a process. Argv, names and values are bytes; none
// need be text.
type Start struct {
	Argv []string
	// Helper runs the agent's own program with these arguments instead of Argv.
	Helper []string
	// User is as the engine takes it: name, uid, name:group, uid:gid. Empty is uid 0.
	User string
	// Groups are the container's further groups (--group-add), names or numbers, whoever the user is.
	Groups []string
	// Dir is absolute; empty is the user's home folder.
	Dir string
	// Env is what the engine gives every exec, Probe what the user's shell makes of it; Call and then
	// Remote are laid over.
	Env       []string
	Probe     Probe
	CallEnv   []string
	RemoteEnv []string
	Grace     time.Duration
	// KeepLeftovers leaves what the process leaves running when it ends by itself.
	KeepLeftovers bool
	// Terminal gives the process a terminal of that size. The agent keeps the master: channel 0 is
	// what is typed, channel 1 what is shown.
	Terminal *dray.TerminalSize
	// PassedFDs says that the process's ends of stdin, stdout and stderr came with the message as
	// descriptors, so that no channel is used. It is for sockets alone.
	PassedFDs bool
}

func (s *Start) fields(f *pack.Fields) {
	packStrings(f, &s.Argv)
	packStrings(f, &s.Helper)
	pack.Text(f, &s.User)
	packStrings(f, &s.Groups)
	pack.Text(f, &s.Dir)
	packStrings(f, &s.Env)
	packProbe(f, &s.Probe)
	packStrings(f, &s.CallEnv)
	packStrings(f, &s.RemoteEnv)
	pack.Int(f, &s.Grace)
	pack.Bool(f, &s.KeepLeftovers)
	pack.Optional(f, &s.Terminal, packSize)
	pack.Bool(f, &s.PassedFDs)
}

// packStrings bounds a list by its message alone: what Linux takes of an argv and an environment is
// for the kernel to say.
func packStrings(f *pack.Fields, list *[]string) { pack.List(f, list, pack.NoLimit, pack.Text) }

func packSize(f *pack.Fields, s *dray.TerminalSize) {
	pack.Uint(f, &s.Columns)
	pack.Uint(f, &s.Rows)
}

// Probe says how the user's shell is asked for its environment.
type Probe struct {
	// Kind is a devcontainer userEnvProbe: none, loginShell, interactiveShell, loginInteractiveShell.
	// Empty is none.
	Kind string
	// Shell is asked; empty means the user's own, else /bin/sh.
	Shell string
	// Dir is where; empty is the root folder.
	Dir string
}

func packProbe(f *pack.Fields, p *Probe) {
	pack.Text(f, &p.Kind)
	pack.Text(f, &p.Shell)
	pack.Text(f, &p.Dir)
}

// Request is a later message of the daemon. One member is set.
type Request struct {
	Signal int
	// Stop ends the process and all that descends from it.
	Stop *Stop
	// Resize changes the size of the process's terminal.
	Resize *dray.TerminalSize
}

func (r *Request) fields(f *pack.Fields) {
	pack.Int(f, &r.Signal)
	pack.Optional(f, &r.Stop, packStop)
	pack.Optional(f, &r.Resize, packSize)
}

// Stop is TERM, the grace, KILL.
type Stop struct {
	Grace time.Duration
}

func packStop(f *pack.Fields, s *Stop) { pack.Int(f, &s.Grace) }

// Reply is a message of the agent. The first is Started or Failed; after Started comes Exited,
// unless the agent is lost.
type Reply struct {
	Started *Started
	Failed  *Failed
	Exited  *Exited
}

func (r *Reply) fields(f *pack.Fields) {
	pack.Optional(f, &r.Started, packStarted)
	pack.Optional(f, &r.Failed, packFailed)
	pack.Optional(f, &r.Exited, packExited)
}

// Started says that the kernel accepted the program.
type Started struct {
	PID      int
	Warnings []string
}

func packStarted(f *pack.Fields, s *Started) {
	pack.Int(f, &s.PID)
	packStrings(f, &s.Warnings)
}

// Failed says that nothing was started.
type Failed struct {
	Code    dray.Code
	Message string
}

func packFailed(f *pack.Fields, x *Failed) {
	pack.Text(f, &x.Code)
	pack.Text(f, &x.Message)
}

// Exited says how the process ended.
type Exited struct {
	Code     int
	Signal   int
	Leftover int
	// Lost says that the supervisor was killed: neither code nor signal is known.
	Lost bool
	// Proven says that Survivors are all there are.
	Proven    bool
	Survivors []int
	// Kept are the descendants that Start.KeepLeftovers left running; Leftover counts them.
	Kept []int
	// OOM says whether the kernel killed it because memory ran out.
	OOM dray.OOM
}

func packExited(f *pack.Fields, x *Exited) {
	pack.Int(f, &x.Code)
	pack.Int(f, &x.Signal)
	pack.Int(f, &x.Leftover)
	pack.Bool(f, &x.Lost)
	pack.Bool(f, &x.Proven)
	pack.List(f, &x.Survivors, pack.NoLimit, pack.Int)
	pack.List(f, &x.Kept, pack.NoLimit, pack.Int)
	pack.Int(f, &x.OOM)
}

// Decode reads a message of the peer; what does not parse is a breach of the protocol.
func Decode(b []byte, into Message) error {
	if err := pack.Decode(b, &into, packMessage); err != nil {
		return protocolError("message: %v", err)
	}
	return nil
}
