package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// options are the command's flags.
type options struct {
	write  string
	check  bool
	dray   string
	image  string
	rounds int
}

func main() {
	var o options
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
	if flag.NArg() > 0 || o.rounds < 1 {
		return errors.New("no arguments are taken, and at least one round is needed (-help lists the flags)")
	}
	figures, verdicts, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if err := publish(o.write, figures, os.Stdout); err != nil {
		return err
	}
	return missed(verdicts, o.check, progress)
}

// missed tells which targets were missed, as an error if they were to be checked.
func missed(verdicts []verdict, check bool, tell func(string)) error {
	var all []string
	for _, v := range verdicts {
		if !v.met() {
			all = append(all, fmt.Sprintf("%s takes %s times as long for %#q, and should take %s", v.way, factor(v.got), strings.Join(v.command.argv, " "), factor(v.least)))
		}
	}
	if len(all) == 0 {
		return nil
	}
	err := errors.New("targets are missed: " + strings.Join(all, "; "))
	if check {
		return err
	}
	tell(err.Error())
	return nil
}

func measure(ctx context.Context, o options) (figures string, verdicts []verdict, err error) {
	p, err := findPrograms(o.dray)
	if err != nil {
		return "", nil, err
	}
	before := loadAverage() // what the machine does without us
	r, err := newRig(ctx, p, o.image, progress)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		progress("removing what was made")
		err = errors.Join(err, r.close(ctx))
	}()
	m, err := describe(ctx, r.api, p, o.image)
	if err != nil {
		return "", nil, err
	}
	m.load = before
	all := ways(r)
	if err := warm(ctx, all); err != nil {
		return "", nil, err
	}
	one, err := serial(ctx, all, o.rounds, progress)
	if err != nil {
		return "", nil, err
	}
	many, err := crowds(ctx, all)
	if err != nil {
		return "", nil, err
	}
	trail, err := inTrail(ctx, r)
	if err != nil {
		return "", nil, err
	}
	m.after = loadAverage()
	verdicts = judge(one)
	return page(m, one, many, verdicts, trail), verdicts, nil
}

// inTrail proves that every call that went through the daemon was recorded, begin and end.
func inTrail(ctx context.Context, r *rig) (string, error) {
	well, all, err := recorded(ctx, r.daemon.socket)
	if err != nil {
		return "", err
	}
	if calls := int(r.calls.Load()); well != calls || all != calls {
		return "", fmt.Errorf("%d calls went through the daemon, its trail has %d, and %d that ended well", calls, all, well)
	}
	return fmt.Sprintf("After the run the trail held all %d calls that went through the daemon, warm-up included, each with its end.", all), nil
}
