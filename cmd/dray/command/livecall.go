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

// liveCall is one call whose output is shown while it runs.
type liveCall struct {
	client *client.Client
	call   client.Call
	// start starts the call; nil starts it as call says.
	start func(context.Context) (*client.Stream, error)
	// stdin is passed to the tool; nil is none.
	stdin io.Reader
	// session lends our terminal to the tool; nil where the tool has none.
	session *terminalSession
	// stdout and stderr take the tool's bytes.
	stdout, stderr io.Writer
	progress       *progress
	// onProgress hears of progress instead of the line on stderr; nil is that line.
	onProgress func(phase, message string)
}

// callResult is how a call ended: as a value, and as the daemon wrote it.
type callResult struct {
	record dray.Record
	json   []byte
}

// run makes the call and returns when it is over. Ctrl-C cancels the call, and its end is waited
// for; a second one leaves at once with errInterrupted, and so does the first where the daemon does
// not know the call yet. Leaving takes the client away, and with it the call.
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
	watching.Go(func() { l.session.restoreOnPanic(func() { l.watch(ctx, signals, accepted, leave) }) })

	stream, err := l.open(ctx)
	if err != nil {
		return callResult{}, err
	}
	defer stream.Close()
	accepted <- stream.ID()
	pump := func(ctx context.Context, from io.Reader) { l.pump(ctx, stream.ID(), from, leave) }
	if l.stdin != nil {
		go pump(ctx, l.stdin) // not waited for: nothing can end a read that waits
	}
	defer l.session.close()
	return l.follow(ctx, stream, func() error {
		if l.session == nil {
			return nil
		}
		return l.session.begin(ctx, terminalLease{
			id: stream.ID(), shown: *l.call.TTY, pump: pump,
			signals: signals,
		})
	})
}

// open starts the call.
func (l *liveCall) open(ctx context.Context) (*client.Stream, error) {
	if l.start != nil {
		return l.start(ctx)
	}
	l.call.StdinOpen = l.stdin != nil || l.session.reads()
	l.call.OnSlowReader = "wait" // what is behind us in a pipe may read as slowly as it likes
	return l.client.Start(ctx, l.call)
}

// showProgress shows progress.
func (l *liveCall) showProgress(phase, message string) {
	if l.onProgress != nil {
		l.onProgress(phase, message)
		return
	}
	l.progress.show(phase, message)
}

// watch acts on signals until the context ends.
func (l *liveCall) watch(ctx context.Context, signals <-chan os.Signal, accepted <-chan string,
	leave context.CancelCauseFunc,
) {
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	interrupt := func() { leave(errInterrupted) }
	for {
		select {
		case id := <-accepted:
			interrupt = func() { cancelling.Go(func() { l.session.restoreOnPanic(func() { l.cancel(ctx, id, leave) }) }) }
		case <-signals:
			interrupt()
			interrupt = func() { leave(errInterrupted) }
		case <-ctx.Done():
			return
		}
	}
}

// cancel asks the daemon to end the call, and leaves if it does not listen. A call that is over is
// no longer there to be cancelled.
func (l *liveCall) cancel(ctx context.Context, id string, leave context.CancelCauseFunc) {
	if err := l.client.Cancel(ctx, id); err != nil && !client.IsCallEnded(err) {
		leave(errInterrupted)
	}
}

// pump passes stdin on. Where that fails the call ends: half of an input must not look like all of
// it.
func (l *liveCall) pump(ctx context.Context, id string, from io.Reader,
	leave context.CancelCauseFunc,
) {
	err := l.client.Stdin(ctx, id, from)
	switch {
	case err == nil, ctx.Err() != nil:
	case client.IsLost(err): // it is told alike, whether the stream or stdin is the first to see it
		leave(err)
	default:
		leave(fmt.Errorf("passing stdin to the tool: %w", err))
	}
}

