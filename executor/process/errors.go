package process

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Step is the part of a start that failed.
type Step byte

// The steps.
const (
	// StepExec is finding and executing the program.
	StepExec Step = iota + 1
	// StepDir is entering the working folder.
	StepDir
	// StepUser is becoming the user.
	StepUser
	// StepFork is making a process at all: limits and memory.
	StepFork
	// StepTerminal is making a terminal.
	StepTerminal
)

// StartError says why nothing was started.
type StartError struct {
	Step Step
	// Path is the program, the folder, or empty.
	Path string
	Err  error
}

// Error names the step, the path and the system's word for it.
func (e *StartError) Error() string {
	switch e.Step {
	case StepDir:
		return fmt.Sprintf("cannot enter the working folder %q: %v", e.Path, e.Err)
	case StepUser:
		return fmt.Sprintf("cannot become the user: %v", e.Err)
	case StepFork:
		return fmt.Sprintf("cannot start a process: %v", e.Err)
	case StepTerminal:
		return fmt.Sprintf("cannot make a terminal: %v", e.Err)
	default:
		return fmt.Sprintf("cannot execute %q: %v", e.Path, e.Err)
	}
}

// Unwrap gives the system's error.
func (e *StartError) Unwrap() error { return e.Err }

// NotFound says that there is no such program, in contrast to one that may not be executed.
func (e *StartError) NotFound() bool {
	return e.Step == StepExec && (errors.Is(e.Err, syscall.ENOENT) || errors.Is(e.Err, syscall.ENOTDIR))
}

// ErrTraced is the end of a process that another process traces and does not let go of: it is over, and how is not known.
var ErrTraced = errors.New("a process that traces it hides how it ended")

// ErrLost is the end of a process whose supervisor died: how the process ended is not known.
var ErrLost = errors.New("the supervisor of the process is gone")

// ErrClosed is a start on a closed pool.
var ErrClosed = errors.New("the process pool is closed")

// packStartError takes of the cause the system's number alone, on both sides.
func packStartError(f *pack.Fields, e *StartError) {
	var number syscall.Errno
	errors.As(e.Err, &number)
	pack.Uint(f, &e.Step)
	pack.Text(f, &e.Path)
	pack.Uint(f, &number)
	e.Err = number
}

// Code is the error as callers of dray see it.
func (e *StartError) Code() dray.Code {
	switch {
	case e.Step == StepDir:
		return dray.CodeBadCwd
	case e.Step == StepUser:
		return dray.CodeBadUser
	case e.Step == StepTerminal && !isResourceLimit(e.Err):
		return dray.CodeHelperMissing
	case e.NotFound():
		return dray.CodeExecutableNotFound
	case errors.Is(e.Err, syscall.E2BIG):
		return dray.CodeLimitExceeded
	case e.Step == StepExec:
		return dray.CodeNotExecutable
	default:
		return dray.CodeLimitExceeded
	}
}

// isResourceLimit says that there are too many of something that can be had in principle.
func isResourceLimit(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
