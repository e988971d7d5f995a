package command

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/transfer"
)

// syncTimeoutMargin is what a call of the tool sync has beside sandbox.timeout, so that it is the sync that says what took too long.
const syncTimeoutMargin = 30 * time.Second

// openTransfer opens the sandbox root, or finds out that the daemon cannot come up with it.
func (d *daemon) openTransfer(ctx context.Context, cfg *config.Config, log *zap.Logger) (*transfer.Syncer, error) {
	s := cfg.Sandbox
	return transfer.Open(ctx, transfer.Config{
		Root: s.Root, Sources: s.Sources, Deny: s.Deny, Timeout: s.Timeout, Executable: s.Executable, HostRoots: cfg.Host.Roots,
		Limits:  dray.TreeLimits{MaxFile: s.MaxFile, MaxTotal: s.MaxTotal, MaxFiles: s.MaxFiles, MaxDepth: s.MaxDepth},
		Trusted: d.workspaces.Trusted,
		OnRecovered: func(finished int, err error) {
			if err != nil {
				log.Warn("leftovers of syncs stay in the sandbox root", zap.Error(err))
			}
			if finished > 0 {
				log.Info("syncs finished that were interrupted", zap.Int("syncs", finished))
			}
		},
	})
}
