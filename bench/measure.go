package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sample is the durations of one kind, by round.
type sample struct {
	rounds [][]time.Duration
}

func (s *sample) add(round ...time.Duration) { s.rounds = append(s.rounds, round) }

func (s *sample) count() int { return len(slices.Concat(s.rounds...)) }

// quantile returns the nearest-rank quantile of all durations, or 0 if there are none.
func (s *sample) quantile(q float64) time.Duration {
	return quantile(slices.Concat(s.rounds...), q)
}

// spread returns the lowest and the highest median of a round: it shows the noise of the machine.
func (s *sample) spread() (low, high time.Duration) {
	medians := make([]time.Duration, 0, len(s.rounds))
	for _, round := range s.rounds {
		medians = append(medians, quantile(round, 0.5))
	}
	return quantile(medians, 0), quantile(medians, 1)
}

func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9)) // 0.99 of 100 is 99.00000000000001
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// load is a command that a number of callers run at once.
type load struct {
	callers int
	command *command
}

// callRun is the calls of one method under one load.
type callRun struct {
	sample

	took time.Duration // of all rounds together, from the first begin to the last end
}

// rate returns calls per second.
func (r *callRun) rate() float64 {
	if r.took <= 0 {
		return 0
	}
	return float64(r.count()) / r.took.Seconds()
}

// runs are the calls by load and by the name of the method.
type runs map[load]map[string]*callRun

// of returns the calls of a method, none if it was not measured.
func (r runs) of(l load, name string) *callRun {
	if found := r[l][name]; found != nil {
		return found
	}
	return &callRun{}
}

func (r runs) add(l load, name string, times []time.Duration, took time.Duration) {
	if r[l] == nil {
		r[l] = map[string]*callRun{}
	}
	if r[l][name] == nil {
		r[l][name] = &callRun{}
	}
	r[l][name].add(times...)
	r[l][name].took += took
}

// shuffled returns the order of n methods in each round. It differs from round to round, so that no
// method always pays for what the one before it left behind, and is the same in each run.
func shuffled(rounds, n int) [][]int {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // an order, not a secret
	orders := make([][]int, rounds)
	for i := range orders {
		orders[i] = random.Perm(n)
	}
	return orders
}

// measureCalls runs every method under every load in each round.
func (r runs) measureCalls(ctx context.Context, methods []method, loads []load, rounds int) error {
	for round, order := range shuffled(rounds, len(methods)) {
		progress(fmt.Sprintf("calls: round %d of %d", round+1, rounds))
		for _, l := range loads {
			for _, i := range order {
				m := methods[i]
				calls := m.calls[l.callers]
				if calls == 0 || m.slow && round > 2 {
					continue
				}
				times, took, err := m.batch(ctx, l, calls)
				if err != nil {
					return fmt.Errorf("%s, %d at once: %w", m.name, l.callers, err)
				}
				r.add(l, m.name, times, took)
			}
		}
	}
	return nil
}

// batch makes the calls of one round. Each caller makes its next call when its last one has ended.
// Where there are several calls, one that is not counted comes before them.
func (m method) batch(ctx context.Context, l load, calls int) (times []time.Duration,
	took time.Duration, err error,
) {
	if m.floor != "" {
		return m.floorBatch(ctx, l, calls)
	}
	if calls > 1 {
		if err := m.run(ctx, l.command); err != nil {
			return nil, 0, err
		}
	}
	times = make([]time.Duration, calls)
	errs := make([]error, l.callers)
	var next atomic.Int64
	var callers sync.WaitGroup
	begun := time.Now()
	for caller := range l.callers {
		callers.Go(func() {
			for i := int(next.Add(1)) - 1; i < calls && errs[caller] == nil; i = int(next.Add(1)) - 1 {
				times[i], errs[caller] = timed(ctx, m.run, l.command)
			}
		})
	}
	callers.Wait()
	took = time.Since(begun)
	for _, err := range errs {
		if err != nil {
			return nil, 0, err
		}
	}
	return times, took, nil
}

func timed(ctx context.Context, run runner, c *command) (time.Duration, error) {
	begun := time.Now()
	err := run(ctx, c)
	return time.Since(begun), err
}
