package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// following collects the calls of a Follow in a goroutine.
type following struct {
	ended   chan string
	waiting chan struct{}
	last    int64
}

func (f *following) Followed(seq int64, rec dray.Record) error {
	if seq <= f.last {
		return errors.New("out of order")
	}
	f.last = seq
	id := rec.ID
	if rec.EndedAt == nil {
		id = "begun " + id
	}
	f.ended <- id
	return nil
}

func (f *following) Waiting() error {
	select {
	case f.waiting <- struct{}{}:
	default:
	}
	return nil
}

// Calls are followed as they end, each once, also over a restart from the last event (AU-08).
func TestFollow(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	record(t, s, 0, newInvocation("exec"), exited(0))
	after, err := s.LastSeq(t.Context())
	must(t, err)
	f := &following{ended: make(chan string), waiting: make(chan struct{}, 1)}
	follow := func(s *Store) (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Follow(ctx, FollowQuery{Query: Query{Tool: "exec"}, After: max(after, f.last)}, f) }()
		<-f.waiting
		return func() error { cancel(); return <-done }
	}
	stop := follow(s)
	var want []string
	expect := func() {
		t.Helper()
		for i, id := range want {
			if got := <-f.ended; got != id {
				t.Errorf("call %d is %s, want %s", i, got, id)
			}
		}
		want = nil
	}
	record(t, s, 1, newInvocation("shell"), exited(0))
	want = append(want, record(t, s, 2, newInvocation("exec"), exited(1)))
	expect()
	begun := beginOnly(t, s) // of the tool shell
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow returns %v", err)
	}
	inv := newInvocation("exec")
	_, err = s.begin(t.Context(), dray.Call{Invocation: inv}, epoch)
	must(t, err)
	want = append(want, record(t, s, 3, newInvocation("exec"), exited(0)), inv.ID)
	must(t, s.Close(t.Context()))
	s, interrupted := reopen(t, opts)
	if interrupted != 2 || begun == "" {
		t.Errorf("%d calls were interrupted", interrupted)
	}
	go func() { f.waiting <- struct{}{} }() // the calls come before the first wait
	stop = follow(s)
	expect()
	for range 2*followAtOnce/100 + 5 {
		want = append(want, record(t, s, 4, newInvocation("exec"), exited(0)))
		expect()
	}
	_ = stop()
}

// Calls are followed as they begin too, if asked for; of one that has ended only the end (AU-08).
func TestFollowBegins(t *testing.T) {
	s := open(t, options(t.TempDir()))
	record(t, s, 0, newInvocation("shell"), exited(0))
	ended := record(t, s, 1, newInvocation("exec"), exited(0))
	inv := newInvocation("exec")
	_, err := s.begin(t.Context(), dray.Call{Invocation: inv}, epoch)
	must(t, err)
	f := &following{ended: make(chan string), waiting: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Follow(ctx, FollowQuery{Query: Query{Tool: "exec"}, Begun: true}, f)
	}()
	for _, want := range []string{ended, "begun " + inv.ID} {
		if got := <-f.ended; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow returns %v", err)
	}
}

// A follower reads the events after its own, and no others (AU-08).
func TestFollowReadsNewEventsOnly(t *testing.T) {
	s := open(t, options(t.TempDir()))
	plan := queryPlan(t, s, FollowQuery{Query: Query{Tool: "x", Workspace: "y", Text: "z"}, Begun: true}.events(5, 9))
	lines := strings.Split(plan, "\n")
	if !strings.HasPrefix(lines[0], "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)") ||
		slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "SCAN i") }) ||
		strings.Contains(plan, "TEMP B-TREE") {
		t.Error(plan)
	}
}
