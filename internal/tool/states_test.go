package tool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
)

// A disabled tool is found and not run. A call that was accepted before is denied when it starts
// (RT-06).
func TestStates(t *testing.T) {
	var saved []StateChange
	states := NewStates([]string{"old"}, func(_ context.Context, c StateChange) error {
		saved = append(saved, c)
		return nil
	})
	b := newFixture(t, command("hello", "echo hello"), command("old", "echo old"))
	b.tools.States = states
	accepted, err := b.tools.Get(t.Context(), "hello")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing changes
		if err := b.tools.SetState(t.Context(), "uid:1", "hello", Disabled); err != nil {
			t.Fatal(err)
		}
	}
	failedWith(t, b.call(t, "hello", `{}`), dray.CodeDenied)
	failedWith(t, b.call(t, "old", `{}`), dray.CodeDenied)
	_, err = accepted.Run(t.Context(), dray.Call{Tool: accepted, Environment: b.env}, dray.Discard)
	if dray.CodeOf(err) != dray.CodeDenied {
		t.Errorf("the accepted call: %v", err)
	}
	if state, reason := b.tools.State(t.Context(), "hello"); state != Disabled || reason == nil {
		t.Errorf("the disabled tool is %s, %v", state, reason)
	}
	if err := states.Set(t.Context(), "uid:1", "hello", Active); err != nil {
		t.Fatal(err)
	}
	succeeded(t, b.call(t, "hello", `{}`))
	if len(saved) != 2 || !slices.Equal(saved[0].Disabled, []string{"hello", "old"}) ||
		!slices.Equal(saved[1].Disabled, []string{"old"}) || saved[0].Principal != "uid:1" {
		t.Errorf("saved %+v", saved)
	}
}

// A disabled sync is denied by its own endpoint too.
func TestStates_Sync(t *testing.T) {
	r := registryWith(t, Options{States: NewStates([]string{"sync"}, nil)})
	if _, _, err := r.Sync(SyncInput{Paths: []string{"/tmp/x"}}); dray.CodeOf(err) != dray.CodeDenied {
		t.Errorf("got %v", err)
	}
}

// A change that cannot be recorded does not apply.
func TestStates_Unrecorded(t *testing.T) {
	failure := errors.New("full")
	states := NewStates(nil, func(context.Context, StateChange) error { return failure })
	if err := states.Set(t.Context(), "uid:1", "x", Disabled); !errors.Is(err, failure) ||
		states.Of("x") != Active {
		t.Errorf("got %v, and the tool is %s", err, states.Of("x"))
	}
}

// States change while calls run (RT-06).
func TestStates_Concurrent(t *testing.T) {
	states := NewStates(nil, func(context.Context, StateChange) error { return nil })
	r := registryWith(t, Options{States: states}, command("x", ""))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				state := []State{Active, Disabled}[i%2]
				if err := r.SetState(t.Context(), "uid:1", "x", state); err != nil {
					t.Error(err)
				}
				if _, err := r.Get(t.Context(), "x"); err != nil && dray.CodeOf(err) != dray.CodeDenied {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
