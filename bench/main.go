package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// options are the command's flags and arguments.
type options struct {
	parts  []string
	write  string
	check  bool
	dray   string
	image  string
	rounds int
}

func main() {
	var o options
	flag.StringVar(&o.write, "write", "", "replace the tables in this `page` instead of printing them")
	flag.BoolVar(&o.check, "check", false, "exit with status 1 if a target is missed")
	flag.StringVar(&o.dray, "dray", "bin/dray", "the `program` to measure")
	flag.StringVar(&o.image, "image", image(), "the container's `image`, with a user "+remoteUser)
	flag.IntVar(&o.rounds, "rounds", 20, "the number of rounds; fewer are quicker and noisier")
	flag.Parse()
	o.parts = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // the context ends with the program
	}
}

func image() string {
	if name := os.Getenv("DRAY_TEST_DEBIAN"); name != "" {
		return name
	}
	return "dray-test/debian:latest"
}

func progress(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }

// run measures, removes what it made, and only then publishes.
func run(ctx context.Context, o options) error {
	for _, name := range o.parts {
		if !slices.Contains(partNames, name) {
			return fmt.Errorf("unknown part %q: the parts are %s", name, strings.Join(partNames, ", "))
		}
	}
	if o.write != "" && len(o.parts) > 0 {
		return errors.New("-write needs a run of all parts: leave out the arguments")
	}
	if len(o.parts) == 0 {
		o.parts = partNames
	}
	m, err := measure(ctx, o)
	if err != nil {
		return err
	}
	verdicts := judge(m)
	if err := publish(o.write, page(m, verdicts), os.Stdout); err != nil {
		return err
	}
	return missed(verdicts, o.check, progress)
}

func measure(ctx context.Context, o options) (m *measurements, err error) {
	p, err := findPrograms(o.dray)
	if err != nil {
		return nil, err
	}
	load := loadAverage()
	b, err := newTestbed(ctx, p, o.image)
	if err != nil {
		return nil, err
	}
	defer func() {
		progress("removing what was made")
		err = errors.Join(err, b.close(ctx))
	}()
	m = &measurements{methods: newMethods(b), runs: runs{}, rounds: o.rounds}
	if m.machine, err = describe(ctx, b.api, p, o.image); err != nil {
		return nil, err
	}
	for _, name := range o.parts {
		if err := m.measure(ctx, b, name); err != nil {
			return nil, err
		}
	}
	m.machine.loadBefore, m.machine.loadAfter = load, loadAverage()
	m.recorded, err = checkAuditLogs(ctx, b)
	return m, err
}
