package command

import (
	"context"
	"time"
)

// idlePoll is how often a busy daemon is looked at.
const idlePoll = time.Second

// waitIdle returns when a service has had nothing to do for so long: true; or when the context ends: false. Time counts from the last moment in which
// the service was seen busy, since the end of a call that no client waits for tells nobody.
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
