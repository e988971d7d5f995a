package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

const (
	// defaultLease holds for a daemon that names none.
	defaultLease = 30 * time.Second
	// initialSupervisors is how many supervisors wait for the first calls.
	initialSupervisors = 2
)

// agent is one connection's worth of state.
type agent struct {
	pool   *process.Pool
	probes probeCache
	self   identity
}

// serve speaks with the daemon until it goes away, and ends everything that it started.
func serve(in io.ReadCloser, out io.WriteCloser) error {
	debug.SetGCPercent(400) // a small heap that lives in bursts
	a := &agent{self: currentIdentity()}
	defer func() { a.pool.Close() }()
	if err := a.startPool(); err != nil {
		// before the greeting: where no supervisor can be had, the daemon has to find another way
		return err
	}
	if err := wire.WriteHello(out, wire.Hello{
		Version: version, SwitchUser: a.self.switchUser,
		UID: a.self.uid,
	}); err != nil {
		return fmt.Errorf("greeting the daemon: %w", err)
	}
	daemon, err := wire.ReadHello(in)
	if err != nil {
		return fmt.Errorf("meeting the daemon: %w", err)
	}
	lease := daemon.Lease
	if lease <= 0 {
		lease = defaultLease
	}
	conn, err := a.selectChannel(pipes{in, out}, daemon.Dial)
	if err != nil {
		return err
	}
	err = a.serveMux(wire.NewMux(conn, wire.Config{
		Accept: a.accept, MaxMessage: wire.MaxMessage,
		Lease: lease,
	}))
	if err == io.EOF { //nolint:errorlint // the bare error of an orderly end
		return nil
	}
	return err
}

// startPool makes a pool with supervisors at hand.
func (a *agent) startPool() error {
	a.pool = process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe",
		Args: []string{"dray-agent", "supervise"}, Env: []string{"GOMAXPROCS=2"}, Subreaper: true,
	})
	return a.pool.Prestart(initialSupervisors)
}

// selectChannel gives the connection that is used from here on: the socket where it is reached and
// both sides have proved the secret, else stdio, on which the daemon is told. With the socket the
// end of stdin means nothing any more: an engine that is restarted ends it.
func (a *agent) selectChannel(stdio pipes, where *wire.DialTarget) (io.ReadWriteCloser, error) {
	if where == nil {
		return stdio.enlargePipe(), nil
	}
	socket, err := dial(*where)
	if err != nil {
		return stdio.enlargePipe(), wire.WriteFallback(stdio, err)
	}
	// The daemon may have taken this process into a group, and not the supervisors that were there
	// before.
	a.pool.Close()
	return socket, a.startPool()
}

// serveMux runs the connection. When it breaks, the pool is closed first, because the calls end
// only with their processes.
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

// polled is a file whose reads and writes end when it is closed, as those of a blocking one would
// not. An agent whose lease is over must not stay because nobody closes its stdin, or reads its
// stdout.
func polled(fd int, name string) *os.File {
	_ = syscall.SetNonblock(fd, true) // without it the file only blocks
	return os.NewFile(uintptr(fd), name)
}

// pipes are the agent's stdin and stdout as one connection.
type pipes struct {
	io.ReadCloser
	out io.WriteCloser
}

// enlargePipe has room for a window in stdout. The engine reads it 32 KiB at a time, and a frame is
// a little more than an ordinary pipe holds.
func (p pipes) enlargePipe() pipes {
	if f, ok := p.out.(*os.File); ok {
		process.GrowPipe(f, wire.Window)
	}
	return p
}

// Write writes to stdout.
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }

// Close closes both ends.
func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.out.Close()) }

// accept serves one stream: a start, then requests, until the process is over and all of its output
// was taken.
func (a *agent) accept(s *wire.Stream) {
	first, err := s.Receive()
	if err != nil {
		return
	}
	var start wire.Start
	if err := wire.Decode(first, &start); err != nil {
		_ = s.Send(&wire.Reply{Failed: &wire.Failed{Code: "internal", Message: err.Error()}})
		return
	}
	proc, warnings, err := a.start(s, start)
	if err != nil {
		_ = s.Send(&wire.Reply{Failed: failedMessage(err, start.Dir)})
		return
	}
	if s.Send(&wire.Reply{Started: &wire.Started{PID: proc.Pid, Warnings: warnings}}) != nil {
		proc.Stop(0)
	}
	a.proxyStreams(s, proc, !start.PassedFDs)
}

