package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/wire"
)

const (
	// defaultLease is the lease if the daemon's hello has none.
	defaultLease = 30 * time.Second
	// initialSupervisors is the number of supervisors that are started before the first call.
	initialSupervisors = 2
)

// agent is the state of one connection.
type agent struct {
	pool   *process.Pool
	users  userCache
	probes probeCache
	self   identity
	// results has the directories in DRAY_RESULTS; resultsErr says why there are none.
	results    *files.ResultsDirs
	resultsErr error
}

// serve serves the daemon until the connection ends, and ends everything that it started.
func serve(in io.ReadCloser, out io.WriteCloser) error {
	debug.SetGCPercent(400) // the heap is small, and is used in bursts
	a := &agent{self: currentIdentity(), users: userCache{files: containerUsers}}
	defer a.openResults()()
	defer func() { a.pool.Close() }()
	if err := a.startPool(); err != nil {
		return err // before the hello, so that the daemon falls back to the engine's exec
	}
	if err := wire.WriteHello(out, wire.Hello{
		Version: version, SwitchUser: a.self.switchUser, UID: a.self.uid,
		BootID: bootID(), PID: os.Getpid(),
	}); err != nil {
		return fmt.Errorf("send the hello: %w", err)
	}
	daemon, err := wire.ReadHello(in)
	if err != nil {
		return fmt.Errorf("receive the daemon's hello: %w", err)
	}
	conn, err := a.selectChannel(pipes{in, out}, daemon.Listen)
	if err != nil {
		return err
	}
	err = a.serveMux(wire.NewMux(conn, wire.Config{
		Accept: a.accept, MaxMessage: wire.MaxMessage,
		Lease: cmp.Or(max(daemon.Lease, 0), defaultLease),
	}))
	if err == io.EOF { //nolint:errorlint // the daemon closed the connection between two frames
		return nil
	}
	return err
}

func (a *agent) startPool() error {
	a.pool = process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe", Args: []string{"dray-agent", "supervise"},
		Env: []string{"GOMAXPROCS=2"}, Subreaper: true,
	})
	return a.pool.Prestart(initialSupervisors)
}

// bootID returns the id of this kernel's boot, empty if it is not known.
func bootID() string {
	id, _ := linux.ReadFile("/proc/sys/kernel/random/boot_id") // without it the daemon uses stdio
	return string(bytes.TrimSpace(id))
}

// selectChannel returns the connection to use: the socket if the daemon asked for one and both
// sides have authenticated there, else stdio. With the socket the end of stdin has no meaning: an
// engine that restarts closes it.
func (a *agent) selectChannel(stdio pipes, request *wire.Listen) (io.ReadWriteCloser, error) {
	if request == nil {
		return stdio.enlargePipe(), nil
	}
	l, err := a.listen(*request)
	if err != nil {
		return stdio.enlargePipe(), wire.WriteNotListening(stdio, err)
	}
	defer l.close()
	if err := wire.WriteListening(stdio, l.address()); err != nil {
		return nil, err
	}
	socket, err := l.wait(stdio)
	switch {
	case err != nil:
		return nil, err
	case socket == nil:
		return stdio.enlargePipe(), nil
	}
	// The daemon may have moved this process to a cgroup, but not the supervisors that it had.
	a.pool.Close()
	return socket, a.startPool()
}

// serveMux runs the connection. When it ends it closes the pool, because the calls end only with
// their processes.
func (a *agent) serveMux(mux *wire.Mux) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-mux.Done()
		a.pool.Close()
	}()
	err := mux.Run()
	<-closed
	return err
}

// nonblocking returns a file whose reads and writes end when it is closed. An agent whose lease has
// expired must not wait for the other end of its stdin or stdout.
func nonblocking(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true) // if it fails, the file is blocking
	return os.NewFile(uintptr(fd), name)
}

// pipes are the agent's stdin and stdout as one connection.
type pipes struct {
	io.ReadCloser
	out io.WriteCloser
}

// enlargePipe sets the capacity of stdout to a window. The engine reads 32 KiB at a time, and a
// frame is larger than the default capacity.
func (p pipes) enlargePipe() pipes {
	if f, ok := p.out.(*os.File); ok {
		process.GrowPipe(f, wire.Window)
	}
	return p
}

func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.out.Close()) }

// accept serves one stream: a start, then requests, until the process has ended and its output was
// sent.
func (a *agent) accept(s *wire.Stream) {
	first, err := s.Receive()
	if err != nil {
		return
	}
	var start wire.Start
	if err := wire.Decode(first, &start); err != nil {
		s.SendLast(&wire.Reply{Failed: &wire.Failed{Code: dray.CodeInternal, Message: err.Error()}})
		return
	}
	if start.RemoveResults != "" {
		a.removeResults(start.RemoveResults)
		return
	}
	a.serveCall(s, start)
}

