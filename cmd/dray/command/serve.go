package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/api/unixsock"
	"github.com/dray-dev/dray/internal/logging"
)

func newServe(a *app) *cobra.Command {
	var idle time.Duration
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon in the foreground",
		Long: `serve runs the daemon until it receives SIGTERM or Ctrl-C. Then it refuses new calls,
waits up to limits.drain for running calls, cancels the rest and exits with 0. On a
second signal it exits at once. On SIGHUP it reloads its configuration, as dray reload
does. It logs JSON lines to stderr; the line with
"event":"ready" contains the path of the socket.`,
		Example: "  dray serve\n  dray serve --state /srv/dray --config /etc/dray/config.yaml",
		Args:    noArgs,
	}
	cmd.Flags().DurationVar(&idle, "idle-exit", 0, "exit after this `time` without a call")
	if err := cmd.Flags().MarkHidden("idle-exit"); err != nil {
		panic(err) // the flag exists
	}
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error { return a.runServe(ctx, idle) })
	return cmd
}

func (a *app) runServe(ctx context.Context, idle time.Duration) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	cfg, err := a.load()
	if err != nil {
		return err
	}
	stateLock, err := lockState(cfg)
	if err != nil {
		return err
	}
	defer stateLock.unlock()
	log := logging.New(a.err, zapcore.InfoLevel)
	runner, err := a.openRunner(ctx, cfg, log, idle)
	if err != nil {
		return err
	}
	return runner.serve(ctx, signals)
}

// lockState creates the state directory and locks it for this daemon.
func lockState(cfg *config.Config) (*lock, error) {
	if err := cfg.MakeState(); err != nil {
		return nil, err
	}
	stateLock, err := lockAfterKill(filepath.Join(string(cfg.State), daemonLock))
	if errors.Is(err, errLocked) {
		return nil, dray.Errorf(dray.CodeConflict, "another daemon uses the state directory %s",
			cfg.State).WithHint("commands find that daemon; for a second one use --state DIR")
	}
	if err != nil {
		return nil, err
	}
	if err := stateLock.writePID(); err != nil {
		stateLock.unlock()
		return nil, err
	}
	return stateLock, nil
}

// killedWait bounds how long the processes of a killed daemon may hold its lock.
const killedWait = 5 * time.Second

