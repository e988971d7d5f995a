package command

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/client"
)

// The time bounds of a start. After startNoticeDelay the command prints what it waits for.
const (
	startWait         = 20 * time.Second
	startNoticeDelay  = time.Second
	startPollInterval = 10 * time.Millisecond
	idleExit          = 10 * time.Minute
)

// daemonStarter starts the daemon of a state directory in the background. If several commands do so
// at the same time, one daemon starts.
type daemonStarter struct {
	state  string // the absolute path of the state directory
	socket string
	args   []string // the arguments of dray, beginning with "serve"
	status io.Writer
}

// lockFile is held by the daemon of the state directory.
func (s *daemonStarter) lockFile() string { return filepath.Join(s.state, daemonLock) }

// start returns when a daemon listens on the socket, started by this or by another command.
func (s *daemonStarter) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait,
		errors.New("it did not start within "+startWait.String()))
	defer cancel()
	if err := s.startOnce(ctx); err != nil {
		return startError{dray.Errorf(dray.CodeInternal, "could not start the daemon for %s: %w",
			s.socket, err).
			WithHint("see %s, or run it in the foreground: dray serve --state %s",
				filepath.Join(s.state, logName), s.state)}
	}
	return nil
}

// startOnce starts a daemon while it holds the start lock. It first waits for a daemon that is
// about to listen or to exit.
func (s *daemonStarter) startOnce(ctx context.Context) error {
	var mine *lock
	listening, err := s.poll(ctx, func() (done bool, err error) {
		mine, err = tryLock(filepath.Join(s.state, startLock))
		if errors.Is(err, errLocked) {
			err = nil
		}
		return mine != nil, err
	})
	if listening || err != nil {
		return err
	}
	defer mine.unlock()
	listening, err = s.poll(ctx, func() (bool, error) {
		running, err := locked(s.lockFile())
		return !running, err
	})
	if listening || err != nil {
		return err
	}
	return s.spawn(ctx)
}

// spawn starts a daemon and waits until it listens.
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
		return fmt.Errorf("start the daemon: %w", err)
	}
	defer func() { _ = child.Process.Release() }()
	listening, err := s.poll(ctx, s.failed(child.Process.Pid))
	switch {
	case listening:
		return nil
	case err == nil:
		err = errors.New("it exited immediately")
	}
	return logError{err: err, lines: log.tail()}
}

// failed returns a function that reports whether the daemon has exited, and not because another
// daemon had locked the state directory first.
func (s *daemonStarter) failed(pid int) func() (bool, error) {
	hasExited := false
	return func() (_ bool, err error) {
		if !hasExited {
			hasExited, err = exited(pid)
		}
		if !hasExited || err != nil {
			return false, err
		}
		other, err := locked(s.lockFile())
		return !other, err
	}
}

// command returns the daemon's command. It has its own session, so that it does not receive Ctrl-C,
// and / as its directory, so that no file system is kept busy.
func (s *daemonStarter) command(log *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the dray program: %w", err)
	}
	cmd := exec.Command(self, s.args...) //nolint:noctx // the daemon outlives this command
	cmd.Args[0] = "dray"
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

// poll waits until a daemon listens, done returns true, or ctx ends.
func (s *daemonStarter) poll(ctx context.Context, done func() (bool, error),
) (listening bool, err error) {
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

// exited reaps the daemon if it has exited, and reports whether it has. It does not block.
func exited(pid int) (bool, error) {
	var status syscall.WaitStatus
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		return false, fmt.Errorf("wait for the daemon: %w", err)
	}
	return got == pid, nil
}

// Lock files of the state directory. The kernel releases a lock when its process exits.
const (
	startLock  = "start.lock"  // held while a command starts the daemon
	daemonLock = "daemon.lock" // held by the daemon while it runs
)

// errLocked is returned by tryLock if another process holds the lock.
var errLocked = errors.New("locked by another process")

// writePID writes this process' pid to the file.
func (l *lock) writePID() error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("write the pid: %w", err)
	}
	if _, err := fmt.Fprintln(l.file, os.Getpid()); err != nil {
		return fmt.Errorf("write the pid: %w", err)
	}
	return nil
}

