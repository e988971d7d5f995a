package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/client"
)

// The waits of a start. Where a daemon needs more than startNoticeDelay, people are told what they
// wait for.
const (
	startWait         = 20 * time.Second
	startNoticeDelay  = time.Second
	startPollInterval = 10 * time.Millisecond
	idleExit          = 10 * time.Minute
)

// daemonStarter starts the daemon of a state folder in the background, once, however many commands
// want it at the same moment.
type daemonStarter struct {
	state  string // the folder, absolute
	socket string
	args   []string // of the program, "serve" included
	status io.Writer
}

// start returns when a daemon answers on the socket, whoever started it.
func (s *daemonStarter) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait,
		errors.New("it did not answer within "+startWait.String()))
	defer cancel()
	if err := s.startOnce(ctx); err != nil {
		return startError{s.explain(err)}
	}
	return nil
}

// startOnce starts a daemon unless another command does, has done, or somebody's daemon is about to
// answer or to end.
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

// failed says when there is nothing more to wait for: the daemon has ended, and not because
// somebody else's was quicker to take the state folder.
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

// command is the daemon's. It has a session of its own, so that no Ctrl-C reaches it, and a folder
// that can never be in somebody's way.
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

// poll asks again and again until a daemon answers, done says true, or the context ends. It says
// once what it waits for.
func (s *daemonStarter) poll(ctx context.Context, done func() (bool, error)) (answered bool,
	err error,
) {
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

// exited reaps the daemon if it has ended. Waiting in a goroutine would need somebody who ends that
// goroutine.
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
	return dray.Errorf(dray.CodeInternal, "no daemon answers on %s and none could be started: %w",
		s.socket, err).WithHint("%s", hint)
}

func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

// Locks of the state folder. The kernel lets them go with the process that holds them, however it
// ended.
const (
	startLock  = "start.lock"  // held while a command starts the daemon
	daemonLock = "daemon.lock" // held by the daemon as long as it lives
)

// errLocked says that another process holds a lock.
var errLocked = errors.New("another process holds the lock")

// lock is an exclusive lock on a file. It belongs to the open file and not to the process
// (F_OFD_SETLK), so that two in one process exclude each other too, and that it can be asked for
// without being taken.
type lock struct{ file *os.File }

// tryLock takes the lock on a file, which it makes where it is missing, or fails with errLocked at
// once.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile())
	if err == nil {
		return &lock{file: f}, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// locked says whether a lock is held, without taking it.
func locked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening a lock: %w", err)
	}
	defer f.Close()
	asked := wholeFile()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, asked); err != nil {
		return false, fmt.Errorf("asking for the lock on %s: %w", path, err)
	}
	return asked.Type != unix.F_UNLCK, nil
}

// unlock lets the lock go. The file stays: to remove it would let two processes hold the locks on
// two files of one name.
func (l *lock) unlock() { _ = l.file.Close() }

func wholeFile() *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
}

// The log of a daemon that runs in the background. A start moves it away once it is longer than
// maxLog, so that there are never more than two files.
const (
	logName     = "daemon.log"
	maxLog      = 4 << 20
	maxLogTail  = 8 << 10
	maxLogLines = 12
)

// daemonLog is the log from the moment of a start on.
type daemonLog struct {
	*os.File
	begin int64
}

// openLog opens the log for a daemon that is about to start.
func openLog(state string) (*daemonLog, error) {
	path := filepath.Join(state, logName)
	if info, err := os.Lstat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("moving the old log away: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the daemon's log: %w", err)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("reading the daemon's log: %w", err)
	}
	return &daemonLog{File: f, begin: end}, nil
}

// tail gives the last lines that were written since the start, harmless for a terminal.
func (l *daemonLog) tail() []string {
	b, _ := io.ReadAll(io.NewSectionReader(l.File, l.begin, maxLog))
	if len(b) > maxLogTail {
		b = b[len(b)-maxLogTail:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	var lines []string
	scanner := bufio.NewScanner(bytes.NewReader(b))
	for scanner.Scan() {
		lines = append(lines, escapeLine(scanner.Text()))
	}
	return lines[max(0, len(lines)-maxLogLines):]
}

// logError is a failed start with what the daemon said about it.
type logError struct {
	err   error
	lines []string
}

func (e logError) Error() string {
	if len(e.lines) == 0 {
		return e.err.Error()
	}
	return e.err.Error() + "\n  " + strings.Join(e.lines, "\n  ")
}

func (e logError) Unwrap() error { return e.err }

// withClient runs what needs the daemon, and closes the connections afterwards.
func (a *app) withClient(do func(*client.Client) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if err := cfg.MakeState(); err != nil {
		return err
	}
	s := daemonStarter{
		state: string(cfg.State), socket: cfg.Server.Socket, args: serveArgs(cfg),
		status: a.err,
	}
	c := client.New(cfg.Server.Socket, s.start)
	defer c.Close()
	c.OnSlow = func() { fmt.Fprintln(a.err, "dray: waiting for the daemon's answer ...") }
	c.Version = version
	c.OnVersionMismatch = a.warnVersion
	return do(c)
}

// warnVersion says that the daemon was built from something else, to people: what it does not know
// it refuses, and a rebuilt program is not used as long as it runs.
func (a *app) warnVersion(daemon string, pid int) {
	if !isTerminal(a.err) {
		return
	}
	fmt.Fprintln(a.err, versionMismatch(daemon, pid))
}

func versionMismatch(daemon string, pid int) string {
	end := "end it"
	if pid != 0 {
		end = fmt.Sprintf("end it with kill %d", pid)
	}
	return fmt.Sprintf("dray: the daemon is of version %s, this command of %s; %s, and the next command starts its own", escapeLine(daemon), version, end)
}

// load reads the configuration, as the daemon does. A command needs the socket only, but one that
// says nothing of a mistake would talk to a daemon that still runs with the configuration before
// it.
func (a *app) load() (*config.Config, error) {
	return config.Load(config.Options{State: a.state, ConfigFile: a.config, Environ: os.Environ()})
}

// serveArgs are the arguments of a daemon in the background that has this configuration. It runs in
// another folder, so paths are absolute.
func serveArgs(cfg *config.Config) []string {
	args := []string{"serve", "--state", string(cfg.State), "--idle-exit", idleExit.String()}
	if cfg.File != "" {
		args = append(args, "--config", cfg.File)
	}
	return args
}
