package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

// liveCall is a call whose output is printed while it runs.
type liveCall struct {
	client *client.Client
	call   client.Call
	// start starts the call; nil starts call.
	start func(context.Context) (*client.Stream, error)
	// stdin is passed to the tool, unless it is nil.
	stdin io.Reader
	// session connects our terminal to the tool; nil if the tool has no terminal.
	session        *terminalSession
	stdout, stderr io.Writer
	progress       *progress
}

// callResult is a call that ended, decoded and as the daemon sent it.
type callResult struct {
	record dray.Record
	json   []byte
}

// run makes the call and returns when it has ended. The first interrupt cancels the call and waits
// for its end. The second one, or the first before the call was accepted, closes the connection and
// returns errInterrupted; the daemon then cancels the call.
func (l *liveCall) run(ctx context.Context) (callResult, error) {
	ctx, leave := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer leave(nil)
	defer l.progress.clear()

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	accepted := make(chan string, 1)
	l.session.run(&watching, func() { l.watch(ctx, signals, accepted, leave) })

	stream, err := l.open(ctx)
	if err != nil {
		return callResult{}, err
	}
	defer stream.Close()
	accepted <- stream.ID()
	pump := func(ctx context.Context, from io.Reader) { l.pump(ctx, stream.ID(), from, leave) }
	if l.stdin != nil {
		go pump(ctx, l.stdin) // not waited for: a blocked read cannot be ended
	}
	defer l.session.close()
	return l.follow(ctx, stream, func() error {
		if l.session == nil {
			return nil
		}
		lease := terminalLease{id: stream.ID(), size: *l.call.TTY, pump: pump, signals: signals}
		return l.session.begin(ctx, lease)
	})
}

func (l *liveCall) open(ctx context.Context) (*client.Stream, error) {
	if l.start != nil {
		return l.start(ctx)
	}
	l.call.StdinOpen = l.stdin != nil || l.session.hasKeyboard()
	l.call.OnSlowReader = "wait" // our own stdout may be a pipe with a slow reader
	return l.client.Start(ctx, l.call)
}

// watch handles signals until ctx ends.
func (l *liveCall) watch(ctx context.Context, signals <-chan os.Signal, accepted <-chan string,
	leave context.CancelCauseFunc,
) {
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	interrupt := func() { leave(errInterrupted) }
	for {
		select {
		case id := <-accepted:
			interrupt = func() {
				l.session.run(&cancelling, func() { l.cancel(ctx, id, leave) })
			}
		case <-signals:
			interrupt()
			interrupt = func() { leave(errInterrupted) }
		case <-ctx.Done():
			return
		}
	}
}

// cancel asks the daemon to cancel the call. If that fails, it prints why and leaves. It is no
// failure that the call has ended already.
func (l *liveCall) cancel(ctx context.Context, id string, leave context.CancelCauseFunc) {
	err := l.client.Cancel(ctx, id)
	if err == nil || client.IsCallEnded(err) || ctx.Err() != nil {
		return
	}
	l.progress.clear()
	fmt.Fprintf(l.stderr, "dray: the call could not be cancelled and may still run: %s\n",
		escapeLine(err.Error()))
	leave(errInterrupted)
}

// pump sends stdin to the tool. An error ends the call, because a truncated input must not look
// complete.
func (l *liveCall) pump(ctx context.Context, id string, from io.Reader,
	leave context.CancelCauseFunc,
) {
	err := l.client.Stdin(ctx, id, from)
	switch {
	case err == nil, ctx.Err() != nil:
	case client.IsLost(err): // the stream of events fails with the same message
		leave(err)
	default:
		leave(fmt.Errorf("send stdin to the tool: %w", err))
	}
}

// follow handles the events of a call until its end. It calls started when the tool has started.
func (l *liveCall) follow(ctx context.Context, stream *client.Stream,
	started func() error,
) (callResult, error) {
	for {
		ev, err := stream.Next()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return callResult{}, cause
		}
		if errors.Is(err, client.ErrOutputGap) {
			err = dray.Errorf(dray.CodeInternal, "%w", err).
				WithHint("redirect the output to a file")
		}
		if err != nil {
			return callResult{}, err
		}
		switch ev.Name {
		case client.EventState:
			l.progress.clear()
			if ev.Phase == client.PhaseStarted {
				err = started()
			}
		case client.EventProgress:
			l.progress.show(ev.Phase, ev.Message)
		case client.EventStdout:
			err = l.write(l.stdout, ev.Bytes)
		case client.EventStderr:
			err = l.write(l.stderr, ev.Bytes)
		case client.EventEnd:
			record, err := ev.Record()
			return callResult{record: record, json: ev.Invocation}, err
		}
		if err != nil {
			return callResult{}, err
		}
	}
}

