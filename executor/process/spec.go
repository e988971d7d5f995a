package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
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

// errMalformed is a message that our own parent or child cannot have sent.
var errMalformed = errors.New("malformed supervisor message")

// encode writes a spec as length-prefixed fields. Both ends are the same binary, so there is no version in it.
func (s Spec) encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b := binary.AppendVarint(nil, int64(s.Grace))
	b = append(b, flag(s.Keep), flag(s.Terminal != nil)) // the size is set before the supervisor sees the terminal
	b = appendStrings(b, s.Argv)
	b = appendStrings(b, s.Env)
	b = appendStrings(b, []string{s.Dir})
	b = appendUser(b, s.User)
	if len(b) > maxMessage {
		return nil, &StartError{Step: StepExec, Path: s.Argv[0], Err: syscall.E2BIG} // as the kernel would say
	}
	return b, nil
}

func appendUser(b []byte, u *Credential) []byte {
	if u == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	b = binary.AppendUvarint(b, uint64(u.UID))
	b = binary.AppendUvarint(b, uint64(u.GID))
	b = binary.AppendUvarint(b, uint64(len(u.Groups)))
	for _, g := range u.Groups {
		b = binary.AppendUvarint(b, uint64(g))
	}
	return b
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

func decodeSpec(b []byte) (Spec, error) {
	d := decoder{b: b}
	s := Spec{Grace: time.Duration(d.varint()), Keep: d.byte() == 1}
	if d.byte() == 1 {
		s.Terminal = &dray.TerminalSize{}
	}
	s.Argv, s.Env = d.strings(), d.strings()
	if dir := d.strings(); len(dir) == 1 {
		s.Dir = dir[0]
	}
	if d.byte() == 1 {
		s.User = &Credential{UID: uint32(d.uvarint()), GID: uint32(d.uvarint())} //nolint:gosec // ids are encoded from 32 bits
		for range d.count() {
			s.User.Groups = append(s.User.Groups, uint32(d.uvarint())) //nolint:gosec // ids are encoded from 32 bits
		}
	}
	if d.failed || len(s.Argv) == 0 {
		return Spec{}, fmt.Errorf("decoding a spec: %w", errMalformed)
	}
	return s, nil
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// decoder reads fields; after the first that is not there, all read as zero and failed is set.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.failed = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) skip(n int) {
	if n <= 0 {
		d.failed, d.b = true, nil
		return
	}
	d.b = d.b[n:]
}

// count reads a number of elements; each takes at least one byte, so more than what is left is a lie.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.failed, d.b = true, nil
		return 0
	}
	return int(n) //nolint:gosec // at most what is left
}

func (d *decoder) strings() []string {
	n := d.count()
	list := make([]string, 0, n)
	for range n {
		size := d.count()
		if d.failed {
			return nil
		}
		list = append(list, string(d.b[:size]))
		d.b = d.b[size:]
	}
	return list
}
