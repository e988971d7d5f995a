package command

import (
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

// finish says what has to be said of a call that ended, and ends the command with its exit code.
func (a *app) finish(end callResult) error {
	code := recordExitCode(end.record)
	if a.json {
		if err := a.printRaw(end.json); err != nil {
			return err
		}
	} else {
		a.printEndReason(end.record)
		a.printOutputs(end.record)
	}
	if code == exitOK {
		return nil
	}
	return exitError(code)
}

// printEndReason tells what the tool's own output does not: nothing of an exit or a signal, which speak by their codes.
func (a *app) printEndReason(rec dray.Record) {
	a.warn(rec.Metadata.Warnings)
	switch {
	case rec.Error != nil && rec.Error.Code != "":
		a.printError(rec.Error)
	case rec.Reason == dray.ReasonTimeout:
		a.printError((&dray.Error{Message: messageOrDefault(rec, "the call timed out")}).
			WithHint("give it more time with --timeout, at most limits.max_timeout"))
	case rec.Reason == dray.ReasonIdleTimeout:
		a.printError((&dray.Error{Message: messageOrDefault(rec, "the tool printed nothing for too long")}).
			WithHint("limits.idle_timeout says how long a tool may be silent"))
	case rec.Reason == dray.ReasonCancelled:
		a.printError(&dray.Error{Message: messageOrDefault(rec, "the call was cancelled")})
	case rec.Reason != dray.ReasonExited && rec.Reason != dray.ReasonSignalled:
		fmt.Fprintf(a.err, "dray: the call ended: %s\n", escapeLine(string(rec.Reason)))
	}
}

// messageOrDefault is what the daemon says of the end, such as which timeout was meant or that the daemon ended; else what the reason alone says.
func messageOrDefault(rec dray.Record, otherwise string) string {
	if rec.Error == nil || rec.Error.Message == "" {
		return otherwise
	}
	return rec.Error.Message
}

// warn shows warnings to people. A program that reads stderr wants the tool's bytes alone; it finds the warnings in the record.
func (a *app) warn(warnings []string) {
	if !isTerminal(a.err) {
		return
	}
	for _, w := range warnings {
		fmt.Fprintln(a.err, "dray: warning: "+escapeLine(w))
	}
}

// formatMillis writes a span of time, to be read by people.
func formatMillis(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond).String()
}

// duration is how long a call took, to be read by people.
func duration(rec dray.Record) string {
	if rec.DurationMS == nil {
		return "an unknown time"
	}
	return formatMillis(*rec.DurationMS)
}
