package main

import (
	"context"
	_ "embed" // the program's source
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed floor/floor.c
var floorSource string

// floorProgram is the C program whose calls are the least that calls of a kind can cost here.
type floorProgram struct {
	path string // the program
	log  string // the file that it writes
	tool string // the program that it runs
}

// compileFloor compiles the program into dir, whose file system is that of the daemon's audit log.
func compileFloor(ctx context.Context, dir string) (*floorProgram, error) {
	tool, err := exec.LookPath(runTrue.argv[0])
	if err != nil {
		return nil, err
	}
	f := &floorProgram{
		path: filepath.Join(dir, "floor"), log: filepath.Join(dir, "floor.log"), tool: tool,
	}
	return f, compile(ctx, floorSource, f.path, "-O2", "-pthread")
}

// compile compiles a C program with the compiler that dray itself is built with.
func compile(ctx context.Context, source, path string, options ...string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	argv := append(strings.Fields(compiler), options...)
	argv = append(argv, "-x", "c", "-o", path, "-")
	//nolint:gosec // the compiler that the operator names
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w: %s (run `scripts/setup compiler`)", filepath.Base(path), err,
			out)
	}
	return nil
}

// floorBatch has the program make the calls of one round.
func (m method) floorBatch(ctx context.Context, l load, calls int) (times []time.Duration,
	took time.Duration, err error,
) {
	f := m.floorProgram
	out, err := output(ctx, f.path, m.floor, strconv.Itoa(calls), strconv.Itoa(l.callers), f.log,
		f.tool)
	if err != nil {
		return nil, 0, err
	}
	for line := range strings.Lines(out) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("parse the output of the floor program: %w", err)
		}
		times = append(times, time.Duration(ns))
	}
	if len(times) != calls+1 {
		return nil, 0, fmt.Errorf("the floor program printed %d times for %d calls", len(times), calls)
	}
	return times[:calls], times[calls], nil
}
