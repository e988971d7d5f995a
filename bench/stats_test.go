package main

import (
	"testing"
	"time"
)

// upTo gives 1, 2, ... n milliseconds, the longest first.
func upTo(n int) []time.Duration {
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = time.Duration(n-i) * time.Millisecond
	}
	return times
}

func TestQuantileIsNearestRank(t *testing.T) {
	tests := map[string]struct {
		n    int
		q    float64
		want int // milliseconds
	}{
		"median of an odd number":                  {5, 0.5, 3},
		"median of an even number is the lower":    {4, 0.5, 2},
		"one value is every quantile":              {1, 0.99, 1},
		"p99 of 100 leaves one out":                {100, 0.99, 99},
		"p99 of 1000 leaves ten out":               {1000, 0.99, 990},
		"p99 of fewer than 100 is the longest":     {99, 0.99, 99},
		"p99 of 101 has two above its rank or one": {101, 0.99, 100},
		"the lowest":  {10, 0, 1},
		"the highest": {10, 1, 10},
		"nothing":     {0, 0.5, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			times := upTo(tt.n)
			if got := quantile(times, tt.q); got != time.Duration(tt.want)*time.Millisecond {
				t.Errorf("got %s, want %d ms", got, tt.want)
			}
			if tt.n > 1 && times[0] < times[1] {
				t.Error("it sorted its argument")
			}
		})
	}
}

func TestSampleAcrossRounds(t *testing.T) {
	var s sample
	if low, high := s.spread(); low != 0 || high != 0 || s.count() != 0 {
		t.Errorf("an empty sample has spread %s to %s and %d calls", low, high, s.count())
	}
	s.add([]time.Duration{1, 2, 3})
	s.add(nil) // no round
	s.add([]time.Duration{10, 20, 30})
	if s.count() != 6 || s.quantile(0.5) != 3 {
		t.Errorf("%d calls, median %d", s.count(), s.quantile(0.5))
	}
	if low, high := s.spread(); low != 2 || high != 20 {
		t.Errorf("spread %d to %d, want 2 to 20", low, high)
	}
}

func TestRatio(t *testing.T) {
	if got := ratio(300, 2); got != 150 {
		t.Errorf("got %v", got)
	}
	if got := ratio(1, 0); got != 0 {
		t.Errorf("nothing to compare with gives %v, which would meet a target", got)
	}
}
