package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/dray-dev/dray"
)

const (
	// floodBytes is how much is printed, rexBytes how much where everything is kept in memory.
	floodBytes = 2_000_000_000
	rexBytes   = 500_000_000
	// keptBytes is how much of a stream the daemon keeps, its default.
	keptBytes = 50 << 20
)

func floodOf(n int64) []string { return []string{"./" + toolName, "flood", fmt.Sprint(n)} }
func bothOf(n int64) []string  { return []string{"./" + toolName, "both", fmt.Sprint(n)} }

// flow is one way for many bytes.
type flow struct {
	name string
	run  func(ctx context.Context, n int64) error
	bulk
}

// The names of the flows beside those of the daemons.
const (
	flowHost   = "host pipe"
	flowEngine = wayEngine
	flowRex    = wayRex
)

// flows are all ways for many bytes, in the order of the table.
func flows(r *testbed) []*flow {
	var all []*flow
	for _, d := range r.daemons() {
		all = append(all, &flow{
			name: d.name, bulk: bulk{bytes: floodBytes},
			run: func(ctx context.Context, n int64) error {
				return d.flood(ctx, r.workspace, floodOf(n), n, 0)
			},
		})
	}
	all = append(all,
		&flow{name: flowHost, bulk: bulk{bytes: floodBytes}, run: r.hostPipe},
		&flow{name: flowEngine, bulk: bulk{bytes: floodBytes}, run: r.engineFlood})
	if r.rex != nil {
		all = append(all, &flow{name: flowRex, bulk: bulk{bytes: rexBytes}, run: r.rex.flood})
	}
	return all
}

// stream runs every flow in every round.
func stream(ctx context.Context, all []*flow, rounds int, progress func(string)) error {
	for round, order := range shuffled(rounds, len(all)) {
		progress(fmt.Sprintf("stream: round %d of %d", round+1, rounds))
		for _, i := range order {
			begun := time.Now()
			if err := all[i].run(ctx, all[i].bytes); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			all[i].add([]time.Duration{time.Since(begun)})
		}
	}
	return nil
}

// flood runs a program in the container that prints so much on each stream. All of it was counted
// and as much kept as is to be.
func (d *daemon) flood(ctx context.Context, workspace string, argv []string, stdout,
	stderr int64,
) error {
	record, err := d.web.run(ctx, workspace, dray.ChooseContainer, argv)
	if err != nil {
		return err
	}
	d.calls.Add(1)
	for _, s := range []struct {
		capture dray.StreamSummary
		printed int64
	}{{record.Stdout, stdout}, {record.Stderr, stderr}} {
		if s.capture.TotalBytes != s.printed || s.capture.KeptBytes != min(s.printed, keptBytes) {
			return fmt.Errorf("of %d bytes %d were counted and %d kept", s.printed, s.capture.TotalBytes,
				s.capture.KeptBytes)
		}
	}
	return nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (c counter) expect(n int64) error {
	if int64(c) != n {
		return fmt.Errorf("%d bytes were printed, and %d arrived", n, c)
	}
	return nil
}

// hostPipe is a pipe of the host, read in pieces as large as the daemon's.
func (r *testbed) hostPipe(ctx context.Context, n int64) error {
	argv := floodOf(n)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // what is compared
	cmd.Dir = r.workspace
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var got counter
	_, err = io.CopyBuffer(&got, struct{ io.Reader }{out}, make([]byte, 64<<10))
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	if err != nil {
		return err
	}
	return got.expect(n)
}

func (r *testbed) engineFlood(ctx context.Context, n int64) error {
	var got counter
	code, err := r.engineExec(ctx, floodOf(n), &got)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("it ended with %d", code)
	}
	return got.expect(n)
}

const (
	// besideCalls is how many calls are made beside a flood at least: enough for a p99 that is not the
	// longest.
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
func measureInterference(ctx context.Context, r *testbed, progress func(string)) ([]*interference,
	error,
) {
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
func (b *interference) measure(ctx context.Context, call runner,
	flood func(context.Context) error,
) error {
	for begun := time.Now(); b.count() < besideCalls && time.Since(begun) < besideTime; {
		times, err := callsDuring(ctx, call, flood)
		if err != nil {
			return err
		}
		b.add(times)
	}
	return nil
}

// callsDuring makes one call after another while something runs, and keeps those that ended before
// it.
func callsDuring(ctx context.Context, call runner,
	flood func(context.Context) error,
) (times []time.Duration, err error) {
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
