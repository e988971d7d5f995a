package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Message is a *Start, *Request or *Reply, or, before there are streams, a *Hello, *Listening or
// *StdioFallback.
type Message interface{ fields(f *pack.Fields) }

func encode(m Message) []byte { return pack.Append(make([]byte, 0, 256), &m, packMessage) }

func packMessage(f *pack.Fields, m *Message) { (*m).fields(f) }

// Start is the first message of a stream: start a process. Strings need not be UTF-8.
type Start struct {
	Argv []string
	// Helper runs the agent's own program with these arguments instead of Argv.
	Helper []string
	// User is a user as the engine accepts it: name, uid, name:group, uid:gid. Empty is uid 0.
	User string
	// Groups are the container's additional groups (--group-add), names or gids, for every user.
	Groups []string
	// Dir is absolute. Empty is the user's home directory.
	Dir string
	// RealDir is the path without symlinks that Dir must lead to. Empty is any.
	RealDir string
	// Env is what the engine gives every exec. The result of Probe, CallEnv and RemoteEnv override it,
	// in this order.
	Env       []string
	Probe     Probe
	CallEnv   []string
	RemoteEnv []string
	Grace     time.Duration
	// KeepLeftovers keeps leftover processes running when the process ends by itself.
	KeepLeftovers bool
	// Terminal is the size of the process's terminal. The agent keeps the master: channel 0 is its
	// input, channel 1 its output.
	Terminal *dray.TerminalSize
	// Call is the id of the call whose process it is; empty for a process of dray's own. The process
	// gets DRAY_CALL_ID, and DRAY_RESULTS with an empty directory.
	Call string
	// RemoveResults is a directory of Exited.Results to remove. Nothing is started then.
	RemoveResults string
	// PassedFDs reports that the process's stdin, stdout and stderr were passed as fds with the
	// message. No channel is used then. It needs a Socket. On a Socket the permit of the start is
	// passed as the last fd. Without one the agent asks with Reply.Ready immediately before the start,
	// so that a start whose call has ended does not happen.
	PassedFDs bool
}

func (s *Start) fields(f *pack.Fields) {
	packStrings(f, &s.Argv)
	packStrings(f, &s.Helper)
	pack.Text(f, &s.User)
	packStrings(f, &s.Groups)
	pack.Text(f, &s.Dir)
	pack.Text(f, &s.RealDir)
	packStrings(f, &s.Env)
	packProbe(f, &s.Probe)
	packStrings(f, &s.CallEnv)
	packStrings(f, &s.RemoteEnv)
	pack.Int(f, &s.Grace)
	pack.Bool(f, &s.KeepLeftovers)
	pack.Optional(f, &s.Terminal, packSize)
	pack.Text(f, &s.Call)
	pack.Text(f, &s.RemoveResults)
	pack.Bool(f, &s.PassedFDs)
}

// packStrings bounds a list only by the size of its message. The kernel has its own limits for argv
// and environment.
func packStrings(f *pack.Fields, list *[]string) { pack.List(f, list, pack.NoLimit, pack.Text) }

func packSize(f *pack.Fields, s *dray.TerminalSize) {
	pack.Uint(f, &s.Columns)
	pack.Uint(f, &s.Rows)
}

// Probe is how the environment of the user's shell is read.
type Probe struct {
	// Kind is a devcontainer userEnvProbe: none, loginShell, interactiveShell, loginInteractiveShell.
	// Empty is none.
	Kind string
	// Shell is the shell to run. Empty is the user's own, else /bin/sh.
	Shell string
	// Dir is its working directory. Empty is the root directory.
	Dir string
}

func packProbe(f *pack.Fields, p *Probe) {
	pack.Text(f, &p.Kind)
	pack.Text(f, &p.Shell)
	pack.Text(f, &p.Dir)
}

// Request is a later message of the daemon. One field is set.
type Request struct {
	// Go allows the start, in reply to Reply.Ready.
	Go     bool
	Signal int
	// Stop ends the process and its descendants, or prevents its start.
	Stop *Stop
	// Resize changes the size of the process's terminal.
	Resize *dray.TerminalSize
}

func (r *Request) fields(f *pack.Fields) {
	pack.Bool(f, &r.Go)
	pack.Int(f, &r.Signal)
	pack.Optional(f, &r.Stop, packStop)
	pack.Optional(f, &r.Resize, packSize)
}

// Stop is TERM, then KILL after Grace.
type Stop struct {
	Grace time.Duration
}

func packStop(f *pack.Fields, s *Stop) { pack.Int(f, &s.Grace) }

