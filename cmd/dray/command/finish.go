package command

import (
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

// finish says what has to be said of a call that ended, and ends the command with its exit code.
func (a *app) finish(end outcome) error {
	code := recordExitCode(end.record)
	if a.json {
		if err := a.printRaw(end.json); err != nil {
			return err
		}
	} else {
		a.explainEnd(end.record)
	}
	if code == exitOK {
		return nil
	}
	return exitError(code)
}

// explainEnd tells what the tool's own output does not: nothing of an exit or a signal, which speak by their codes.
func (a *app) explainEnd(rec dray.Record) {
	a.warn(rec.Metadata.Warnings)
	switch {
	case rec.Error != nil && rec.Error.Code != "":
		a.complain(rec.Error)
	case rec.Reason == dray.ReasonTimeout:
		a.complain((&dray.Error{Message: "the call timed out after " + duration(rec)}).
			WithHint("give it more time with --timeout, at most limits.max_timeout"))
	case rec.Reason == dray.ReasonIdleTimeout:
		a.complain((&dray.Error{Message: "the tool printed nothing for too long, and was ended after " + duration(rec)}).
			WithHint("limits.idle_timeout says how long a tool may be silent"))
	case rec.Reason == dray.ReasonCancelled:
		a.complain(&dray.Error{Message: cancelled(rec)})
	case rec.Reason != dray.ReasonExited && rec.Reason != dray.ReasonSignalled:
		fmt.Fprintf(a.err, "dray: the call ended: %s\n", safeLine(string(rec.Reason)))
	}
}

// cancelled says why a call was cancelled: by its caller, or because the daemon ends.
func cancelled(rec dray.Record) string {
	if rec.Error == nil || rec.Error.Message == "" {
		return "the call was cancelled"
	}
	return rec.Error.Message
}

// warn shows warnings to people. A program that reads stderr wants the tool's bytes alone; it finds the warnings in the record.
func (a *app) warn(warnings []string) {
	if !isTerminal(a.err) {
		return
	}
	for _, w := range warnings {
		fmt.Fprintln(a.err, "dray: warning: "+safeLine(w))
	}
}

// duration is how long a call took, to be read by people.
func duration(rec dray.Record) string {
	if rec.DurationMS == nil {
		return "an unknown time"
	}
	return time.Duration(*rec.DurationMS * float64(time.Millisecond)).Round(time.Millisecond).String()
}
