package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet(string) {}

func TestSerialRunsEveryWayInEveryRound(t *testing.T) {
	const rounds = 40
	var order []string
	commands := []command{runTrue, runTool}
	note := func(name string) runner {
		return func(context.Context, command) error { order = append(order, name); return nil }
	}
	ws := []method{{name: "a", calls: 3, run: note("a")}, {name: "b", calls: 1, run: note("b")}}
	r, err := serial(t.Context(), ws, commands, rounds, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws {
		for _, c := range commands {
			if s := r.of(w.name, c); s.count() != rounds*w.calls || len(s.rounds) != rounds {
				t.Errorf("%s %q: %d calls in %d rounds", w.name, c.argv, s.count(), len(s.rounds))
			}
		}
	}
	// In each round both ways ran all of their calls: 3 and the uncounted one, and 1, for each
	// command.
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
	w := method{name: "w", calls: 5, run: func(context.Context, command) error {
		if calls.Add(1) >= 3 {
			return broken
		}
		return nil
	}}
	if _, err := serial(t.Context(), []method{w}, []command{runTrue}, 2, quiet); !errors.Is(err,
		broken) || calls.Load() != 3 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	calls.Store(0)
	if err := new(concurrentRun).run(t.Context(), w, runTrue, 4, 100); !errors.Is(err, broken) ||
		calls.Load() > 3+4 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

// TestTogetherKeepsCallersAtOnce: every call waits for a second caller, so it ends only if two are
// there at once.
func TestTogetherKeepsCallersAtOnce(t *testing.T) {
	meet := make(chan struct{})
	w := method{name: "w", run: func(context.Context, command) error {
		select {
		case meet <- struct{}{}:
		case <-meet:
		}
		return nil
	}}
	c := &concurrentRun{}
	err := c.run(t.Context(), w, runTrue, 2, 100)
	if err != nil || c.count() != 100 || c.rate() <= 0 {
		t.Errorf("%d calls, %v a second, %v", c.count(), c.rate(), err)
	}
}

func TestParallelRunsWhoTakesPart(t *testing.T) {
	var calls [3]atomic.Int64
	count := func(i int) runner {
		return func(context.Context, command) error { calls[i].Add(1); return nil }
	}
	ws := []method{
		{name: "fast", concurrentCalls: map[int]int{8: 20, 32: 40}, run: count(0)},
		{name: "slow", concurrentCalls: map[int]int{8: 10}, singleRound: true, run: count(1)},
		{name: "alone", calls: 5, run: count(2)},
	}
	all, err := parallel(t.Context(), ws, []command{runTrue, runSleep}, 3, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got := [3]int64{calls[0].Load(), calls[1].Load(), calls[2].Load()}; got != [3]int64{
		3 * 2 * 60,
		2 * 10, 0,
	} {
		t.Errorf("the ways were called %v times", got)
	}
	if c := all.of(8, runSleep, "fast"); c.count() != 60 || len(c.rounds) != 3 || c.rate() <= 0 {
		t.Errorf("8 at once: %d calls in %d rounds, %v a second", c.count(), len(c.rounds), c.rate())
	}
	if c := all.of(32, runSleep, "slow"); c != nil || c.rate() != 0 {
		t.Errorf("who took no part has %v", c)
	}
}

// TestDuringKeepsWhatEndedBefore: the third call ends after the flood, so it is not one of those
// beside it.
func TestDuringKeepsWhatEndedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		flood := func(context.Context) error { <-end; return nil }
		var calls int
		call := func(context.Context, command) error {
			if calls++; calls == 3 {
				close(end)
				synctest.Wait()
			}
			return nil
		}
		times, err := callsDuring(t.Context(), call, flood)
		if err != nil || len(times) != 2 {
			t.Errorf("%d calls, %v", len(times), err)
		}
	})
}

func TestDuringTellsTheFloodsFailure(t *testing.T) {
	broken := errors.New("broken")
	flood := func(context.Context) error { return broken }
	call := func(context.Context, command) error { return errors.New("no daemon any more") }
	if _, err := callsDuring(t.Context(), call, flood); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestExpect(t *testing.T) {
	if err := expect(runTool, 0, "hi\n"); err != nil {
		t.Error(err)
	}
	for _, got := range []struct {
		code   int
		stdout string
	}{{1, "hi\n"}, {0, "hi"}, {0, ""}} {
		if err := expect(runTool, got.code, got.stdout); err == nil {
			t.Errorf("%+v counts as a call", got)
		}
	}
}
