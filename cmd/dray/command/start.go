package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

// The waits of a start. Where a daemon needs more than startNoticeDelay, people are told what they wait for.
const (
	startWait         = 20 * time.Second
	startNoticeDelay  = time.Second
	startPollInterval = 10 * time.Millisecond
	idleExit          = 10 * time.Minute
)

// daemonStarter starts the daemon of a state folder in the background, once, however many commands want it at the same moment.
type daemonStarter struct {
	state  string // the folder, absolute
	socket string
	args   []string // of the program, "serve" included
	status io.Writer
}

// start returns when a daemon answers on the socket, whoever started it.
func (s *daemonStarter) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, errors.New("it did not answer within "+startWait.String()))
	defer cancel()
	if err := s.startOnce(ctx); err != nil {
		return startError{s.explain(err)}
	}
	return nil
}

// startOnce starts a daemon unless another command does, has done, or somebody's daemon is about to answer or to end.
func (s *daemonStarter) startOnce(ctx context.Context) error {
	var mine *lock
	answered, err := s.poll(ctx, func() (done bool, err error) {
		mine, err = tryLock(filepath.Join(s.state, startLock))
		return mine != nil, ignore(err, errLocked)
	})
	if answered || err != nil {
		return err
	}
	defer mine.unlock()
	answered, err = s.poll(ctx, func() (bool, error) {
		held, err := locked(filepath.Join(s.state, daemonLock))
		return !held, err
	})
	if answered || err != nil {
		return err
	}
	return s.spawn(ctx)
}

// spawn starts a daemon and waits until it answers.
func (s *daemonStarter) spawn(ctx context.Context) error {
	log, err := openLog(s.state)
	if err != nil {
		return err
	}
	defer log.Close()
	child, err := s.command(log.File)
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	defer func() { _ = child.Process.Release() }()
	answered, err := s.poll(ctx, s.failed(child.Process.Pid))
	switch {
	case answered:
		return nil
	case err == nil:
		err = errors.New("it ended at once")
	}
	return logError{err: err, lines: log.tail()}
}

// failed says when there is nothing more to wait for: the daemon has ended, and not because somebody else's was quicker to take the state folder.
func (s *daemonStarter) failed(pid int) func() (bool, error) {
	ended := false
	return func() (_ bool, err error) {
		if !ended {
			ended, err = exited(pid)
		}
		if !ended || err != nil {
			return false, err
		}
		other, err := locked(filepath.Join(s.state, daemonLock))
		return !other, err
	}
}

// command is the daemon's. It has a session of its own, so that no Ctrl-C reaches it, and a folder that can never be in somebody's way.
func (s *daemonStarter) command(log *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the program itself: %w", err)
	}
	cmd := exec.Command(self, s.args...) //nolint:noctx // the daemon outlives whoever starts it
	cmd.Args[0] = "dray"
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

// poll asks again and again until a daemon answers, done says true, or the context ends. It says once what it waits for.
func (s *daemonStarter) poll(ctx context.Context, done func() (bool, error)) (answered bool, err error) {
	tick := time.NewTicker(startPollInterval)
	defer tick.Stop()
	notice := time.After(startNoticeDelay)
	for {
		if client.IsListening(ctx, s.socket) {
			return true, nil
		}
		if ok, err := done(); ok || err != nil {
			return client.IsListening(ctx, s.socket), err
		}
		select {
		case <-tick.C:
		case <-notice:
			fmt.Fprintln(s.status, "dray: waiting for the daemon to start ...")
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// exited reaps the daemon if it has ended. Waiting in a goroutine would need somebody who ends that goroutine.
func exited(pid int) (bool, error) {
	var status syscall.WaitStatus
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		return false, fmt.Errorf("watching the daemon: %w", err)
	}
	return got == pid, nil
}

// explain makes the error that the user sees.
func (s *daemonStarter) explain(err error) *dray.Error {
	hint := "start it in the foreground to see more: dray serve --state " + s.state
	return dray.Errorf(dray.CodeInternal, "no daemon answers on %s and none could be started: %w", s.socket, err).WithHint("%s", hint)
}

func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}
