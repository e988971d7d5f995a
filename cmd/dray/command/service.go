package command

import (
	"context"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray/config"
)

// service is what serve runs: the HTTP server with everything behind it. newDaemon makes it of all the packages.
type service interface {
	// Serve answers requests from a listener, whose connections know their peer (*unixsock.Conn), until Shutdown, which closes it.
	Serve(l net.Listener) error
	// Idle says since when nothing was asked and no call has run; ok is false while something is.
	Idle() (since time.Time, ok bool)
	// Shutdown refuses new calls, waits for those that run until the context ends, and cancels what is left then. It returns when the last
	// answer is delivered and everything is closed. It is called once, whether or not Serve was.
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
