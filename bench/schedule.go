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
	ways    []method
	samples map[string]*sample // by key
}

func newResults(ways []method) *results {
	return &results{ways: ways, samples: map[string]*sample{}}
}

func key(name string, c command) string { return fmt.Sprint(name, c.argv) }

// of gives the sample of the way with a name, an empty one if there is none yet.
func (r *results) of(name string, c command) *sample {
	s := r.samples[key(name, c)]
	if s == nil {
		s = &sample{}
		r.samples[key(name, c)] = s
	}
	return s
}

// shuffled gives the order of n ways in each round: another one each time, the same in each run. No
// way always pays for what the one before it left behind.
func shuffled(rounds, n int) [][]int {
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // an order, not a secret
	all := make([][]int, rounds)
	for i := range all {
		all[i] = order.Perm(n)
	}
	return all
}

// serial runs every way in every round, one call after another.
func serial(ctx context.Context, ways []method, commands []command, rounds int,
	progress func(string),
) (*results, error) {
	r := newResults(ways)
	for round, order := range shuffled(rounds, len(ways)) {
		progress(fmt.Sprintf("latency: round %d of %d", round+1, rounds))
		for _, i := range order {
			for _, c := range commands {
				times, err := block(ctx, ways[i], c)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", ways[i].name, err)
				}
				r.of(ways[i].name, c).add(times)
			}
		}
	}
	return r, nil
}

// block is one round's calls of one way. Where it has several, one that does not count comes first:
// the machine turns to this way in it.
func block(ctx context.Context, w method, c command) ([]time.Duration, error) {
	if w.calls > 1 {
		if err := w.run(ctx, c); err != nil {
			return nil, err
		}
	}
	times := make([]time.Duration, 0, w.calls)
	for range w.calls {
		took, err := timed(ctx, w.run, c)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	return times, nil
}

func timed(ctx context.Context, run runner, c command) (time.Duration, error) {
	begun := time.Now()
	err := run(ctx, c)
	return time.Since(begun), err
}

// warm makes each way ready: connections, agents, supervisors, page cache.
func warm(ctx context.Context, ways []method) error {
	progress("warming up")
	for _, w := range ways {
		for range w.calls {
			if err := w.run(ctx, runTrue); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

// concurrentRun is the calls of one way by several callers at once.
type concurrentRun struct {
	sample

	took time.Duration // all of them, from the first begin to the last end, the rounds added up
}

// rate is calls in a second.
func (c *concurrentRun) rate() float64 {
	if c == nil || c.took <= 0 {
		return 0
	}
	return float64(c.count()) / c.took.Seconds()
}

// run has several callers make a number of calls; each makes its next one when its last has ended.
func (c *concurrentRun) run(ctx context.Context, w method, cmd command, callers, calls int) error {
	times := make([]time.Duration, calls)
	errs := make([]error, callers)
	var next atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for caller := range callers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < calls && errs[caller] == nil; i = int(next.Add(1)) - 1 {
				times[i], errs[caller] = timed(ctx, w.run, cmd)
			}
		})
	}
	wg.Wait()
	c.took += time.Since(begun)
	c.add(times)
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("%s, %d at once: %w", w.name, callers, err)
		}
	}
	return nil
}

// mostCallers is how many calls are made at once at most.
const mostCallers = 256

// callers are the numbers for which there is a table of calls at once.
var callers = []int{8, 32, 64, mostCallers}

// concurrency is what a crowd does: so many callers of one command.
type concurrency struct {
	callers int
	command string
}

// concurrentRuns are the results of calls at once.
type concurrentRuns map[concurrency]map[string]*concurrentRun

func (all concurrentRuns) of(callers int, c command, name string) *concurrentRun {
	return all[concurrency{callers, c.name}][name]
}

func (all concurrentRuns) open(callers int, c command, name string) *concurrentRun {
	s := concurrency{callers, c.name}
	if all[s] == nil {
		all[s] = map[string]*concurrentRun{}
	}
	if all[s][name] == nil {
		all[s][name] = &concurrentRun{}
	}
	return all[s][name]
}

// parallel runs every way that takes part, by number of callers and command, in rounds.
func parallel(ctx context.Context, ways []method, commands []command, rounds int,
	progress func(string),
) (concurrentRuns, error) {
	all := concurrentRuns{}
	for round, order := range shuffled(rounds, len(ways)) {
		for _, n := range callers {
			progress(fmt.Sprintf("parallel: round %d of %d, %d at once", round+1, rounds, n))
			for _, i := range order {
				w := ways[i]
				if w.concurrentCalls[n] == 0 || (w.singleRound && round > 0) {
					continue
				}
				for _, c := range commands {
					if err := all.open(n, c, w.name).run(ctx, w, c, n, w.concurrentCalls[n]); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return all, nil
}
