package main

import (
	"math"
	"slices"
	"time"
)

// sample is how long calls of one way took, round by round. Every time stands for one call from its begin to its last byte.
type sample struct {
	rounds [][]time.Duration
}

// add appends one round. An empty one is no round.
func (s *sample) add(round []time.Duration) {
	if len(round) > 0 {
		s.rounds = append(s.rounds, round)
	}
}

// all gives every time, in no particular order.
func (s *sample) all() []time.Duration { return slices.Concat(s.rounds...) }

// count is the number of calls.
func (s *sample) count() int { return len(s.all()) }

// quantile is the nearest-rank quantile: the smallest time such that at least q of all calls took no longer. It is always a time that
// was measured. With fewer than 100 calls the 0.99 quantile is therefore the longest. It is 0 for no calls.
func (s *sample) quantile(q float64) time.Duration { return quantile(s.all(), q) }

// spread gives the lowest and the highest median of a round. It shows how much the machine, not the way, made of the times.
func (s *sample) spread() (low, high time.Duration) {
	medians := make([]time.Duration, len(s.rounds))
	for i, round := range s.rounds {
		medians[i] = quantile(round, 0.5)
	}
	if len(medians) == 0 {
		return 0, 0
	}
	return slices.Min(medians), slices.Max(medians)
}

func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	// The subtraction keeps 0.99 of 100, which is 99.00000000000001 in floating point for some pairs, from counting as 100.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// ratio is a over b, 0 where there is no b to compare with.
func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// bulk is how long so many bytes took.
type bulk struct {
	bytes int64
	sample
}

// rate is bytes in a second, at p50.
func (b *bulk) rate() float64 {
	took := b.quantile(0.5)
	if took <= 0 {
		return 0
	}
	return float64(b.bytes) / took.Seconds()
}