// serveCall runs one call. A panic ends only this call (EX-18).
func (a *agent) serveCall(s *wire.Stream, start wire.Start) {
	c := newCall(s)
	defer c.requests.Wait() // the end of the stream ends it
	defer s.Close()
	defer func() {
		if v := recover(); v != nil {
			text := fmt.Sprintf("panic in the agent: %v\n%s", v, debug.Stack())
			fmt.Fprintln(os.Stderr, text)
			s.SendLast(&wire.Reply{Failed: &wire.Failed{
				Code: dray.CodeInternal, Message: text,
			}})
		}
	}()
	proc, err := a.start(c, start)
	if err != nil {
		s.SendLast(&wire.Reply{Failed: failedMessage(err, start.Dir)})
		return
	}
	defer proc.Stop(0)      // it has ended, unless this function panics
	c.started(proc.Process) // before the reply: the next request may be a signal or a stop with grace
	reply := &wire.Reply{Started: &wire.Started{PID: proc.Pid, Warnings: proc.warnings}}
	if s.Send(reply) != nil {
		proc.Stop(0)
	}
	a.proxyStreams(s, proc, !start.PassedFDs)
}

// proxyStreams returns when the process has ended. It copies the process's streams if the daemon
// does not have them itself (framed).
func (a *agent) proxyStreams(s *wire.Stream, proc *callProcess, framed bool) {
	var outputs, inputs sync.WaitGroup
	if framed {
		outputs.Go(func() { copyOutput(s.Writer(1), proc.Stdout()) })
		outputs.Go(func() { copyOutput(s.Writer(2), proc.Stderr()) })
		inputs.Go(func() { copyStdin(proc.Process, s) })
	}
	exit, err := proc.Wait()
	outputs.Wait()
	last := exitedMessage(exit, err)
	if proc.results != "" {
		var empty bool
		if last.SessionState, empty = a.results.TakeSessionState(proc.results); !empty {
			last.Results = proc.results
		}
	}
	s.SendLast(&wire.Reply{Exited: last})
	inputs.Wait() // SendLast has ended its reads
}

// copyOutput sends one output. When the daemon does not read any more it discards the rest, so that
// the process does not block on a full pipe.
func copyOutput(w io.WriteCloser, r io.Reader) {
	if copyAll(w, r) != nil {
		_ = copyAll(io.Discard, r) // it never fails
	}
	_ = w.Close()
}

// buffers are reused. Most calls copy a few bytes, and new buffers for three streams would be a
// large part of the agent's work for them.
var buffers = sync.Pool{New: func() any { return new([wire.MaxData]byte) }}

// copyAll copies through one of the buffers.
func copyAll(w io.Writer, r io.Reader) error {
	buf, _ := buffers.Get().(*[wire.MaxData]byte) // the pool has nothing else
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{r}, buf[:])
	return err
}

// onlyWriter and onlyReader hide the methods by which io.CopyBuffer would avoid the buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

func copyStdin(proc *process.Process, s *wire.Stream) {
	r := s.Reader(0)
	if copyAll(proc.Stdin(), r) != nil {
		_ = r.Close() // the daemon stops sending
	}
	_ = proc.Stdin().Close()
}

func exitedMessage(exit process.Exit, err error) *wire.Exited {
	return &wire.Exited{
		Lost: err != nil, Code: exit.Code, Signal: int(exit.Signal), Leftover: exit.Leftover,
		Proven: exit.Proven, Survivors: exit.Survivors, Kept: exit.Kept, OOM: exit.OOM,
	}
}

// identity is the agent's own user, and whether it can run processes as any other.
type identity struct {
	uid        int
	switchUser bool
}

// switchUserCaps are the capabilities that running as any user takes (capabilities(7)).
const switchUserCaps = 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID

func currentIdentity() identity {
	id := identity{uid: os.Getuid()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return id
	}
	caps, err := strconv.ParseUint(string(linux.Field(status, "CapEff:")), 16, 64)
	id.switchUser = err == nil && caps&switchUserCaps == switchUserCaps
	return id
}

// newNonce returns random bytes. Package crypto/rand would be a tenth of this program.
func newNonce() ([]byte, error) {
	nonce := make([]byte, wire.SecretSize)
	if n, err := unix.Getrandom(nonce, 0); n < len(nonce) {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	return nonce, nil
}
