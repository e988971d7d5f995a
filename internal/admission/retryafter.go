package admission

import (
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

// The bounds of Retry-After.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 5 * time.Minute
)

// retryAfterError is the estimated time until a slot is free.
type retryAfterError struct{ after time.Duration }

func (a retryAfterError) Error() string {
	return fmt.Sprintf("a slot should be free in about %v", a.after)
}

// RetryAfter returns whole seconds, at least one.
func (a retryAfterError) RetryAfter() time.Duration { return a.after }

func (g *Controller) busy(b *targetQueue) *dray.Error {
	running, what := g.running, "calls running"
	if b.id != hostID && b.running >= b.limit {
		running, what = b.running, "calls running in the container"
	}
	retry := retryAfterError{g.pace.estimate(running, g.running)}
	// admitted calls without a slot that are not queued either: their container is not ready; the
	// refused call does not count
	preparing := g.admitted - 1 - g.running - g.waiting
	return dray.Errorf(dray.CodeBusy,
		"at capacity: %d %s, %d queued, %d waiting for their container: %w", running, what, g.waiting,
		preparing, retry).
		WithHint("retry in %v, or raise limits.concurrent, limits.per_container or limits.queue",
			retry.after)
}

// durationEstimator estimates how long calls run, from those that ended, with more weight on later
// ones, and those that are running.
type durationEstimator struct {
	since time.Time
	mean  time.Duration
	// begins is the sum of the start times of the running calls, in seconds after since.
	begins float64
}

func (p *durationEstimator) began(at time.Time)   { p.begins += at.Sub(p.since).Seconds() }
func (p *durationEstimator) left(began time.Time) { p.begins -= began.Sub(p.since).Seconds() }

// weight is the inverse share of the last call in the mean.
const weight = 8

func (p *durationEstimator) ran(span time.Duration) {
	if p.mean == 0 {
		p.mean = span
	}
	p.mean += (span - p.mean) / weight
}

// estimate returns the time until the next of so many calls ends; all is how many run. A call is
// taken to last at least as long as the running ones have lasted on average.
func (p *durationEstimator) estimate(of, all int) time.Duration {
	mean := p.mean
	if all > 0 {
		age := time.Since(p.since).Seconds() - p.begins/float64(all)
		mean = max(mean, time.Duration(age*float64(time.Second)))
	}
	after := mean/time.Duration(max(of, 1)) + time.Second - 1
	return min(max(after, minRetryAfter), maxRetryAfter).Truncate(time.Second)
}
