package process

import (
	"errors"
	"io"
	"syscall"

	"github.com/dray-dev/dray"
)

// Adapt gives a process the form that environments speak.
func Adapt(p *Process) dray.Process { return adapter{p} }

type adapter struct{ *Process }

// Output is one of the two streams.
func (p adapter) Output(stream dray.Stream) io.Reader {
	if stream == dray.Stderr {
		return p.Stderr()
	}
	return p.Stdout()
}

// Signal sends one signal to the process.
func (p adapter) Signal(sig syscall.Signal) error { return p.Process.Signal(sig) }

// Wait tells the end. Without a supervisor it is not known, and who survived only where something else proves it.
func (p adapter) Wait() (dray.Exit, error) {
	exit, err := p.Process.Wait()
	survivors := dray.Survivors{Proven: exit.Proven, PIDs: exit.Survivors}
	if err != nil {
		return dray.Exit{Survivors: survivors}, dray.Errorf(dray.CodeAgentLost, "the end of the process is not known: %w", err).
			WithHint("%s", lostHint(exit))
	}
	return dray.Exit{
		Code: exit.Code, Signal: exit.Signal, Leftover: exit.Leftover, KeptPIDs: exit.Kept, Survivors: survivors, OOM: exit.OOM,
	}, nil
}

func lostHint(exit Exit) string {
	if exit.Proven && len(exit.Survivors) == 0 {
		return "something on the host killed the supervisor of this call, and all that it ran was ended; look for what it may have done before you repeat it"
	}
	return "something on the host killed the supervisor of this call; look for processes that it may have left"
}

// WrapStartError gives a failed start its code. The folder is the one that the caller knows, whatever path was used to enter it.
func WrapStartError(err error, dir string) error {
	var start *StartError
	switch {
	case errors.Is(err, ErrClosed):
		return dray.Errorf(dray.CodeShuttingDown, "starting a process: %w", err).WithHint("repeat the call when the daemon is up again")
	case errors.Is(err, ErrLost):
		return dray.Errorf(dray.CodeAgentLost, "it is not known whether the process started: %w", err).
			WithHint("something killed the supervisor of this call; look for what it may have done before you repeat it")
	case !errors.As(err, &start):
		return err
	}
	told := *start
	if told.Step == StepDir {
		told.Path = dir
	}
	return dray.Errorf(told.Code(), "%w", &told).WithHint("%s", Hint(told.Code()))
}

// Hint says what to do about a failed start.
func Hint(code dray.Code) string {
	switch code {
	case dray.CodeExecutableNotFound:
		return "check the spelling, that the program is installed where the call runs, and that it is in PATH there"
	case dray.CodeNotExecutable:
		return "check the file's mode and type: it must be an executable that its user may run"
	case dray.CodeBadCwd:
		return "give a cwd that exists where the call runs and that its user may enter"
	case dray.CodeBadUser:
		return "check remoteUser in devcontainer.json against /etc/passwd and /etc/group of the image"
	case dray.CodeHelperMissing:
		return "a terminal needs a devpts file system at /dev/pts and /dev/ptmx where the call runs; mount it, or call without tty"
	case dray.CodeAgentLost:
		return "repeat the call; if it happens again, look for what kills dray's processes where the call runs"
	default:
		return "a limit of the system was reached. Of processes or memory: end something, or raise it. Of argv and environment (128 KiB for one " +
			"string): pass what is long on stdin or in a file"
	}
}
