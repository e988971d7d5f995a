package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/server/unixsock"
)

// closingGrace is how long a retired daemon still answers those who connected before the name of its socket was gone.
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

func listen(ctx context.Context, svc service, cfg *config.Config, log *zap.Logger, idle time.Duration) (*serviceRunner, error) {
	l, err := unixsock.Listen(ctx, cfg.Server.Socket, func(uid uint32) {
		log.Warn("connection refused", zap.Uint32("uid", uid))
	})
	if err != nil {
		return nil, err
	}
	return &serviceRunner{svc: svc, socket: l, path: cfg.Server.Socket, drain: cfg.Limits.Drain, idle: idle, log: log}, nil
}

// serve accepts calls until a signal, the end of the context, or idleness. It returns when everything is over, or at once on a second signal.
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
func (h *serviceRunner) waitForStop(ctx context.Context, signals <-chan os.Signal, failed <-chan error) (why string, err error) {
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

// shutdownWhenIdle waits until the daemon has been idle for long enough, and then until it can end with nobody noticing: once the name of the socket is gone
// nobody can connect any more, who connected before is still served, and who comes later starts a daemon of their own.
func (h *serviceRunner) shutdownWhenIdle(ctx context.Context) bool {
	if !waitIdle(ctx, h.svc, h.idle) {
		return false
	}
	h.removeSocket()
	return waitIdle(ctx, h.svc, closingGrace)
}

// end lets the calls end. The socket stays until they have, so that whoever comes meanwhile is told.
func (h *serviceRunner) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.drain)
	defer cancel()
	return h.svc.Shutdown(ctx)
}

// removeSocket removes the name of the socket. It can be no other daemon's: the lock beside it is ours until the listener is closed.
func (h *serviceRunner) removeSocket() { _ = os.Remove(h.path) }
