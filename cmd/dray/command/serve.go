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
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/api/unixsock"
)

func newServe(a *app) *cobra.Command {
	var idle time.Duration
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon in the foreground",
		Long: `serve runs the daemon until it gets SIGTERM or Ctrl-C. Then it takes no new
calls, waits limits.drain for those that run, cancels the rest and exits with 0.
A second signal ends it at once. Its log is JSON lines on stderr; the line with
"event":"ready" names the socket.`,
		Example: "  dray serve\n  dray serve --state /srv/dray --config /etc/dray/config.yaml",
		Args:    noArgs,
	}
	cmd.Flags().DurationVar(&idle, "idle-exit", 0, "end after this `time` without a call")
	if err := cmd.Flags().MarkHidden("idle-exit"); err != nil {
		panic(err) // the flag was added one line before
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
	held, err := lockState(cfg)
	if err != nil {
		return err
	}
	defer held.unlock()
	log := logging.New(a.err, zapcore.InfoLevel)
	h, err := a.openServing(ctx, cfg, log, idle)
	if err != nil {
		return err
	}
	return h.serve(ctx, signals)
}

// lockState makes the state folder and takes it for this daemon alone.
func lockState(cfg *config.Config) (*lock, error) {
	if err := cfg.MakeState(); err != nil {
		return nil, err
	}
	held, err := tryLock(filepath.Join(string(cfg.State), daemonLock))
	if errors.Is(err, errLocked) {
		return nil, dray.Errorf(dray.CodeConflict, "another daemon runs on the state folder %s",
			cfg.State).
			WithHint("use that one: commands find it by themselves; or give this one a folder of its own with --state DIR")
	}
	return held, err
}

// openServing opens the service, then the socket, so that nobody can connect to a daemon that does
// not come up.
func (a *app) openServing(ctx context.Context, cfg *config.Config, log *zap.Logger,
	idle time.Duration,
) (*serviceRunner, error) {
	svc, err := a.open(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	h, err := listen(ctx, svc, cfg, log, idle)
	if err != nil {
		return nil, errors.Join(err, svc.Shutdown(ctx))
	}
	return h, nil
}

// closingGrace is how long a retired daemon still answers those who connected before the name of
// its socket was gone.
const closingGrace = 100 * time.Millisecond

// serviceRunner runs a service on its socket until it is told to end, or nobody needs it any more.
type serviceRunner struct {
	svc    service
	socket net.Listener
	path   string
	drain  time.Duration
	// idle is how long the service may have nothing to do; 0 is for ever.
	idle time.Duration
	log  *zap.Logger
}

func listen(ctx context.Context, svc service, cfg *config.Config, log *zap.Logger,
	idle time.Duration,
) (*serviceRunner, error) {
	l, err := unixsock.Listen(ctx, cfg.Server.Socket, func(uid uint32) {
		log.Warn("connection refused", zap.Uint32("uid", uid))
	})
	if err != nil {
		return nil, err
	}
	return &serviceRunner{
		svc: svc, socket: l, path: cfg.Server.Socket, drain: cfg.Limits.Drain,
		idle: idle, log: log,
	}, nil
}

// serve accepts calls until a signal, the end of the context, or idleness. It returns when
// everything is over, or at once on a second signal.
func (h *serviceRunner) serve(ctx context.Context, signals <-chan os.Signal) error {
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- h.svc.Serve(h.socket) })
	h.log.Info("ready", zap.String("socket", h.path), zap.Int("pid", os.Getpid()))
	why, err := h.waitForStop(ctx, signals, failed)
	h.log.Info("draining", zap.String("why", why), zap.Duration("limit", h.drain))

	over := make(chan error, 1)
	go func() {
		err := h.end(context.WithoutCancel(ctx))
		serving.Wait()
		over <- err
	}()
	select {
	case endErr := <-over:
		h.log.Info("ended")
		return errors.Join(err, endErr)
	case s := <-signals: // whoever sends it wants no more waiting
		h.log.Warn("ended at once", zap.Stringer("why", s))
		return exitError(exitFailed)
	}
}

// waitForStop waits for a reason to end.
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
	select {
	case s := <-signals:
		return s.String(), nil
	case <-retired:
		return "idle", nil
	case err := <-failed:
		return "no more connections", fmt.Errorf("accepting connections: %w", err)
	case <-ctx.Done():
		return "told to", nil
	}
}

// shutdownWhenIdle waits until the daemon has been idle for long enough, and then until it can end
// with nobody noticing: once the name of the socket is gone nobody can connect any more, who
// connected before is still served, and who comes later starts a daemon of their own.
func (h *serviceRunner) shutdownWhenIdle(ctx context.Context) bool {
	if !waitIdle(ctx, h.svc, h.idle) {
		return false
	}
	h.removeSocket()
	return waitIdle(ctx, h.svc, closingGrace)
}

// end lets the calls end. The socket stays until they have, so that whoever comes meanwhile is
// told.
func (h *serviceRunner) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.drain)
	defer cancel()
	return h.svc.Shutdown(ctx)
}

// removeSocket removes the name of the socket. It can be no other daemon's: the lock beside it is
// ours until the listener is closed.
func (h *serviceRunner) removeSocket() { _ = os.Remove(h.path) }

// service is what serve runs: the HTTP server with everything behind it. newDaemon makes it of all
// the packages.
type service interface {
	// Serve answers requests from a listener, whose connections know their peer (*unixsock.Conn),
	// until Shutdown, which closes it.
	Serve(l net.Listener) error
	// Idle says since when nothing was asked and no call has run; ok is false while something is.
	Idle() (since time.Time, ok bool)
	// Shutdown refuses new calls, waits for those that run until the context ends, and cancels what is
	// left then. It returns when the last answer is delivered and everything is closed. It is called
	// once, whether or not Serve was.
	Shutdown(ctx context.Context) error
}

// serviceFactory makes a service. Its context bounds the opening alone.
type serviceFactory func(ctx context.Context, cfg *config.Config, log *zap.Logger) (service, error)

// openDaemon is the opener of the real program.
func openDaemon(ctx context.Context, cfg *config.Config, log *zap.Logger) (service, error) {
	d, err := newDaemon(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// idlePoll is how often a busy daemon is looked at.
const idlePoll = time.Second

// waitIdle returns when a service has had nothing to do for so long: true; or when the context
// ends: false. Time counts from the last moment in which the service was seen busy, since the end
// of a call that no client waits for tells nobody.
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
			left = min(left, idlePoll)
		}
		if !pause(ctx, left) {
			return false
		}
	}
}

// pause waits for a time: true; or for the end of the context: false.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
