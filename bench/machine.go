package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// machine is what the figures depend on, without anything that identifies the machine.
type machine struct {
	cores                                        int
	kernel, engine, docker, devcontainer, goLang string
	dray, image, loadBefore, loadAfter           string
	day                                          time.Time
}

// describe asks every program for its version.
func describe(ctx context.Context, api *client.Client, p programs, image string) (machine, error) {
	m := machine{
		cores: runtime.NumCPU(), goLang: strings.TrimPrefix(runtime.Version(), "go"),
		day: time.Now().UTC(),
	}
	m.image, _, _ = strings.Cut(image, ":") // the tag is the hash of a local build
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return m, fmt.Errorf("read the kernel's release: %w", err)
	}
	m.kernel, _, _ = strings.Cut(strings.TrimSpace(string(release)), "-")
	v, err := api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return m, fmt.Errorf("get the engine's version: %w", err)
	}
	m.engine = v.Version
	m.docker, err = output(ctx, p.docker, "version", "--format", "{{.Client.Version}}")
	if err != nil {
		return m, err
	}
	if m.devcontainer, err = output(ctx, p.devcontainer, "--version"); err != nil {
		return m, err
	}
	m.dray, err = drayVersion(ctx, p.dray)
	return m, err
}

// drayVersion returns the version of the program that is measured, which may be older than these
// sources.
func drayVersion(ctx context.Context, program string) (string, error) {
	text, err := output(ctx, program, "version", "--json")
	if err != nil {
		return "", err
	}
	var v struct{ Version string }
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "", fmt.Errorf("parse the version of dray: %w", err)
	}
	return v.Version, nil
}

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

func (m machine) String() string {
	const text = `dray %s, measured on %s on %d cores, Linux %s, Docker engine %s, docker CLI %s,
devcontainer CLI %s, Go %s; image %s. The load average was %s before the run and %s at its end,
including the run's own load.`
	return fmt.Sprintf(text, m.dray, m.day.Format(time.DateOnly), m.cores, m.kernel, m.engine,
		m.docker, m.devcontainer, m.goLang, m.image, m.loadBefore, m.loadAfter)
}

// output runs a program and returns what it prints, without the end of line.
func output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // a program that is measured
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
