package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/logging"
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
		return nil, dray.Errorf(dray.CodeConflict, "another daemon runs on the state folder %s", cfg.State).
			WithHint("use that one: commands find it by themselves; or give this one a folder of its own with --state DIR")
	}
	return held, err
}

// openServing opens the service, then the socket, so that nobody can connect to a daemon that does not come up.
func (a *app) openServing(ctx context.Context, cfg *config.Config, log *zap.Logger, idle time.Duration) (*serviceRunner, error) {
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
