package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

const (
	// besideCalls is how many calls are made beside a flood at least: enough for a p99 that is not the longest.
	besideCalls = 200
	// besideTime bounds them, where a flood lets few through.
	besideTime = 20 * time.Second
)

// interference is how long other calls of a daemon take while bytes stream through it.
type interference struct {
	name string
	sample
}

func interferenceOne(name string) string { return name + ", beside one bulk stream" }
func besideBoth(name string) string      { return name + ", while both streams flood" }

// measureInterference measures the calls beside one stream and beside two, for every daemon.
func measureInterference(ctx context.Context, r *testbed, progress func(string)) ([]*interference, error) {
	var all []*interference
	for _, d := range r.daemons() {
		call := d.call(r.workspace, dray.ChooseContainer)
		one := func(ctx context.Context) error { return d.flood(ctx, r.workspace, floodOf(floodBytes), floodBytes, 0) }
		both := func(ctx context.Context) error {
			return d.flood(ctx, r.workspace, bothOf(floodBytes), floodBytes, floodBytes)
		}
		for _, b := range []struct {
			name  string
			flood func(context.Context) error
		}{{interferenceOne(d.name), one}, {besideBoth(d.name), both}} {
			progress("stream: " + b.name)
			out := &interference{name: b.name}
			if err := out.measure(ctx, call, b.flood); err != nil {
				return nil, fmt.Errorf("%s: %w", b.name, err)
			}
			all = append(all, out)
		}
	}
	return all, nil
}

// measure repeats the flood until there are enough calls beside it.
func (b *interference) measure(ctx context.Context, call runner, flood func(context.Context) error) error {
	for begun := time.Now(); b.count() < besideCalls && time.Since(begun) < besideTime; {
		times, err := callsDuring(ctx, call, flood)
		if err != nil {
			return err
		}
		b.add(times)
	}
	return nil
}

// callsDuring makes one call after another while something runs, and keeps those that ended before it.
func callsDuring(ctx context.Context, call runner, flood func(context.Context) error) (times []time.Duration, err error) {
	ended := make(chan error, 1)
	go func() { ended <- flood(ctx) }()
	for {
		took, callErr := timed(ctx, call, runTrue)
		select {
		case err := <-ended:
			if err == nil {
				err = callErr
			}
			return times, err
		default:
		}
		if callErr != nil {
			return nil, firstOf(<-ended, callErr)
		}
		times = append(times, took)
	}
}

// firstOf gives the first error that there is: a flood that failed explains a call that did.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