// write prints the tool's output. An error ends the call.
func (l *liveCall) write(w io.Writer, p []byte) error {
	l.progress.clear()
	_, err := w.Write(p)
	return outputError(err)
}

// terminalSession connects our terminal to a tool that has a terminal of its own. Our terminal is
// raw while the tool runs, so that every key reaches the tool, Ctrl-C and Ctrl-Z too. Before that,
// and while we are stopped, it has its original modes. A nil session does nothing.
type terminalSession struct {
	client *client.Client
	// file is our terminal if its keyboard is the tool's, else nil.
	file *os.File
	// size returns the size of the terminal that shows the output.
	size func() dray.TerminalSize
	// end undoes begin; nil before begin.
	end func()

	mu     sync.Mutex
	modes  *unix.Termios // the original modes while the terminal is raw, else nil
	closed bool
}

// terminalLease is a call whose tool uses our terminal.
type terminalLease struct {
	id string
	// size is the size that the tool's terminal has.
	size dray.TerminalSize
	// pump sends what is typed to the tool.
	pump func(ctx context.Context, typed io.Reader)
	// signals receives an interrupt when the escape sequence is typed.
	signals chan<- os.Signal
}

// begin connects the terminal to a tool that has just started. It must be called at most once.
func (s *terminalSession) begin(ctx context.Context, to terminalLease) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	own, resized := make(chan os.Signal, 4), make(chan struct{}, 1)
	signal.Notify(own, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGQUIT)
	s.end = func() {
		signal.Stop(own)
		stop()
		s.finish()
		running.Wait()
	}
	s.run(&running, func() { s.handleSignals(ctx, own, resized) })
	s.run(&running, func() { s.resize(ctx, to, resized) })
	if s.file == nil {
		return nil
	}
	keys, err := newTTYReader(s.file)
	if err != nil {
		return fmt.Errorf("read the terminal: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = keys.Close() })
	if err := s.setRaw(); err != nil {
		keys.free()
		return fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	typed := &escapeDetector{r: keys, now: time.Now, onEscape: func() { sendInterrupt(to.signals) }}
	s.run(&running, func() {
		defer keys.free()
		to.pump(ctx, typed)
	})
	return nil
}

// hasKeyboard reports whether the tool reads our keyboard.
func (s *terminalSession) hasKeyboard() bool { return s != nil && s.file != nil }

// close restores the terminal and waits for the goroutines of begin.
func (s *terminalSession) close() {
	if s != nil && s.end != nil {
		s.end()
	}
}

// sendInterrupt sends an interrupt, unless one is pending.
func sendInterrupt(signals chan<- os.Signal) {
	select {
	case signals <- os.Interrupt:
	default:
	}
}

// run runs do in a goroutine of the group. It restores the terminal before a panic ends the
// program, so that the panic's message is readable.
func (s *terminalSession) run(group *sync.WaitGroup, do func()) {
	group.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				if s != nil {
					s.finish()
				}
				panic(p)
			}
		}()
		do()
	})
}

// setRaw sets the terminal to raw mode. It does nothing in the background, where the kernel would
// stop us.
func (s *terminalSession) setRaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || s.closed || s.modes != nil || !inForeground(s.file) {
		return nil
	}
	modes, err := makeRaw(s.file)
	if err == nil {
		s.modes = modes
	}
	return err
}

// restore sets the original modes. In the background the shell has set its own.
func (s *terminalSession) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modes != nil && inForeground(s.file) {
		_ = unix.IoctlSetTermios(int(s.file.Fd()), unix.TCSETS, s.modes) // fails if it was closed
	}
	s.modes = nil
}

// finish restores the terminal and keeps setRaw from changing it again.
func (s *terminalSession) finish() {
	s.restore()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// handleSignals handles the signals that concern the terminal until ctx ends.
func (s *terminalSession) handleSignals(ctx context.Context, signals <-chan os.Signal,
	resized chan<- struct{},
) {
	for {
		select {
		case sig := <-signals:
			s.handleSignal(sig)
			select {
			case resized <- struct{}{}: // after a stop the size may differ too
			default:
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *terminalSession) handleSignal(sig os.Signal) {
	switch sig {
	case syscall.SIGTSTP: // sent by another process: Ctrl-Z goes to the tool
		s.restore()
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	case syscall.SIGCONT:
		_ = s.setRaw() // the call continues even if this fails
	case syscall.SIGQUIT:
		s.finish()
		signal.Reset(syscall.SIGQUIT)
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGQUIT)
	}
}

// resize sends each new size to the tool. It ignores errors: the stream of events reports that the
// call has ended or that the daemon was lost.
func (s *terminalSession) resize(ctx context.Context, to terminalLease, resized <-chan struct{}) {
	for {
		if size := s.size(); size != to.size && s.client.Resize(ctx, to.id, size) == nil {
			to.size = size
		}
		select {
		case <-resized:
		case <-ctx.Done():
			return
		}
	}
}