// follow shows the events of a call until it is over. begun is called when the tool was started.
func (l *liveCall) follow(ctx context.Context, stream *client.Stream,
	begun func() error,
) (callResult, error) {
	for {
		ev, err := stream.Next()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return callResult{}, cause
		}
		if err != nil {
			return callResult{}, gapError(err)
		}
		switch ev.Name {
		case client.EventState:
			l.progress.clear()
			if ev.Phase == client.PhaseStarted {
				err = begun()
			}
		case client.EventProgress:
			l.showProgress(ev.Phase, ev.Message)
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

// write passes a tool's bytes on. That nobody takes them ends the call.
func (l *liveCall) write(w io.Writer, p []byte) error {
	l.progress.clear()
	_, err := w.Write(p)
	return outputError(err)
}

// gapError gives a hole in the output its next step.
func gapError(err error) error {
	if !errors.Is(err, client.ErrOutputGap) {
		return err
	}
	return dray.Errorf(dray.CodeInternal, "%w", err).
		WithHint("what reads the output was too slow, and the call was ended; let the tool write into a file, or read faster")
}

// terminalSession is the use of our terminal by a tool that has one of its own. From the tool's
// start on ours is raw: what is typed goes to the tool as it is, Ctrl-C and Ctrl-Z too, and what
// the tool prints is shown as it is. Until then, and while we are stopped, it is as it was.
type terminalSession struct {
	client *client.Client
	// file is our terminal where the keyboard is the tool's; nil where stdin is something else.
	file *os.File
	// size is that of the terminal that shows the output.
	size func() dray.TerminalSize
	// end undoes what begin did; nil before.
	end func()

	mu    sync.Mutex
	modes *unix.Termios // as they were; nil while the terminal is as it was
	over  bool
}

// terminalLease is a call whose tool gets the terminal.
type terminalLease struct {
	id string
	// shown is the size that the call was started with.
	shown dray.TerminalSize
	// pump passes what is typed to the tool.
	pump func(ctx context.Context, typed io.Reader)
	// signals is where an escape that is typed goes, as an interrupt.
	signals chan<- os.Signal
}

// begin lends the terminal to a tool that has just started. It is called once; close takes the
// terminal back.
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
	running.Go(func() { s.restoreOnPanic(func() { s.handleSignals(ctx, own, resized) }) })
	running.Go(func() { s.restoreOnPanic(func() { s.resize(ctx, to, resized) }) })
	if s.file == nil {
		return nil
	}
	keys, err := newKeyboard(s.file)
	if err != nil {
		return fmt.Errorf("preparing to read the terminal: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = keys.Close() })
	if err := s.setRaw(); err != nil {
		keys.free()
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	typed := &escapeDetector{r: keys, now: time.Now, onEscape: func() { sendInterrupt(to.signals) }}
	running.Go(func() {
		defer keys.free()
		s.restoreOnPanic(func() { to.pump(ctx, typed) })
	})
	return nil
}

// reads says whether what is typed will be the tool's.
func (s *terminalSession) reads() bool { return s != nil && s.file != nil }

// close gives the terminal back, if it was lent, and ends all that begin began.
func (s *terminalSession) close() {
	if s != nil && s.end != nil {
		s.end()
	}
}

// sendInterrupt gives an interrupt to whoever watches for signals. One that is not taken yet is
// enough.
func sendInterrupt(signals chan<- os.Signal) {
	select {
	case signals <- os.Interrupt:
	default:
	}
}

// restoreOnPanic gives the terminal back before a panic ends the program: nobody could read its
// message otherwise, nor type anything afterwards. Without a session there is nothing to give back.
func (s *terminalSession) restoreOnPanic(do func()) {
	defer func() {
		if p := recover(); p != nil {
			if s != nil {
				s.finish()
			}
			panic(p)
		}
	}()
	do()
}

// setRaw hands the terminal over, unless it belongs to another job by now: to change it would stop
// us.
func (s *terminalSession) setRaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || s.over || s.modes != nil || !inForeground(s.file) {
		return nil
	}
	modes, err := makeRaw(s.file)
	if err == nil {
		s.modes = modes
	}
	return err
}

// restore makes the terminal what it was.
func (s *terminalSession) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modes != nil && inForeground(s.file) { // a shell that took it away has its own modes
		// a terminal that is gone needs none
		_ = unix.IoctlSetTermios(int(s.file.Fd()), unix.TCSETS, s.modes)
	}
	s.modes = nil
}

// finish restores it for good.
func (s *terminalSession) finish() {
	s.restore()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// handleSignals acts on the signals that concern the terminal.
func (s *terminalSession) handleSignals(ctx context.Context, signals <-chan os.Signal,
	resized chan<- struct{},
) {
	for {
		select {
		case sig := <-signals:
			s.handleSignal(sig)
			select {
			case resized <- struct{}{}: // it may have another size after any of them
			default:
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *terminalSession) handleSignal(sig os.Signal) {
	switch sig {
	case syscall.SIGTSTP: // from elsewhere: Ctrl-Z is the tool's
		s.restore()
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // which none can refuse; SIGCONT follows
	case syscall.SIGCONT:
		_ = s.setRaw() // the tool goes on, whatever the terminal is
	case syscall.SIGQUIT:
		s.finish()
		signal.Reset(syscall.SIGQUIT)
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGQUIT)
	}
}

// resize tells the tool of each new size. Where that cannot be told the call is over or the daemon
// lost, and its stream says so.
func (s *terminalSession) resize(ctx context.Context, to terminalLease, resized <-chan struct{}) {
	for {
		if size := s.size(); size != to.shown && s.client.Resize(ctx, to.id, size) == nil {
			to.shown = size
		}
		select {
		case <-resized:
		case <-ctx.Done():
			return
		}
	}
}
