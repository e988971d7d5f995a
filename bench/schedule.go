package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// results are the times by way and command, each in the order in which it is shown.
type results struct {
	ways    []way
	samples map[string]*sample // by key
}

func newResults(ways []way) *results {
	return &results{ways: ways, samples: map[string]*sample{}}
}

func key(w way, c command) string { return fmt.Sprint(w.name, c.argv) }

func (r *results) of(w way, c command) *sample {
	s := r.samples[key(w, c)]
	if s == nil {
		s = &sample{}
		r.samples[key(w, c)] = s
	}
	return s
}

// serial runs every way in every round, one call after another. The order is another one in each round, the same in each run: no way
// always pays for what the one before it left behind.
func serial(ctx context.Context, ways []way, rounds int, progress func(string)) (*results, error) {
	r := newResults(ways)
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // an order, not a secret
	for round := range rounds {
		progress(fmt.Sprintf("round %d of %d", round+1, rounds))
		for _, i := range order.Perm(len(ways)) {
			for _, c := range commands {
				times, err := block(ctx, ways[i], c)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i].name, err)
				}
				r.of(ways[i], c).add(times)
			}
		}
	}
	return r, nil
}

// block is one round's calls of one way. Where it has several, one that does not count comes first: the machine turns to this way in it.
func block(ctx context.Context, w way, c command) ([]time.Duration, error) {
	if w.calls > 1 {
		if err := w.run(ctx, c); err != nil {
			return nil, err
		}
	}
	times := make([]time.Duration, 0, w.calls)
	for range w.calls {
		took, err := timed(ctx, w, c)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	return times, nil
}

func timed(ctx context.Context, w way, c command) (time.Duration, error) {
	begun := time.Now()
	err := w.run(ctx, c)
	return time.Since(begun), err
}

// crowd is the calls of one way by several callers at once.
type crowd struct {
	sample

	took time.Duration // all of them, from the first begin to the last end
}

// rate is calls in a second.
func (c *crowd) rate() float64 {
	if c.took <= 0 {
		return 0
	}
	return float64(c.count()) / c.took.Seconds()
}

// together has several callers make a number of calls; each makes its next one when its last has ended.
func together(ctx context.Context, w way, c command, callers, calls int) (*crowd, error) {
	times := make([]time.Duration, calls)
	errs := make([]error, callers)
	var next atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for caller := range callers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < calls && errs[caller] == nil; i = int(next.Add(1)) - 1 {
				times[i], errs[caller] = timed(ctx, w, c)
			}
		})
	}
	wg.Wait()
	out := &crowd{took: time.Since(begun)}
	out.add(times)
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s, %d at once: %w", w.name, callers, err)
		}
	}
	return out, nil
}

// warm makes each way ready: connections, agents, supervisors, page cache.
func warm(ctx context.Context, ways []way) error {
	progress("warming up")
	for _, w := range ways {
		for range w.calls {
			if err := w.run(ctx, commands[0]); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

// callers are the numbers for which there is a table of calls at once.
var callers = []int{8, 32}

// crowds are the results of calls at once, by number of callers and name of the way.
func crowds(ctx context.Context, ways []way) (map[int]map[string]*crowd, error) {
	all := map[int]map[string]*crowd{}
	for _, n := range callers {
		progress(fmt.Sprintf("%d at once", n))
		all[n] = map[string]*crowd{}
		for _, w := range ways {
			if w.together < n {
				continue
			}
			c, err := together(ctx, w, commands[0], n, w.together)
			if err != nil {
				return nil, err
			}
			all[n][w.name] = c
		}
	}
	return all, nil
}