// holderPID returns the pid that writePID wrote. It returns 0, the pid of no process, for a file
// without one.
func holderPID(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the pid of the daemon: %w", err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid, nil
}

// lock is an exclusive lock on a file. It belongs to the open file, not to the process
// (F_OFD_SETLK): two locks in one process exclude each other too, and locked can query it.
type lock struct{ file *os.File }

// tryLock locks a file, creating it if needed. It returns errLocked if the lock is held.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a lock file: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile())
	if err == nil {
		return &lock{file: f}, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// locked reports whether a lock is held, without taking it.
func locked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open a lock file: %w", err)
	}
	defer f.Close()
	query := wholeFile()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, query); err != nil {
		return false, fmt.Errorf("query the lock on %s: %w", path, err)
	}
	return query.Type != unix.F_UNLCK, nil
}

// unlock releases the lock. The file stays: if it was removed, two processes could hold locks on
// two files with the same name.
func (l *lock) unlock() { _ = l.file.Close() }

func wholeFile() *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
}

// The log of a daemon that runs in the background. A start renames it if it is longer than maxLog,
// so there are at most two files.
const (
	logName     = "daemon.log"
	maxLog      = 4 << 20
	maxLogTail  = 8 << 10
	maxLogLines = 12
)

// daemonLog is the log; this start's lines begin at the offset begin.
type daemonLog struct {
	*os.File
	begin int64
}

func openLog(state string) (*daemonLog, error) {
	path := filepath.Join(state, logName)
	if info, err := os.Lstat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("rename the old log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's log: %w", err)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("read the daemon's log: %w", err)
	}
	return &daemonLog{File: f, begin: end}, nil
}

// tail returns the last lines written since the start, escaped for a terminal.
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

// logError is a failed start with the last lines of the log.
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

// withClient calls do with a client of the daemon, and closes its connections afterwards.
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
	return a.useClient(cfg, s.start, do)
}

// withRunningDaemon is withClient for commands that must not start a daemon. Without a running one
// it fails with [client.ErrNoDaemon]; one that is starting is waited for. Connecting to the socket
// would not do: a service manager may listen there and start the daemon.
func (a *app) withRunningDaemon(ctx context.Context, do func(*client.Client) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if err := a.waitForSocket(ctx, cfg); err != nil {
		return err
	}
	err = a.useClient(cfg, nil, do)
	if errors.Is(err, client.ErrNoDaemon) { // it has just exited
		return noDaemonError(cfg)
	}
	return err
}

// waitForSocket returns when the daemon of the state directory listens. It fails if none runs.
func (a *app) waitForSocket(ctx context.Context, cfg *config.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, noSocketError(cfg))
	defer cancel()
	s := daemonStarter{state: string(cfg.State), socket: cfg.Server.Socket, status: a.err}
	running, err := locked(s.lockFile())
	if err != nil || !running {
		return errors.Join(err, noDaemonError(cfg))
	}
	listening, err := s.poll(ctx, func() (bool, error) {
		running, err := locked(s.lockFile())
		return !running, err
	})
	if err == nil && !listening {
		return noDaemonError(cfg)
	}
	return err
}

// noSocketError says that the daemon of the state directory does not listen.
func noSocketError(cfg *config.Config) error {
	return dray.Errorf(dray.CodeNotFound, "%w for %s yet: one is starting or shutting down",
		client.ErrNoDaemon, cfg.State).WithHint("see %s, and repeat the command",
		filepath.Join(string(cfg.State), logName))
}

// noDaemonError says that no daemon uses the state directory.
func noDaemonError(cfg *config.Config) *dray.Error {
	return dray.Errorf(dray.CodeNotFound, "%w for %s", client.ErrNoDaemon, cfg.State).
		WithHint("commands such as dray exec start one, and so does dray serve")
}

