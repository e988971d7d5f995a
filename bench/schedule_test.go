package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet(string) {}

func TestSerialRunsEveryWayInEveryRound(t *testing.T) {
	const rounds = 40
	var order []string
	note := func(name string) func(context.Context, command) error {
		return func(context.Context, command) error { order = append(order, name); return nil }
	}
	ws := []way{{name: "a", calls: 3, run: note("a")}, {name: "b", calls: 1, run: note("b")}}
	r, err := serial(t.Context(), ws, rounds, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws {
		for _, c := range commands {
			if s := r.of(w, c); s.count() != rounds*w.calls || len(s.rounds) != rounds {
				t.Errorf("%s %q: %d calls in %d rounds", w.name, c.argv, s.count(), len(s.rounds))
			}
		}
	}
	// In each round both ways ran all of their calls: 3 and the uncounted one, and 1, for each command.
	perRound := len(commands) * (4 + 1)
	firsts := map[string]bool{}
	for i := 0; i < len(order); i += perRound {
		text := strings.Join(order[i:i+perRound], "")
		if strings.Count(text, "a") != len(commands)*4 {
			t.Errorf("a round ran %s", text)
		}
		firsts[order[i]] = true
	}
	if len(firsts) != len(ws) {
		t.Errorf("the order is the same in all rounds: %v begins", firsts)
	}
}

func TestTheFirstFailureEndsTheRun(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int64
	w := way{name: "w", calls: 5, run: func(context.Context, command) error {
		if calls.Add(1) >= 3 {
			return broken
		}
		return nil
	}}
	if _, err := serial(t.Context(), []way{w}, 2, quiet); !errors.Is(err, broken) || calls.Load() != 3 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	calls.Store(0)
	if _, err := together(t.Context(), w, commands[0], 4, 100); !errors.Is(err, broken) || calls.Load() > 3+4 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

// TestTogetherKeepsCallersAtOnce: every call waits for a second caller, so it ends only if two are there at once.
func TestTogetherKeepsCallersAtOnce(t *testing.T) {
	meet := make(chan struct{})
	w := way{name: "w", run: func(context.Context, command) error {
		select {
		case meet <- struct{}{}:
		case <-meet:
		}
		return nil
	}}
	c, err := together(t.Context(), w, commands[0], 2, 100)
	if err != nil || c.count() != 100 || c.rate() <= 0 {
		t.Errorf("%d calls, %v a second, %v", c.count(), c.rate(), err)
	}
}

func TestExpect(t *testing.T) {
	echo := commands[1]
	if err := expect(echo, 0, "hi\n"); err != nil {
		t.Error(err)
	}
	for _, got := range []struct {
		code   int
		stdout string
	}{{1, "hi\n"}, {0, "hi"}, {0, ""}} {
		if err := expect(echo, got.code, got.stdout); err == nil {
			t.Errorf("%+v counts as a call", got)
		}
	}
}
