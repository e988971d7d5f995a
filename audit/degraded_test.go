package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// degrading returns options with which calls run while the log cannot be written.
func degrading(dir string) Options {
	opts := impatient(dir)
	opts.Degrade = true
	return opts
}

// outages make writes fail until the returned function is called.
var outages = map[string]func(t *testing.T, s *Store) (remove func()){
	"locked": func(t *testing.T, s *Store) func() { return lockDatabase(t, s.path) },
	"disk full": func(t *testing.T, s *Store) func() {
		filler := fillDisk(t, filepath.Dir(s.path), 0)
		for s.disk.release() { // other programs fill the reserve too
			more, err := os.OpenFile(filler, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			for block := make([]byte, 4096); err == nil; {
				_, err = more.Write(block)
			}
			must(t, more.Close())
		}
		return func() { must(t, os.Remove(filler)) }
	},
	"moved": func(t *testing.T, s *Store) func() { return displacements["moved"](t, s.path) },
}

// With degrade calls run while the log cannot be written: their results have a warning, and their
// records are committed in order when it can be, with an event for the gap (AU-01).
func TestDegradeRecordsLater(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			dir := mountSmall(t, "16m")
			s := open(t, degrading(dir))
			remove := outage(t, s)
			var ids []string
			for i := range 30 {
				inv, res := newInvocation("exec"), exited(i)
				res.Stdout.Text = strings.Repeat("x", 4<<10) // needs space
				got := run(t, s, inv, res)
				if w := fmt.Sprint(got.Metadata.Warnings); i > 20 && (!strings.Contains(w, "begin record") ||
					!strings.Contains(w, "end record")) {
					t.Fatalf("call %d has the warnings %s", i, w)
				}
				ids = append(ids, inv.ID)
			}
			if warnings := s.Warnings(t.Context()); len(warnings) != 1 ||
				warnings[0].Code != dray.CodeAuditUnavailable {
				t.Errorf("the warnings are %v", warnings)
			}
			must(t, s.Ready(t.Context()))
			remove()
			for len(events(t, s, EventQuery{Kind: "degraded"})) == 0 {
				must(t, t.Context().Err())
			}
			run(t, s, newInvocation("exec"), exited(0)) // behind the others in the queue
			checkLate(t, s, ids)
		})
	}
}

// checkLate checks that calls are recorded in order, and that an event says how many were late.
func checkLate(t *testing.T, s *Store, ids []string) {
	t.Helper()
	for i, id := range ids {
		if rec := get(t, s, id); rec.ExitCode == nil || *rec.ExitCode != i {
			t.Errorf("call %d is recorded as %+v", i, rec.Error)
		}
	}
	last := get(t, s, ids[len(ids)-1])
	if !strings.Contains(fmt.Sprint(last.Metadata.Warnings), "begin record") {
		t.Errorf("the record has the warnings %v", last.Metadata.Warnings)
	}
	var gap RecordsDelayed
	must(t, json.Unmarshal(events(t, s, EventQuery{Kind: "degraded"})[0].Body, &gap))
	if gap.Calls == 0 || gap.Cause == "" || gap.Until.Before(gap.Since) {
		t.Errorf("the event is %+v", gap)
	}
	checkLog(t, s)
}

// A call with an idempotency key does not run without a committed record, and neither does one
// beyond the bound of the queue (AU-01, RE-01).
func TestDegradeRefuses(t *testing.T) {
	opts := degrading(t.TempDir())
	s := open(t, opts)
	unlock := lockDatabase(t, opts.Path)
	claim := &dray.Idempotency{Key: "k"}
	_, err := s.begin(t.Context(), dray.Call{Invocation: newInvocation("exec"), Idempotency: claim}, epoch)
	if codeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("a call with a key: %v", err)
	}
	for i := range maxLate {
		if _, err := s.begin(t.Context(), dray.Call{Invocation: newInvocation("exec")}, epoch); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	_ = refused(t, s, newInvocation("exec"))
	unlock()
	for s.writable(t.Context()) != nil {
		must(t, t.Context().Err())
	}
	run(t, s, newInvocation("exec"), exited(0))
}

// If the process ends before, late records are lost, and nothing else (AU-01).
func TestLateRecordsAreLostWithTheProcess(t *testing.T) {
	opts := degrading(t.TempDir())
	s, _ := reopen(t, opts)
	before, lost := newInvocation("exec"), newInvocation("exec")
	run(t, s, before, exited(0))
	unlock := lockDatabase(t, opts.Path)
	run(t, s, lost, exited(0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err == nil {
		t.Error("Close does not say that records were lost")
	}
	unlock()
	s, found := reopen(t, opts)
	if _, err := s.Get(t.Context(), "", lost.ID); found != 0 || codeOf(err) != dray.CodeNotFound {
		t.Errorf("%d interrupted, Get returns %v", found, err)
	}
	_ = get(t, s, before.ID)
	checkLog(t, s)
}
