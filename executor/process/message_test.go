package process

import (
	"errors"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// What the pool says is what the supervisor reads, and back. Of a terminal it is said that there is
// one, and Proven is the pool's to say.
func TestMessagesCross(t *testing.T) {
	cross(t, packSpec, Spec{
		Argv: []string{"sh", "", "\xff"}, Env: []string{"A=1"}, Dir: "/", User: &Credential{
			UID: 1 << 31,
			GID: 7, Groups: []uint32{8},
		},
		Grace: time.Second, Keep: true, Terminal: &dray.TerminalSize{},
	})
	cross(t, packSpec, Spec{Argv: []string{"true"}})
	cross(t, packExit, Exit{
		Code: 255, Signal: syscall.SIGKILL, Leftover: 1, Kept: []int{1}, OOM: dray.OOMLikely, Survivors: []int{2}, unknown: true, tracerBlocked: true,
	})
	cross(t, packStartError, StartError{Step: StepDir, Path: "/none", Err: syscall.ENOENT})
}

func cross[T any](t *testing.T, fields func(*pack.Fields, *T), message T) {
	t.Helper()
	b := pack.Append(nil, &message, fields)
	var got T
	if err := pack.Decode(b, &got, fields); err != nil || !reflect.DeepEqual(got, message) {
		t.Errorf("got %+v, %v, want %+v", got, err, message)
	}
	if err := pack.Decode(b[:len(b)-1], new(T), fields); !errors.Is(err, pack.ErrMalformed) {
		t.Errorf("cut short it is taken: %v", err)
	}
}

// FuzzSpec: a supervisor runs as the agent does, and what reaches it is a start of a program or
// none.
func FuzzSpec(f *testing.F) {
	f.Add(pack.Append(nil, &Spec{Argv: []string{"true"}, User: &Credential{}}, packSpec))
	f.Fuzz(func(t *testing.T, input []byte) {
		var s Spec
		if err := pack.Decode(input, &s, packSpec); err == nil && len(s.Argv) == 0 {
			t.Error("nothing to start")
		}
	})
}

// FuzzExit: what a supervisor says, which a root tool may have taken over, is an end or none.
func FuzzExit(f *testing.F) {
	f.Add(pack.Append(nil, &Exit{Kept: []int{1}}, packExit))
	f.Fuzz(func(t *testing.T, input []byte) {
		var e Exit
		if err := pack.Decode(input, &e, packExit); err != nil && !errors.Is(err, pack.ErrMalformed) {
			t.Error(err)
		}
		var s StartError
		if err := pack.Decode(input, &s, packStartError); err != nil &&
			!errors.Is(err, pack.ErrMalformed) {
			t.Error(err)
		}
	})
}
