package command

import (
	"context"
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

// terminalSession is the use of our terminal by a tool that has one of its own. From the tool's start on ours is raw: what is typed goes to the tool as it
// is, Ctrl-C and Ctrl-Z too, and what the tool prints is shown as it is. Until then, and while we are stopped, it is as it was.
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

// begin lends the terminal to a tool that has just started. It is called once; close takes the terminal back.
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

// sendInterrupt gives an interrupt to whoever watches for signals. One that is not taken yet is enough.
func sendInterrupt(signals chan<- os.Signal) {
	select {
	case signals <- os.Interrupt:
	default:
	}
}

// restoreOnPanic gives the terminal back before a panic ends the program: nobody could read its message otherwise, nor type anything afterwards. Without a
// session there is nothing to give back.
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

// setRaw hands the terminal over, unless it belongs to another job by now: to change it would stop us.
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
		_ = unix.IoctlSetTermios(int(s.file.Fd()), unix.TCSETS, s.modes) // a terminal that is gone needs none
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
func (s *terminalSession) handleSignals(ctx context.Context, signals <-chan os.Signal, resized chan<- struct{}) {
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

// resize tells the tool of each new size. Where that cannot be told the call is over or the daemon lost, and its stream says so.
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
