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

// Messages between pool and supervisor are decoded as they were. The size of a terminal and
// Exit.Proven are not sent.
func TestMessagesRoundTrip(t *testing.T) {
	roundTrip(t, packSpec, Spec{
		Argv: []string{"sh", "", "\xff"}, Env: []string{"A=1"}, Dir: "/", User: &Credential{
			UID: 1 << 31,
			GID: 7, Groups: []uint32{8},
		},
		Grace: time.Second, Keep: true, Terminal: &dray.TerminalSize{},
	})
	roundTrip(t, packSpec, Spec{Argv: []string{"true"}})
	roundTrip(t, packExit, Exit{
		Code: 255, Signal: syscall.SIGKILL, Leftover: 1, Kept: []int{1}, OOM: dray.OOMLikely, Survivors: []int{2}, unknown: true, tracerBlocked: true,
	})
	roundTrip(t, packStartError, StartError{Step: StepDir, Path: "/none", Err: syscall.ENOENT})
}

func roundTrip[T any](t *testing.T, fields func(*pack.Fields, *T), message T) {
	t.Helper()
	b := pack.Append(nil, &message, fields)
	var got T
	if err := pack.Decode(b, &got, fields); err != nil || !reflect.DeepEqual(got, message) {
		t.Errorf("got %+v, %v, want %+v", got, err, message)
	}
	if err := pack.Decode(b[:len(b)-1], new(T), fields); !errors.Is(err, pack.ErrMalformed) {
		t.Errorf("a cut message: %v", err)
	}
}

// FuzzSpec checks that a decoded start has a program.
func FuzzSpec(f *testing.F) {
	f.Add(pack.Append(nil, &Spec{Argv: []string{"true"}, User: &Credential{}}, packSpec))
	f.Fuzz(func(t *testing.T, input []byte) {
		var s Spec
		if err := pack.Decode(input, &s, packSpec); err == nil && len(s.Argv) == 0 {
			t.Error("a start without argv")
		}
	})
}

// FuzzExit decodes messages of a supervisor, which a tool that is root may control.
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
