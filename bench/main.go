package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// options are the command's flags.
type options struct {
	only   string
	write  string
	check  bool
	dray   string
	image  string
	rounds int
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure these `parts` alone, separated by commas: latency, parallel, stream, memory, kill, paths, sync")
	flag.StringVar(&o.write, "write", "", "put the tables into this `page` instead of printing them")
	flag.BoolVar(&o.check, "check", false, "end with status 1 if a target is missed")
	flag.StringVar(&o.dray, "dray", "bin/dray", "the `program` to measure")
	flag.StringVar(&o.image, "image", image(), "the devcontainer's `image`; it has a user "+remoteUser)
	flag.IntVar(&o.rounds, "rounds", 20, "how many rounds; fewer are quicker and noisier")
	flag.Parse()
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
	chosen, err := parseParts(o.only)
	switch {
	case err != nil:
		return err
	case flag.NArg() > 0 || o.rounds < 1:
		return errors.New("no arguments are taken, and at least one round is needed (-help lists the flags)")
	case o.write != "" && len(chosen) < len(partNames):
		return errors.New("a page shows a whole run: leave -only out with -write")
	}
	f, err := measure(ctx, o, chosen)
	if err != nil {
		return err
	}
	verdicts := judge(f)
	if err := publish(o.write, page(f, verdicts), lineOf(f), os.Stdout); err != nil {
		return err
	}
	return missed(verdicts, o.check, progress)
}

func measure(ctx context.Context, o options, chosen map[string]bool) (f *measurements, err error) {
	p, err := findPrograms(o.dray)
	if err != nil {
		return nil, err
	}
	before := loadAverage() // what the machine does without us
	r, err := newTestbed(ctx, p, o.image, progress)
	if err != nil {
		return nil, err
	}
	defer func() {
		progress("removing what was made")
		err = errors.Join(err, r.close(ctx))
	}()
	f = &measurements{}
	if f.machine, err = describe(ctx, r.api, p, o.image); err != nil {
		return nil, err
	}
	err = f.measure(ctx, r, chosen, o.rounds, progress)
	f.machine.load, f.machine.after = before, loadAverage()
	return f, err
}
