package admission

import (
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

// The bounds of what is advised, whatever the estimate says.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 5 * time.Minute
)

// retryAfterError says in which time a place will be free, as things go.
type retryAfterError struct{ after time.Duration }

func (a retryAfterError) Error() string {
	return fmt.Sprintf("a place should be free in about %v", a.after)
}

// RetryAfter is in whole seconds, at least one.
func (a retryAfterError) RetryAfter() time.Duration { return a.after }

// busy is the refusal of a call for a place.
func (g *Controller) busy(b *targetQueue) *dray.Error {
	running, what := g.running, "calls run"
	if b.id != hostID && b.running >= b.limit {
		running, what = b.running, "calls run in the container"
	}
	tell := retryAfterError{g.pace.estimate(running, g.running)}
	// neither run nor wait, and hold their places all the same; the call itself is not meant
	preparing := g.admitted - 1 - g.running - g.waiting
	return dray.Errorf(dray.CodeBusy, "%d %s, %d wait for their turn and %d for their container: %w",
		running, what, g.waiting, preparing, tell).
		WithHint("repeat the call in %v; limits.concurrent, limits.per_container and limits.queue say how many there may be", tell.after)
}

// durationEstimator knows how long calls run: those that ended, the later ones counting more, and
// those that run now.
type durationEstimator struct {
	since time.Time
	mean  time.Duration
	// begins is when the calls that run now began, in seconds since since, all of them together.
	begins float64
}

func (p *durationEstimator) began(at time.Time)   { p.begins += at.Sub(p.since).Seconds() }
func (p *durationEstimator) left(began time.Time) { p.begins -= began.Sub(p.since).Seconds() }

// weight is the part of the mean that the last call makes up: one eighth.
const weight = 8

func (p *durationEstimator) ran(span time.Duration) {
	if p.mean == 0 {
		p.mean = span
	}
	p.mean += (span - p.mean) / weight
}

// estimate estimates when the next of so many calls ends; all is how many run together. None is
// taken to be shorter than those that run now have run already, in the mean.
func (p *durationEstimator) estimate(of, all int) time.Duration {
	mean := p.mean
	if all > 0 {
		age := time.Since(p.since).Seconds() - p.begins/float64(all)
		mean = max(mean, time.Duration(age*float64(time.Second)))
	}
	after := mean/time.Duration(max(of, 1)) + time.Second - 1
	return min(max(after, minRetryAfter), maxRetryAfter).Truncate(time.Second)
}
