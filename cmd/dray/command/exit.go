package command

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

// Exit codes of all commands except exec and call.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNoDaemon = 3
	exitDenied   = 4
	exitNotFound = 5
)

// Exit codes of exec and call that are not the tool's own.
const (
	exitTimeout       = 124
	exitNotRun        = 125
	exitNotExecutable = 126
	exitNotFoundProg  = 127
	exitSignal        = 128 // plus the signal's number
	exitInterrupted   = 130
)

// exitHelp is the part of the help of exec and call about exit codes.
const exitHelp = `Exit codes:
  N      the tool's own exit code
  124    the call timed out
  125    dray could not run it; code, message and hint are on stderr
  126    the program is not executable
  127    the program was not found
  128+N  the tool was ended by signal N
  130    interrupted`

// exitHelpOthers is the part of the help of all other commands about exit codes.
const exitHelpOthers = `Exit codes (for exec and call see dray exec --help):
  0  success
  1  failed
  2  invalid usage
  3  no daemon is running, or none could be started
  4  denied, or the workspace is not trusted
  5  not found`

// errInterrupted is returned by a command that the user interrupted.
var errInterrupted = errors.New("interrupted")

// exitError ends a command with an exit code. Nothing more is printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is an error in the command line.
type usageError struct{ err *dray.Error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// WithHint sets the hint. The default hint refers to the command's help.
func (e usageError) WithHint(format string, args ...any) usageError {
	return usageError{e.err.WithHint(format, args...)}
}

func usagef(format string, args ...any) usageError {
	return usageError{dray.Errorf(dray.CodeInvalidRequest, format, args...)}
}

// startError is returned if no daemon is running and none could be started.
type startError struct{ err *dray.Error }

func (e startError) Error() string { return e.err.Error() }
func (e startError) Unwrap() error { return e.err }

// exitCode returns the exit code for an error of any command except exec and call.
func exitCode(err error) int {
	if code, ok := commonExitCode(err); ok {
		return code
	}
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, new(startError)), errors.Is(err, client.ErrNoDaemon),
		errors.Is(err, client.ErrUnresponsive):
		return exitNoDaemon
	}
	return exitOfCode(asError(err).Code)
}

// toolExitCode returns the exit code of exec and call for a call that could not be made.
func toolExitCode(err error) int {
	if code, ok := commonExitCode(err); ok {
		return code
	}
	return exitNotRun
}

func commonExitCode(err error) (code int, ok bool) {
	var exit exitError
	switch {
	case err == nil:
		return exitOK, true
	case errors.As(err, &exit):
		return int(exit), true
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted, true
	default:
		return 0, false
	}
}

func exitOfCode(code dray.Code) int {
	switch code {
	case dray.CodeInvalidRequest, dray.CodeInvalidInput:
		return exitUsage
	case dray.CodeDenied, dray.CodeUnauthorized, dray.CodeWorkspaceUntrusted,
		dray.CodeApprovalRequired:
		return exitDenied
	case dray.CodeNotFound, dray.CodeUnknownTool, dray.CodeContainerNotFound,
		dray.CodeWorkspaceNotFound, dray.CodeNoDevcontainer:
		return exitNotFound
	default:
		return exitFailed
	}
}

// recordExitCode returns the exit code of exec and call for a call that ended.
func recordExitCode(rec dray.Record) int {
	switch rec.Reason {
	case dray.ReasonExited:
		return exitedCode(rec)
	case dray.ReasonSignalled:
		if rec.Signal != nil {
			return exitSignal + rec.Signal.Number
		}
		return exitNotRun
	case dray.ReasonOOM:
		return exitSignal + int(syscall.SIGKILL)
	case dray.ReasonTimeout, dray.ReasonIdleTimeout:
		return exitTimeout
	case dray.ReasonCancelled:
		return exitInterrupted
	case dray.ReasonStartFailed:
		return startFailedCode(rec)
	default:
		return exitNotRun
	}
}

// exitedCode returns the tool's own exit code. A tool that exited with 0 and whose output is
// invalid counts as not run.
func exitedCode(rec dray.Record) int {
	switch {
	case rec.ExitCode == nil, *rec.ExitCode == 0 && rec.Status != dray.StatusSucceeded:
		return exitNotRun
	default:
		return *rec.ExitCode
	}
}

func startFailedCode(rec dray.Record) int {
	if rec.Error == nil {
		return exitNotRun
	}
	switch rec.Error.Code {
	case dray.CodeExecutableNotFound:
		return exitNotFoundProg
	case dray.CodeNotExecutable:
		return exitNotExecutable
	default:
		return exitNotRun
	}
}