// lockAfterKill locks the file of a daemon. If the daemon that held the lock was killed, a process
// that it was about to start still has the file open until its program begins: lockAfterKill waits
// for that. It returns errLocked at once if the daemon of the lock runs.
func lockAfterKill(path string) (*lock, error) {
	deadline := time.Now().Add(killedWait)
	for {
		held, err := tryLock(path)
		if !errors.Is(err, errLocked) || holderRuns(path) || time.Now().After(deadline) {
			return held, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// holderRuns reports whether the process whose pid is in a lock file exists.
func holderRuns(path string) bool {
	pid, err := holderPID(path)
	return err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// openRunner opens the service, then the socket, so that no client connects to a daemon that fails
// to start.
func (a *app) openRunner(ctx context.Context, cfg *config.Config, log *zap.Logger,
	idle time.Duration,
) (*serviceRunner, error) {
	svc, err := a.newService(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	runner, err := listen(ctx, svc, cfg, log, idle)
	if err != nil {
		return nil, errors.Join(err, svc.Shutdown(ctx))
	}
	return runner, nil
}

// closingGrace is how long an idle daemon serves clients that connected before its socket was
// removed.
const closingGrace = 100 * time.Millisecond

// serviceRunner runs a service on its socket until a signal, or until it is idle for long enough.
type serviceRunner struct {
	svc    service
	socket *unixsock.Listener
	tcp    net.Listener // nil if none is configured
	path   string
	drain  time.Duration
	// idle is the idle time after which the service stops; 0 means never.
	idle time.Duration
	log  *zap.Logger
}

func listen(ctx context.Context, svc service, cfg *config.Config, log *zap.Logger,
	idle time.Duration,
) (*serviceRunner, error) {
	users, err := userIDs(cfg.Server.Users)
	if err != nil {
		return nil, err
	}
	l, err := unixsock.Listen(ctx, cfg.Server.Socket, users, func(uid uint32) {
		log.Warn("connection refused", zap.Uint32("uid", uid))
	})
	if err != nil {
		return nil, err
	}
	tcp, err := listenTCP(ctx, cfg.Server.TCP)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &serviceRunner{
		svc: svc, socket: l, tcp: tcp, path: cfg.Server.Socket, drain: cfg.Limits.Drain,
		idle: idle, log: log,
	}, nil
}

// serve accepts calls until a signal, the end of ctx, or idleness. It returns when the service has
// shut down, or at once on a second signal.
func (h *serviceRunner) serve(ctx context.Context, signals <-chan os.Signal) error {
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- h.svc.Serve(h.socket) })
	ready := []zap.Field{zap.String("socket", h.path), zap.Int("pid", os.Getpid())}
	if h.tcp != nil {
		serving.Go(func() { failed <- h.svc.Serve(h.tcp) })
		ready = append(ready, zap.Stringer("tcp", h.tcp.Addr()))
	}
	h.log.Info("ready", ready...)
	why, err := h.waitForStop(ctx, signals, failed)
	h.log.Info("draining", zap.String("why", why), zap.Duration("limit", h.drain))

	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.drain)
		defer cancel()
		err := h.svc.Shutdown(ctx) // the socket stays: clients that connect meanwhile get an error
		serving.Wait()
		done <- err
	}()
	select {
	case endErr := <-done:
		h.log.Info("ended")
		return errors.Join(err, endErr)
	case s := <-signals:
		h.log.Warn("ended at once", zap.Stringer("why", s))
		return exitError(exitFailed)
	}
}

// waitForStop blocks until there is a reason to stop, and returns it.
func (h *serviceRunner) waitForStop(ctx context.Context, signals <-chan os.Signal,
	failed <-chan error,
) (why string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	retired := make(chan struct{})
	if h.idle > 0 {
		waiting.Go(func() {
			if h.shutdownWhenIdle(ctx) {
				close(retired)
			}
		})
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	waiting.Go(func() {
		for {
			select {
			case <-hangups:
				h.svc.Hangup(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	select {
	case s := <-signals:
		return s.String(), nil
	case <-retired:
		return "idle", nil
	case err := <-failed:
		return "no more connections", fmt.Errorf("accept connections: %w", err)
	case <-ctx.Done():
		return "context ended", nil
	}
}

// shutdownWhenIdle waits until the daemon has been idle for h.idle and removes its socket. It
// returns true when the clients that had connected before have been served too. Later clients start
// a new daemon.
func (h *serviceRunner) shutdownWhenIdle(ctx context.Context) bool {
	if !waitIdle(ctx, h.svc, h.idle) {
		return false
	}
	if !h.socket.Inherited {
		_ = os.Remove(h.path) // ours: the state directory is locked until the listener is closed
	}
	return waitIdle(ctx, h.svc, closingGrace)
}

// service is the HTTP server with everything behind it. newDaemon creates the real one.
type service interface {
	// Serve handles requests from l until Shutdown closes it. It is called for each listener.
	Serve(l net.Listener) error
	// Idle returns the time of the last activity; ok is false while a request or a call runs.
	Idle() (since time.Time, ok bool)
	// Hangup handles SIGHUP: it reads the configuration again and logs the outcome.
	Hangup(ctx context.Context)
	// Shutdown refuses new calls, waits for running ones until ctx ends, and cancels the rest. It
	// returns when the last response was sent and everything is closed. It must be called once, also
	// if Serve was not.
	Shutdown(ctx context.Context) error
}

// serviceFactory opens a service; ctx bounds the opening only.
type serviceFactory func(ctx context.Context, cfg *config.Config, log *zap.Logger) (service, error)

// openDaemon is the serviceFactory of the program.
func openDaemon(ctx context.Context, cfg *config.Config, log *zap.Logger) (service, error) {
	d, err := newDaemon(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// idlePollInterval is the time between checks of a busy service.
const idlePollInterval = time.Second

// waitIdle returns true when a service has been idle for the time after, and false when ctx ends.
// Time counts from the last check that found it busy, since a call without a client ends without a
// request.
func waitIdle(ctx context.Context, svc service, after time.Duration) bool {
	busy := time.Now()
	for {
		since, idle := svc.Idle()
		if !idle {
			busy = time.Now()
		}
		if since.Before(busy) {
			since = busy
		}
		left := after - time.Since(since)
		if left <= 0 {
			return true
		}
		if !idle {
			left = min(left, idlePollInterval)
		}
		if !pause(ctx, left) {
			return false
		}
	}
}

// pause returns true after d, and false when ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