func (a *app) useClient(cfg *config.Config, start func(context.Context) error,
	do func(*client.Client) error,
) error {
	c := client.New(cfg.Server.Socket, start)
	defer c.Close()
	c.OnSlow = func() { fmt.Fprintln(a.err, "dray: waiting for the daemon to respond ...") }
	c.Version = thisBuild().Version
	c.OnVersionMismatch = a.warnVersion
	own := configDigest(cfg)
	c.OnConfig = func(daemon string) { a.warnConfig(own, daemon) }
	return do(c)
}

// configDigest returns two digests, joined by "-": of the configuration, and of what flags and
// variables decide of it. Those of the docker CLI count if the configuration selects no engine.
func configDigest(cfg *config.Config) string {
	var engine []string
	if cfg.Engine == (config.Engine{}) {
		for _, name := range engineVars() {
			engine = append(engine, os.Getenv(name))
		}
	}
	digest := func(of string) string {
		h := sha256.Sum256(fmt.Appendf(nil, "%s\n%q\n", of, engine))
		return hex.EncodeToString(h[:8])
	}
	return digest(cfg.Digest()) + "-" + digest(cfg.SourceDigest())
}

// compareConfigs reports whether the configurations of two digests differ, and whether that can be
// due to flags and variables. If not, the file has changed.
func compareConfigs(a, b string) (differ, sources bool) {
	values, source, _ := strings.Cut(a, "-")
	otherValues, otherSource, _ := strings.Cut(b, "-")
	return values != otherValues, source != otherSource
}

// engineVars returns the variables of the docker CLI that select an engine.
func engineVars() []string { return []string{"DOCKER_HOST", "DOCKER_CONTEXT"} }

// warnVersion warns, on a terminal, that the running daemon is of another version: it lacks the
// changes of this program.
func (a *app) warnVersion(daemon string) {
	if isTerminal(a.err) {
		fmt.Fprintln(a.err, versionMismatch(daemon))
	}
}

func versionMismatch(daemon string) string {
	return fmt.Sprintf("dray: warning: the daemon has version %s, this command %s; run `dray stop`, "+
		"and the next command starts the new one", escapeLine(daemon), thisBuild().Version)
}

// warnConfig warns that the running daemon has another configuration: on a terminal, and wherever
// this command was given one that has no effect.
func (a *app) warnConfig(own, daemon string) {
	differ, sources := compareConfigs(own, daemon)
	given := configSources(a.config, os.Environ())
	if !differ || !isTerminal(a.err) && (!sources || given == "") {
		return
	}
	if !sources {
		fmt.Fprintln(a.err, "dray: warning: the configuration file has changed since the daemon read "+
			"it; run `dray reload`")
		return
	}
	if given != "" {
		given = ", which has " + given
	}
	fmt.Fprintf(a.err, "dray: warning: the daemon that runs was started with other flags or "+
		"variables than this command%s; run `dray stop`, and the next command starts one with this "+
		"configuration\n", given)
}

// configSources names the flag and the variables that configure this command, or returns "".
func configSources(flag string, environ []string) string {
	names := configVariables(environ)
	if flag != "" {
		names = slices.Insert(names, 0, "--config")
	}
	return strings.Join(names, ", ")
}

// configVariables returns the variables that configure the daemon, without the state directory.
func configVariables(environ []string) []string {
	var names []string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value != "" && (config.IsVariable(name) || slices.Contains(engineVars(), name)) {
			names = append(names, name)
		}
	}
	return names
}

// load reads the configuration like the daemon does. A command uses only the socket from it, but it
// must report an invalid configuration: a running daemon still has the previous one.
func (a *app) load() (*config.Config, error) {
	return config.Load(config.Options{State: a.state, ConfigFile: a.config, Environ: os.Environ()})
}

// serveArgs returns the arguments of a daemon in the background with this configuration. Paths are
// absolute, since the daemon has another working directory.
func serveArgs(cfg *config.Config) []string {
	args := []string{"serve", "--state", string(cfg.State), "--idle-exit", idleExit.String()}
	if cfg.File != "" {
		args = append(args, "--config", cfg.File)
	}
	return args
}
