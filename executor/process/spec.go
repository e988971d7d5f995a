package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Spec is a process to start. All names in it are resolved.
type Spec struct {
	// Argv and Env are bytes without NUL. Argv[0] is looked up in the PATH of Env unless it has a
	// slash.
	Argv []string
	Env  []string
	// Dir is the absolute working directory. The process enters it as its user.
	Dir string
	// RealDir is the path without symlinks that Dir must lead to. Empty is any.
	RealDir string
	// User is the user of the process; nil is the user of the supervisor.
	User *Credential
	// Grace is the time between TERM and KILL for leftover processes.
	Grace time.Duration
	// Keep keeps leftover processes running when the leader ends by itself. Their supervisor reaps
	// them, and outlives the pool.
	Keep bool
	// Terminal is the size of a terminal, which becomes the controlling terminal and all three
	// streams. If it is nil, the streams are pipes.
	Terminal *dray.TerminalSize
	// Memory bounds the address space of the process and of each descendant, in bytes. 0 is no bound.
	Memory uint64
	// Data bounds the private writable memory of the same processes, in bytes. 0 is no bound. It is
	// for programs that reserve far more addresses than they use.
	Data uint64
	// Stack is the soft limit of the stack of the main thread of the same processes, in bytes. 0 keeps
	// that of the supervisor. It is at most the hard limit.
	Stack uint64
	// Permit allows the start (NewPermit). The caller closes it. If it is nil, the pool creates one.
	Permit *os.File
}

// CallEnv returns env with the variables of a call (EX-23) instead of those that the caller gave
// these names. Without an id, env belongs to a process of no call and stays. Without results there
// is no DRAY_RESULTS.
func CallEnv(env []string, id, results string) []string {
	if id == "" {
		return env
	}
	env = slices.DeleteFunc(env, func(kv string) bool {
		return strings.HasPrefix(kv, dray.EnvCallID+"=") || strings.HasPrefix(kv, dray.EnvResults+"=")
	})
	env = append(env, dray.EnvCallID+"="+id)
	if results != "" {
		env = append(env, dray.EnvResults+"="+results)
	}
	return env
}

// Credential is a user, with all supplementary groups.
type Credential struct {
	UID, GID uint32
	Groups   []uint32
}

// packSpec packs no version: pool and supervisor are one build.
func packSpec(f *pack.Fields, s *Spec) {
	pack.Int(f, &s.Grace)
	pack.Bool(f, &s.Keep)
	pack.Optional(f, &s.Terminal, packTerminal)
	packStrings(f, &s.Argv)
	packStrings(f, &s.Env)
	pack.Text(f, &s.Dir)
	pack.Text(f, &s.RealDir)
	pack.Optional(f, &s.User, packCredential)
	pack.Uint(f, &s.Memory)
	pack.Uint(f, &s.Data)
	pack.Uint(f, &s.Stack)
	if len(s.Argv) == 0 {
		f.Fail("no argv")
	}
}

// packTerminal packs no size: the pool has set it. The supervisor sees that there is a terminal.
func packTerminal(*pack.Fields, *dray.TerminalSize) {}

func packCredential(f *pack.Fields, c *Credential) {
	pack.Uint(f, &c.UID)
	pack.Uint(f, &c.GID)
	pack.List(f, &c.Groups, pack.NoLimit, pack.Uint)
}

func packStrings(f *pack.Fields, list *[]string) { pack.List(f, list, pack.NoLimit, pack.Text) }

// encode fails with a *StartError for a spec that cannot be started.
func (s Spec) encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := pack.Append(nil, &s, packSpec)
	if len(b) > maxMessage {
		// the kernel's error for it
		return nil, &StartError{Step: StepExec, Path: s.Argv[0], Err: syscall.E2BIG}
	}
	return b, nil
}