// proxyStreams obeys the daemon until the process is over, and moves the bytes where the daemon
// does not have the streams itself.
func (a *agent) proxyStreams(s *wire.Stream, proc *process.Process, framed bool) {
	var outputs, rest sync.WaitGroup
	if framed {
		outputs.Go(func() { pump(s.Writer(1), proc.Stdout()) })
		outputs.Go(func() { pump(s.Writer(2), proc.Stderr()) })
		rest.Go(func() { feed(proc, s) })
	}
	rest.Go(func() { handleRequests(s, proc) })
	exit, err := proc.Wait()
	outputs.Wait()
	_ = s.Send(&wire.Reply{Exited: exitedMessage(exit, err)})
	s.Close() // wakes feed and obey
	rest.Wait()
}

// pump sends one output to its end. Where the daemon reads no more, the process must not block on a
// full pipe: the rest is thrown away.
func pump(w io.WriteCloser, r io.Reader) {
	if copyAll(w, r) != nil {
		_ = copyAll(io.Discard, r) // it never fails
	}
	_ = w.Close()
}

// buffers are those of the streams of calls that are over. Most calls move a few bytes, and a new
// buffer for each of their three streams would be much of what the agent does for them.
var buffers = sync.Pool{New: func() any { return new([wire.MaxData]byte) }}

// copyAll copies through one of the buffers.
func copyAll(w io.Writer, r io.Reader) error {
	buf, _ := buffers.Get().(*[wire.MaxData]byte) // the pool holds nothing else
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{r}, buf[:])
	return err
}

// onlyWriter and onlyReader keep io.CopyBuffer from finding a shortcut around the buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

func feed(proc *process.Process, s *wire.Stream) {
	r := s.Reader(0)
	if copyAll(proc.Stdin(), r) != nil {
		_ = r.Close() // the process takes no more: the daemon need not send it
	}
	_ = proc.Stdin().Close()
}

// handleRequests carries out requests. The end of the stream before the end of the process is the
// daemon's wish that it end.
func handleRequests(s *wire.Stream, proc *process.Process) {
	for {
		b, err := s.Receive()
		if err != nil {
			proc.Stop(0)
			return
		}
		var req wire.Request
		if wire.Decode(b, &req) != nil {
			proc.Stop(0)
			return
		}
		handleRequest(req, proc)
	}
}

func exitedMessage(exit process.Exit, err error) *wire.Exited {
	return &wire.Exited{
		Lost: err != nil, Code: exit.Code, Signal: int(exit.Signal), Leftover: exit.Leftover, Proven: exit.Proven, Survivors: exit.Survivors,
		Kept: exit.Kept, OOM: exit.OOM,
	}
}

// identity is what the agent itself may do.
type identity struct {
	uid        int
	switchUser bool
}

// Capability numbers of capabilities(7): kill, setgid, setuid.
const switchUserCaps = 1<<5 | 1<<6 | 1<<7

func currentIdentity() identity {
	id := identity{uid: os.Getuid()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return id
	}
	for line := range bytes.Lines(status) {
		if hex, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			caps, err := strconv.ParseUint(string(bytes.TrimSpace(hex)), 16, 64)
			id.switchUser = err == nil && caps&switchUserCaps == switchUserCaps
		}
	}
	return id
}

// dialTimeout bounds the way to the daemon's socket, after which its word on stdin counts.
const dialTimeout = 4 * time.Second

// dial reaches the daemon's socket and proves the secret, both ways.
func dial(d wire.DialTarget) (*wire.Socket, error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	file, err := connect(d.Path)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", d.Path, err)
	}
	socket, err := wire.NewSocket(file, true)
	if err == nil {
		err = socket.SetDeadline(time.Now().Add(dialTimeout))
	}
	if err == nil {
		err = wire.AuthenticateDaemon(socket, d.Secret, nonce)
	}
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return socket, nil
}

// newNonce reads the kernel's device, because package crypto/rand would be a tenth of this program.
func newNonce() ([]byte, error) {
	f, err := os.Open("/dev/urandom")
	if err != nil {
		return nil, fmt.Errorf("opening the source of randomness: %w", err)
	}
	defer func() { _ = f.Close() }()
	nonce := make([]byte, wire.SecretSize)
	if _, err := io.ReadFull(f, nonce); err != nil {
		return nil, fmt.Errorf("reading the source of randomness: %w", err)
	}
	return nonce, nil
}

// connect gives a polled file. It waits for as long as dialTimeout where the daemon has many
// dialers.
func connect(path string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	bound := syscall.NsecToTimeval(dialTimeout.Nanoseconds())
	if err = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO,
		&bound); err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return polled(fd, "daemon"), nil
}