// Reply is a message of the agent. Ready comes first if no permit was passed, then Started or
// Failed. Exited follows Started, unless the agent is lost.
type Reply struct {
	// Ready asks for Request.Go.
	Ready   bool
	Started *Started
	Failed  *Failed
	Exited  *Exited
}

func (r *Reply) fields(f *pack.Fields) {
	pack.Bool(f, &r.Ready)
	pack.Optional(f, &r.Started, packStarted)
	pack.Optional(f, &r.Failed, packFailed)
	pack.Optional(f, &r.Exited, packExited)
}

// Started reports that the kernel has executed the program.
type Started struct {
	PID      int
	Warnings []string
}

func packStarted(f *pack.Fields, s *Started) {
	pack.Int(f, &s.PID)
	packStrings(f, &s.Warnings)
}

// Failed reports that no process was started.
type Failed struct {
	Code    dray.Code
	Message string
}

func packFailed(f *pack.Fields, x *Failed) {
	pack.Text(f, &x.Code)
	pack.Text(f, &x.Message)
}

// Exited is the end of the process.
type Exited struct {
	Code     int
	Signal   int
	Leftover int
	// Lost reports that the supervisor was killed: neither code nor signal is known.
	Lost bool
	// Proven reports that Survivors is complete.
	Proven    bool
	Survivors []int
	// Kept are the processes that Start.KeepLeftovers kept running. Leftover includes them.
	Kept []int
	// OOM is whether the kernel killed the process because memory ran out.
	OOM dray.OOM
	// Results is the directory in DRAY_RESULTS if it is not empty. The daemon removes it with
	// Start.RemoveResults.
	Results string
	// SessionState is that of dray.Exit, at most dray.MaxSessionState bytes.
	SessionState []byte
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
	pack.Text(f, &x.Results)
	state := string(x.SessionState)
	pack.Text(f, &state)
	x.SessionState = []byte(state)
}

// Decode decodes a message of the peer. It fails with ErrProtocol.
func Decode(b []byte, into Message) error {
	if err := pack.Decode(b, &into, packMessage); err != nil {
		return protocolError("message: %v", err)
	}
	return nil
}

type frameType uint8

const (
	frameHello frameType = iota + 1
	framePing
	framePong
	frameOpen    // the first message of a new stream
	frameMessage // a further one
	frameData
	frameEOF          // no more data on this channel
	frameWindowUpdate // the reader has consumed this many bytes
	frameStopSending  // the reader does not read this channel any more
	frameClose        // the sender has closed the stream
	frameOpenWithFDs  // frameOpen with descriptors, on a socket
)

// Sizes, in bytes.
const (
	headerSize = 10
	// MaxData is the largest payload of one data frame.
	MaxData = 64 << 10
	// Window is the number of bytes of one channel that may be in transit unread.
	Window = 256 << 10
	// MaxMessage is the largest message that an agent accepts: more than the largest argv and
	// environment of Linux.
	MaxMessage = 8 << 20
	// MaxStreams is the highest number of open streams of one connection.
	MaxStreams = 4096
	// channels is the number of channels of a stream.
	channels = 3
)

// ErrProtocol is returned if the peer violates the protocol. The connection has ended.
var ErrProtocol = errors.New("the peer violated the wire protocol")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

type header struct {
	length  uint32
	stream  uint32
	typ     frameType
	channel uint8
}

func (h header) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.length)
	b = binary.LittleEndian.AppendUint32(b, h.stream)
	return append(b, byte(h.typ), h.channel)
}

// readHeader reads a header and checks what does not depend on the streams.
func readHeader(r io.Reader, maxMessage int) (header, error) {
	var b [headerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return header{}, err
	}
	h := header{
		length: binary.LittleEndian.Uint32(b[0:]), stream: binary.LittleEndian.Uint32(b[4:]),
		typ: frameType(b[8]), channel: b[9],
	}
	return h, h.check(maxMessage)
}

func (h header) check(maxMessage int) error {
	limit := uint32(0)
	switch h.typ {
	case frameHello, frameOpen, frameOpenWithFDs, frameMessage:
		limit = uint32(maxMessage) //nolint:gosec // a constant
	case frameData:
		limit = MaxData
	case frameWindowUpdate:
		limit = 4
	case framePing, framePong, frameEOF, frameStopSending, frameClose:
	default:
		return protocolError("frame type %d", h.typ)
	}
	if h.length > limit {
		return protocolError("frame type %d with %d bytes (limit %d)", h.typ, h.length, limit)
	}
	if h.channel >= channels {
		return protocolError("channel %d", h.channel)
	}
	return nil
}