func (s Spec) check() error {
	if len(s.Argv) == 0 {
		return &StartError{Step: StepExec, Err: errors.New("empty argv")}
	}
	for _, list := range [][]string{s.Argv, s.Env, {s.Dir, s.RealDir}} {
		for _, v := range list {
			if strings.Contains(v, "\x00") {
				return &StartError{Step: StepExec, Path: v, Err: errors.New("it contains a NUL byte")}
			}
		}
	}
	return nil
}

// Step is the step of a start that failed.
type Step byte

// The steps of a start.
const (
	StepExec Step = iota + 1 // finds and executes the program
	StepDir                  // enters the working directory
	StepUser                 // changes to the user
	StepFork                 // creates the process and its streams
	StepTerminal
	StepPermit  // takes the permit
	StepRealDir // compares the working directory with Spec.RealDir
)

// StartError is the error of a start. No process runs.
type StartError struct {
	Step Step
	// Path is the program or the working directory, or empty.
	Path string
	Err  error
}

// Error names the step, the path and the cause.
func (e *StartError) Error() string {
	doing := fmt.Sprintf("execute %q", e.Path)
	switch e.Step {
	case StepDir:
		doing = fmt.Sprintf("enter the working directory %q", e.Path)
	case StepRealDir:
		doing = fmt.Sprintf("enter the working directory %q, which leads elsewhere", e.Path)
	case StepUser:
		doing = "change to the user"
	case StepFork:
		doing = "start a process"
	case StepTerminal:
		doing = "create a terminal"
	case StepPermit:
		doing = "start a process whose call has ended"
	}
	return fmt.Sprintf("cannot %s: %v", doing, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// NotFound reports whether there is no such program.
func (e *StartError) NotFound() bool {
	return e.Step == StepExec && isAny(e.Err, syscall.ENOENT, syscall.ENOTDIR)
}

// Errors of processes.
var (
	// ErrTraced is returned by Wait for a process that has ended while a tracer holds it.
	ErrTraced = errors.New("exit status unknown: the process is held by a tracer (ptrace)")
	// ErrLost is returned if the supervisor of the process was killed, or reported no end in time.
	ErrLost = errors.New("the supervisor of the process was killed, or does not respond")
	// ErrAbandoned is returned by a start that was given up when the process may have started.
	ErrAbandoned = errors.New("the call ended while its process was being started")
	// ErrClosed is returned by a start on a closed pool.
	ErrClosed = errors.New("the process pool is closed")
)

// UnconfirmedError is the error of a start whose process may run or have run. Survivors is what is
// known of it.
type UnconfirmedError struct {
	Err       error
	Survivors dray.Survivors
}

func (e *UnconfirmedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnconfirmedError) Unwrap() error { return e.Err }

// packStartError packs only the errno of the cause.
func packStartError(f *pack.Fields, e *StartError) {
	var number syscall.Errno
	errors.As(e.Err, &number)
	pack.Uint(f, &e.Step)
	pack.Text(f, &e.Path)
	pack.Uint(f, &number)
	e.Err = number
}

// Code returns the dray code of the error.
func (e *StartError) Code() dray.Code {
	switch {
	case IsResourceLimit(e.Err):
		return dray.CodeLimitExceeded
	case e.Step == StepDir, e.Step == StepRealDir:
		return dray.CodeBadCwd
	case e.Step == StepUser:
		return dray.CodeBadUser
	case e.Step == StepTerminal && !errors.Is(e.Err, syscall.ENOSPC): // all terminals are in use
		return dray.CodeHelperMissing
	case e.NotFound():
		return dray.CodeExecutableNotFound
	case e.Step == StepExec && !errors.Is(e.Err, syscall.E2BIG):
		return dray.CodeNotExecutable
	default:
		return dray.CodeLimitExceeded
	}
}

// IsResourceLimit reports whether an error means that the system or a limit of this process has no
// more processes, fds or memory.
func IsResourceLimit(err error) bool {
	return isAny(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN)
}

func isAny(err error, numbers ...syscall.Errno) bool {
	return slices.ContainsFunc(numbers, func(n syscall.Errno) bool { return errors.Is(err, n) })
}
