package command

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

// Exit codes of all commands but exec and call.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNoDaemon = 3
	exitDenied   = 4
	exitNotFound = 5
)

// Exit codes of exec and call where they are not the tool's own.
const (
	exitTimeout       = 124
	exitNotRun        = 125
	exitNotExecutable = 126
	exitNotFoundProg  = 127
	exitSignal        = 128 // plus the signal's number
	exitInterrupted   = 130
)

// exitHelp is the table for the help of exec and call.
const exitHelp = `Exit codes:
  N      the tool's own
  124    the call timed out
  125    dray could not run it: code, message and hint are on stderr
  126    the program is not executable
  127    the program was not found
  128+N  signal N ended the tool
  130    interrupted`

// exitHelpOthers is the table for the help of dray itself.
const exitHelpOthers = `Exit codes (exec and call have their own: see dray exec --help):
  0  done
  1  failed
  2  wrong usage
  3  no daemon runs and none could be started
  4  denied, or the workspace is not trusted
  5  not found`

// errInterrupted ends a command on the user's Ctrl-C.
var errInterrupted = errors.New("interrupted")

// exitError ends a command with a code and without a word: everything is said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a command line that makes no sense. It has nothing to do with a daemon.
type usageError struct{ err *dray.Error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// WithHint says what to write instead. Without it the hint leads to the command's help.
func (e usageError) WithHint(format string, args ...any) usageError {
	return usageError{e.err.WithHint(format, args...)}
}

func usagef(format string, args ...any) usageError {
	return usageError{dray.Errorf(dray.CodeInvalidRequest, format, args...)}
}

// startError says that no daemon answers and none could be started.
type startError struct{ err *dray.Error }

func (e startError) Error() string { return e.err.Error() }
func (e startError) Unwrap() error { return e.err }

// exitCode gives the exit code of an error of any command but exec and call.
func exitCode(err error) int {
	var code exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, new(startError)), errors.Is(err, client.ErrNoDaemon),
		errors.Is(err, client.ErrUnresponsive):
		return exitNoDaemon
	}
	return exitOfCode(asError(err).Code)
}

func exitOfCode(code dray.Code) int {
	switch code {
	case dray.CodeInvalidRequest, dray.CodeInvalidInput:
		return exitUsage
	case dray.CodeDenied, dray.CodeUnauthorized, dray.CodeWorkspaceUntrusted:
		return exitDenied
	case dray.CodeNotFound, dray.CodeUnknownTool, dray.CodeContainerNotFound,
		dray.CodeWorkspaceNotFound, dray.CodeNoDevcontainer:
		return exitNotFound
	default:
		return exitFailed
	}
}

// toolExitCode gives the exit code of exec and call where the call could not be made at all.
func toolExitCode(err error) int {
	var code exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitNotRun
}

// recordExitCode gives the exit code of exec and call for a call that ended.
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

// exitedCode is the tool's own, but for a tool that exited with 0 and did not keep its promise (its
// output is not what its schema says).
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
