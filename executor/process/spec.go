package process

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Spec is a process to start, with everything resolved.
type Spec struct {
	// Argv and Env are bytes; none may hold NUL. Argv[0] without a slash is looked up in the PATH of
	// Env.
	Argv []string
	Env  []string
	// Dir is absolute. It is entered as the tool's user.
	Dir string
	// User is what the process becomes; nil keeps the supervisor's own.
	User *Credential
	// Grace is the time between TERM and KILL for what the leader leaves running.
	Grace time.Duration
	// Keep leaves what the leader leaves running alone when the leader ends by itself. Its supervisor
	// stays with it as the one that reaps, and outlives the pool.
	Keep bool
	// Terminal makes a terminal of that size the controlling one and all three streams; nil is three
	// pipes.
	Terminal *dray.TerminalSize
}

// Credential is a user in numbers, with all supplementary groups.
type Credential struct {
	UID, GID uint32
	Groups   []uint32
}

// packSpec has no version among its fields: both ends are the same binary.
func packSpec(f *pack.Fields, s *Spec) {
	pack.Int(f, &s.Grace)
	pack.Bool(f, &s.Keep)
	pack.Optional(f, &s.Terminal, packTerminal)
	packStrings(f, &s.Argv)
	packStrings(f, &s.Env)
	pack.Text(f, &s.Dir)
	pack.Optional(f, &s.User, packCredential)
	if len(s.Argv) == 0 {
		f.Fail("no argv")
	}
}

// packTerminal says that there is one: its size is set before the supervisor sees it.
func packTerminal(*pack.Fields, *dray.TerminalSize) {}

func packCredential(f *pack.Fields, c *Credential) {
	pack.Uint(f, &c.UID)
	pack.Uint(f, &c.GID)
	pack.List(f, &c.Groups, pack.NoLimit, pack.Uint)
}

func packStrings(f *pack.Fields, list *[]string) { pack.List(f, list, pack.NoLimit, pack.Text) }

// encode refuses what no supervisor could start.
func (s Spec) encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := pack.Append(nil, &s, packSpec)
	if len(b) > maxMessage {
		// as the kernel would say
		return nil, &StartError{Step: StepExec, Path: s.Argv[0], Err: syscall.E2BIG}
	}
	return b, nil
}

func (s Spec) check() error {
	if len(s.Argv) == 0 {
		return &StartError{Step: StepExec, Path: "", Err: errors.New("empty argv")}
	}
	for _, list := range [][]string{s.Argv, s.Env, {s.Dir}} {
		for _, v := range list {
			if bytes.IndexByte([]byte(v), 0) >= 0 {
				return &StartError{Step: StepExec, Path: v, Err: errors.New("holds a NUL byte")}
			}
		}
	}
	return nil
}

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
	return e.Step == StepExec && (errors.Is(e.Err, syscall.ENOENT) ||
		errors.Is(e.Err, syscall.ENOTDIR))
}

// ErrTraced is the end of a process that another process traces and does not let go of: it is over,
// and how is not known.
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
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
