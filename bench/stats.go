package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// sample is how long calls of one way took, round by round. Every time stands for one call from its
// begin to its last byte.
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

// quantile is the nearest-rank quantile: the smallest time such that at least q of all calls took
// no longer. It is always a time that was measured. With fewer than 100 calls the 0.99 quantile is
// therefore the longest. It is 0 for no calls.
func (s *sample) quantile(q float64) time.Duration { return quantile(s.all(), q) }

// spread gives the lowest and the highest median of a round. It shows how much the machine, not the
// way, made of the times.
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
	// The subtraction keeps 0.99 of 100, which is 99.00000000000001 in floating point for some pairs,
	// from counting as 100.
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

// machine is what the figures depend on, without anything that names the machine.
type machine struct {
	cores                                        int
	kernel, engine, docker, devcontainer, goLang string
	dray, image, load, after                     string
	day                                          time.Time
}

// describe asks every part for its version. Load and after are the load averages
// before anything was made and when all was measured.
func describe(ctx context.Context, api *client.Client, p programs, image string) (machine, error) {
	m := machine{
		cores: runtime.NumCPU(), goLang: strings.TrimPrefix(runtime.Version(), "go"),
		image: imageName(image), day: time.Now().UTC(), load: loadAverage(),
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return m, fmt.Errorf("reading the kernel's release: %w", err)
	}
	// what follows is the builder's own
	m.kernel, _, _ = strings.Cut(strings.TrimSpace(string(release)), "-")
	v, err := api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return m, fmt.Errorf("asking the engine's version: %w", err)
	}
	m.engine = v.Version
	if m.docker, err = output(ctx, p.docker, "version", "--format",
		"{{.Client.Version}}"); err != nil {
		return m, err
	}
	if m.devcontainer, err = output(ctx, p.devcontainer, "--version"); err != nil {
		return m, err
	}
	m.dray, err = drayVersion(ctx, p.dray)
	return m, err
}

// drayVersion is that of the program that is measured, which need not be that of the sources.
func drayVersion(ctx context.Context, program string) (string, error) {
	text, err := output(ctx, program, "version", "--json")
	if err != nil {
		return "", err
	}
	var v struct{ Version string }
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "", fmt.Errorf("reading the version of dray: %w", err)
	}
	return v.Version, nil
}

// imageName leaves out the tag: it is the hash of a local build.
func imageName(ref string) string {
	name, _, _ := strings.Cut(ref, ":")
	return name
}

// loadAverage is that of the last minute, as uptime(1) shows it.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

func (m machine) String() string {
	return fmt.Sprintf(`dray %s, measured on %s on %d cores, Linux %s, Docker engine %s, docker CLI %s, devcontainer CLI %s, Go %s; image %s.
The load average was %s before the run and %s at its end, the run's own load included.`,
		m.dray, m.day.Format(time.DateOnly), m.cores, m.kernel, m.engine, m.docker, m.devcontainer, m.goLang, m.image, m.load, m.after)
}

// output runs a program and gives what it prints, without the end of line.
func output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // a program that is measured
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s: %w: %s", strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
