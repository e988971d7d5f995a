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
	// floodBytes is the size of a stream in bytes, rexBytes where all of it is kept in memory.
	floodBytes = 2_000_000_000
	rexBytes   = 500_000_000
	// retainedBytes is how much of a stream the daemon stores by default.
	retainedBytes = 50 << 20
)

func floodArgs(n int64) []string { return []string{"./" + toolName, "flood", fmt.Sprint(n)} }
func bothArgs(n int64) []string  { return []string{"./" + toolName, "both", fmt.Sprint(n)} }

// streamRun is one method for a large output.
type streamRun struct {
	name  string
	bytes int64
	run   func(ctx context.Context, n int64) error
	sample
}

// rate returns bytes per second at p50.
func (s *streamRun) rate() float64 {
	took := s.quantile(0.5)
	if took <= 0 {
		return 0
	}
	return float64(s.bytes) / took.Seconds()
}

const streamHost = "host pipe"

// newStreamRuns returns all methods in the order of the table.
func newStreamRuns(b *testbed) []*streamRun {
	var all []*streamRun
	for _, d := range b.daemons() {
		all = append(all, &streamRun{
			name: d.name, bytes: floodBytes,
			run: func(ctx context.Context, n int64) error {
				return d.flood(ctx, b.workspace, floodArgs(n), n, 0)
			},
		})
	}
	all = append(all,
		&streamRun{name: streamHost, bytes: floodBytes, run: b.hostPipe},
		&streamRun{name: methodEngine, bytes: floodBytes, run: b.engineFlood})
	if b.rex != nil {
		all = append(all, &streamRun{name: methodRex, bytes: rexBytes, run: b.rex.flood})
	}
	return all
}

func measureStreams(ctx context.Context, all []*streamRun, rounds int) error {
	for round, order := range shuffled(rounds, len(all)) {
		progress(fmt.Sprintf("stream: round %d of %d", round+1, rounds))
		for _, i := range order {
			begun := time.Now()
			if err := all[i].run(ctx, all[i].bytes); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			all[i].add(time.Since(begun))
		}
	}
	return nil
}

// flood runs a program in the container that writes so many bytes to each stream, and checks that
// the daemon counted all of them and stored what it should.
func (d *daemon) flood(ctx context.Context, workspace string, argv []string, stdout,
	stderr int64,
) error {
	record, err := d.http.run(ctx, workspace, dray.ChooseContainer, argv)
	if err != nil {
		return err
	}
	d.calls.Add(1)
	for _, s := range []struct {
		summary dray.StreamSummary
		written int64
	}{{record.Stdout, stdout}, {record.Stderr, stderr}} {
		if got := s.summary; got.TotalBytes != s.written ||
			got.KeptBytes != min(s.written, retainedBytes) {
			return fmt.Errorf("of %d bytes %d were counted and %d stored", s.written, got.TotalBytes,
				got.KeptBytes)
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
		return fmt.Errorf("%d bytes were written, and %d arrived", n, c)
	}
	return nil
}

// hostPipe reads from a pipe of the host with a buffer as large as the daemon's.
func (b *testbed) hostPipe(ctx context.Context, n int64) error {
	argv := floodArgs(n)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // what is compared
	cmd.Dir = b.workspace
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

func (b *testbed) engineFlood(ctx context.Context, n int64) error {
	var got counter
	code, err := b.engineExec(ctx, floodArgs(n), &got)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("the program exited with %d", code)
	}
	return got.expect(n)
}

func streamTable(all []*streamRun) string {
	var rows [][]string
	host := 0.0
	for _, s := range all {
		if s.name == streamHost {
			host = s.rate()
		}
	}
	for _, s := range all {
		rows = append(rows, []string{
			s.name, fmt.Sprintf("%d MB", s.bytes/1e6), millis(s.quantile(0.5)), spreadText(&s.sample),
			digits(s.rate()/1e9) + " GB/s", ratio(s.rate(), host),
		})
	}
	return table([]string{
		"method", "written", "p50", "lowest to highest", "rate", "rate / host pipe's",
	}, rows)
}

// streamShare is a method's rate over the rate that it must reach.
func streamShare(name string) value {
	return func(m *measurements) (float64, bool) {
		rates := map[string]float64{}
		for _, s := range m.streams {
			rates[s.name] = s.rate()
		}
		limit := min(1e9, 0.6*rates[streamHost])
		return rates[name] / max(limit, 1), limit > 0 && rates[name] > 0
	}
}

const (
	// besideCalls is the number of calls beside a flood, enough for a p99 that is not the longest.
	besideCalls = 200
	// besideTime bounds the time for them.
	besideTime = 20 * time.Second
)

// interference is other calls of a daemon while a call floods its streams.
type interference struct {
	name string
	sample
}

func besideOne(name string) string  { return name + ", beside one flooded stream" }
func besideBoth(name string) string { return name + ", beside two flooded streams" }

func measureInterference(ctx context.Context, b *testbed) ([]*interference, error) {
	var all []*interference
	for _, d := range b.daemons() {
		call := d.call(b.workspace, dray.ChooseContainer)
		for name, flood := range map[string]func(context.Context) error{
			besideOne(d.name): func(ctx context.Context) error {
				return d.flood(ctx, b.workspace, floodArgs(floodBytes), floodBytes, 0)
			},
			besideBoth(d.name): func(ctx context.Context) error {
				return d.flood(ctx, b.workspace, bothArgs(floodBytes), floodBytes, floodBytes)
			},
		} {
			progress("stream: " + name)
			i := &interference{name: name}
			if err := i.measure(ctx, call, flood); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, i)
		}
	}
	return all, nil
}

// measure repeats the flood until there are enough calls beside it.
func (i *interference) measure(ctx context.Context, call runner,
	flood func(context.Context) error,
) error {
	for begun := time.Now(); i.count() < besideCalls && time.Since(begun) < besideTime; {
		times, err := callsDuring(ctx, call, flood)
		if err != nil {
			return err
		}
		i.add(times...)
	}
	return nil
}

// callsDuring makes one call after another while flood runs, and returns the durations of those
// that ended before it.
func callsDuring(ctx context.Context, call runner, flood func(context.Context) error,
) (times []time.Duration, err error) {
	ended := make(chan error, 1)
	go func() { ended <- flood(ctx) }()
	for {
		took, callErr := timed(ctx, call, &runTrue)
		select {
		case err := <-ended:
			if err == nil {
				err = callErr
			}
			return times, err
		default:
		}
		if callErr != nil {
			if err := <-ended; err != nil {
				return nil, err // it explains why the call failed
			}
			return nil, callErr
		}
		times = append(times, took)
	}
}

func interferenceTable(all []*interference) string {
	var rows [][]string
	for _, i := range all {
		rows = append(rows, []string{
			i.name, fmt.Sprint(i.count()), millis(i.quantile(0.5)), millis(i.quantile(0.99)),
		})
	}
	return table([]string{"`true` over HTTP", "calls", "p50", "p99"}, rows)
}

func interferenceP99(name string) value {
	return func(m *measurements) (float64, bool) {
		for _, i := range m.beside {
			if i.name == name {
				return float64(i.quantile(0.99)), i.count() > 0
			}
		}
		return 0, false
	}
}
