package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/process"
)

// Outcome is a finished run.
type Outcome struct {
	Result         dray.Result
	stdout, stderr streamCapture
}

// Stdout is the capture of what the tool printed there.
func (o *Outcome) Stdout() *capture.Capture { return o.stdout.raw }

// Release lets the captures go: from here on retention may remove them. It is called once.
func (o *Outcome) Release() {
	for _, c := range o.captures() {
		c.Release()
	}
}

func (o *Outcome) outlets() []*streamCapture { return []*streamCapture{&o.stdout, &o.stderr} }

func (o *Outcome) captures() []*capture.Capture {
	return append(o.stdout.captures(), o.stderr.captures()...)
}

// discard closes and releases the captures where a panic passes, since nobody gets the outcome
// then.
func (o *Outcome) discard() {
	p := recover()
	if p == nil {
		return
	}
	for _, c := range o.captures() {
		_ = c.Close() // nobody reads it
	}
	o.Release()
	panic(Recovered(p))
}

// summarize ends the captures and puts them into the result.
func (o *Outcome) summarize() {
	o.Result.Stdout, o.Result.Stderr = o.stdout.close(), o.stderr.close()
}

func (o *Outcome) warn(text string) {
	o.Result.Metadata.Warnings = append(o.Result.Metadata.Warnings, text)
}

// setReason finds the one reason of a run that went as far as its end. Where we ended the process
// it is the cause of that, however the process took it. Output that could not be kept goes before
// the process's own end: whether it was quicker than we is chance.
func (o *Outcome) setReason(exit dray.Exit, cause error) {
	if cause == nil && o.captureErr() != nil {
		cause = ErrOutputLimit
	}
	switch {
	case errors.Is(cause, ErrOutputLimit):
		o.endedByOutputLimit(exit)
	case cause != nil:
		o.stopped(cause)
	default:
		o.endedByItself(exit)
	}
}

// stopped is the end that a cause brought about.
func (o *Outcome) stopped(cause error) {
	e := &dray.Error{Message: cause.Error()}
	switch {
	case errors.Is(cause, ErrTimeout), errors.Is(cause, context.DeadlineExceeded):
		o.Result.Reason = dray.ReasonTimeout
		e = e.WithHint("give the call a longer timeout_seconds, or run it in parts")
	case errors.Is(cause, ErrIdleTimeout):
		o.Result.Reason = dray.ReasonIdleTimeout
		e = e.WithHint("give the call a longer idle_timeout_seconds, or have the tool print its progress")
	default:
		o.Result.Reason = dray.ReasonCancelled
	}
	o.Result.Error = e
}

// captureErr says why a stream is not kept as far as the limit allows.
func (o *Outcome) captureErr() *dray.Error {
	for _, c := range o.captures() {
		if err := c.Err(); err != nil {
			return dray.AsError(err)
		}
	}
	return nil
}

// warnUnkept tells of output that is not kept where that is not why the call ended.
func (o *Outcome) warnUnkept() {
	if e := o.captureErr(); e != nil && o.Result.Reason != dray.ReasonOutputLimit {
		o.warn(e.Message)
	}
}

// endedByOutputLimit is the end of a tool whose output could not be kept.
func (o *Outcome) endedByOutputLimit(exit dray.Exit) {
	o.Result.Reason = dray.ReasonOutputLimit
	e := *o.captureErr()
	e.Message = fmt.Sprintf("%v: %s", ErrOutputLimit, e.Message)
	if exit.Signal == 0 {
		e.Message += fmt.Sprintf(" (the tool itself exited with %d)", exit.Code)
	}
	o.Result.Error = &e
}

// endedByItself is the tool's own end.
func (o *Outcome) endedByItself(exit dray.Exit) {
	switch {
	case exit.Signal == syscall.SIGKILL && exit.OOM != dray.OOMNo:
		o.outOfMemory(exit.OOM)
	case exit.Signal != 0:
		o.Result.Reason = dray.ReasonSignalled
		o.Result.Signal = &dray.Signal{Name: process.SignalName(exit.Signal), Number: int(exit.Signal)}
		o.Result.Error = &dray.Error{Message: joinNonEmpty("ended by "+process.SignalName(exit.Signal),
			o.excerpt())}
	default:
		o.Result.Reason = dray.ReasonExited
		o.Result.ExitCode = &exit.Code
		if exit.Code != 0 {
			o.Result.Error = &dray.Error{Message: o.excerpt()}
		}
	}
}

// outOfMemory is the end of a tool that the kernel killed because memory ran out.
func (o *Outcome) outOfMemory(oom dray.OOM) {
	o.Result.Reason = dray.ReasonOOM
	e := &dray.Error{Message: joinNonEmpty("the kernel killed the tool because memory ran out",
		o.excerpt())}
	o.Result.Error = e.WithHint("have the tool need less memory, or give the container more")
	if oom == dray.OOMLikely {
		o.warn("that memory ran out is likely and not certain: other calls ran in the same container, and the kernel counts for all of them together")
	}
}

// maxExcerpt bounds the part of stderr in an error's message, in characters (CA-05).
const maxExcerpt = 500

// excerpt is the end of stderr, without a character or separator left hanging.
func (o *Outcome) excerpt() string {
	text := []rune(strings.ToValidUTF8(string(o.stderr.displayed().Tail(4*maxExcerpt)), "\uFFFD"))
	return strings.Trim(string(text[max(0, len(text)-maxExcerpt):]), separators)
}

// separators are what an excerpt neither begins nor ends with.
const separators = " \t\r\n\v\f\u0085\u00a0\u2028\u2029:;,|"

func joinNonEmpty(a, b string) string {
	if b == "" {
		return a
	}
	return a + ": " + b
}
