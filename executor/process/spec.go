package process

import (
	"bytes"
	"errors"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Spec is a process to start, with everything resolved.
type Spec struct {
	// Argv and Env are bytes; none may hold NUL. Argv[0] without a slash is looked up in the PATH of Env.
	Argv []string
	Env  []string
	// Dir is absolute. It is entered as the tool's user.
	Dir string
	// User is what the process becomes; nil keeps the supervisor's own.
	User *Credential
	// Grace is the time between TERM and KILL for what the leader leaves running.
	Grace time.Duration
	// Keep leaves what the leader leaves running alone when the leader ends by itself. Its supervisor stays with it as the one that reaps,
	// and outlives the pool.
	Keep bool
	// Terminal makes a terminal of that size the controlling one and all three streams; nil is three pipes.
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
		return nil, &StartError{Step: StepExec, Path: s.Argv[0], Err: syscall.E2BIG} // as the kernel would say
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
