package command

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
)

// pruneInterval is how often the daemon removes expired records of the audit log.
const pruneInterval = time.Hour

// startRetention removes expired records of the audit log now and every hour, until the daemon is
// closed.
func (d *daemon) startRetention(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	d.stopRetention = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(pruneInterval)
		defer tick.Stop()
		for {
			d.removeExpired(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// removeExpired does what audit.keep demands, and logs the outcome.
func (d *daemon) removeExpired(ctx context.Context) {
	if d.current.Load().cfg.Audit.Keep == 0 {
		return
	}
	report, err := d.Prune(ctx, audit.PruneOptions{})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.log.Warn("expired records not removed", zap.Error(err))
	case report.Events > 0 || report.Files > 0:
		d.log.Info("expired records removed", zap.Time("before", report.Before),
			zap.Int64("calls", report.Calls), zap.Int64("events", report.Events),
			zap.Int64("files", report.Files))
	}
}

// Prune implements [api.Daemon].
func (d *daemon) Prune(ctx context.Context, opts audit.PruneOptions) (audit.PruneReport, error) {
	if opts.Before.IsZero() {
		keep := d.current.Load().cfg.Audit.Keep
		if keep == 0 {
			return audit.PruneReport{}, dray.Errorf(dray.CodeInvalidRequest,
				"no time given, and audit.keep is not set: the audit log is retained for ever").
				WithHint("name a time, or set audit.keep")
		}
		opts.Before = time.Now().Add(-keep)
	}
	report, err := d.audit.Prune(ctx, opts)
	if err != nil || opts.DryRun {
		return report, err
	}
	removed := d.captures.RemoveBefore(opts.Before)
	report.Files += int64(removed.Files)
	report.FileBytes += removed.Bytes
	return report, removed.Err
}
