package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// The parts of a run, in their order.
const (
	partLatency  = "latency"
	partParallel = "parallel"
	partStream   = "stream"
	partMemory   = "memory"
	partKill     = "kill"
	partPaths    = "paths"
	partSync     = "sync"
)

var partNames = []string{
	partLatency, partParallel, partStream, partMemory, partKill, partPaths,
	partSync,
}

// parseParts reads a list of parts; an empty one is all.
func parseParts(list string) (map[string]bool, error) {
	names := partNames
	if list != "" {
		names = strings.Split(list, ",")
	}
	chosen := map[string]bool{}
	for _, name := range names {
		if !slices.Contains(partNames, name) {
			return nil, fmt.Errorf("there is no part %q; the parts are %s", name,
				strings.Join(partNames, ", "))
		}
		chosen[name] = true
	}
	return chosen, nil
}

// Of so many rounds of serial calls, calls at once and streams, which take longer, have one. Kills
// are quick.
const (
	slowerRounds = 7
	killRounds   = 2 // for each round of serial calls
)

// measurements are all that a run found. What was not chosen is empty.
type measurements struct {
	machine    machine
	ways       []method
	latency    *results
	crowds     concurrentRuns
	flows      []*flow
	neighbours []*interference
	memory     []memoryGrowth
	kills      []*killRun
	passages   []*pathRun
	hauls      []*syncRun
	trail      string
}

// measure runs the chosen parts.
func (f *measurements) measure(ctx context.Context, r *testbed, chosen map[string]bool, rounds int,
	progress func(string),
) (err error) {
	f.ways = ways(r)
	f.latency = newResults(f.ways)
	if err := warm(ctx, f.ways); err != nil {
		return err
	}
	slower := max(1, rounds/slowerRounds+min(1, rounds%slowerRounds))
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{partLatency, func() (err error) {
			f.latency, err = serial(ctx, f.ways, []command{runTrue, runTool}, rounds, progress)
			return err
		}},
		{partParallel, func() (err error) {
			f.crowds, err = parallel(ctx, f.ways, []command{runTrue, runSleep}, slower, progress)
			return err
		}},
		{partStream, func() (err error) {
			f.flows = flows(r)
			if err = stream(ctx, f.flows, slower, progress); err == nil {
				f.neighbours, err = measureInterference(ctx, r, progress)
			}
			return err
		}},
		{partMemory, func() (err error) {
			f.memory, err = memory(ctx, loads(r, floodBytes), progress)
			return err
		}},
		{partKill, func() error {
			f.kills = killings(r)
			return kill(ctx, f.kills, killRounds*rounds, progress)
		}},
		{partPaths, func() (err error) {
			if f.passages, err = pathRuns(); err == nil {
				err = runPathRuns(f.passages, 2*slower, progress)
			}
			return err
		}},
		{partSync, func() (err error) {
			if f.hauls, err = syncRuns(ctx, r); err == nil {
				err = runSyncs(ctx, f.hauls, slower, progress)
			}
			return err
		}},
	} {
		if !chosen[part.name] {
			continue
		}
		if err := part.run(); err != nil {
			return err
		}
	}
	f.trail, err = inTrails(ctx, r)
	return err
}

// inTrails proves for every daemon that nothing is missing in its trail.
func inTrails(ctx context.Context, r *testbed) (string, error) {
	sum := 0
	for _, d := range r.daemons() {
		calls, err := d.inTrail(ctx)
		if err != nil {
			return "", err
		}
		sum += calls
	}
	return fmt.Sprintf("After the run the trails held all %d calls that went through the daemons, warm-up included, each with its end.", sum), nil
}
