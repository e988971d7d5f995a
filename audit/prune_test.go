package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

func prune(t *testing.T, s *Store, before time.Time) PruneReport {
	t.Helper()
	report, err := s.Prune(context.Background(), PruneOptions{Before: before, Principal: "uid:0"})
	must(t, err)
	return report
}

// checkPruned checks that each event has a body or its hash, that both fit the leaf, that bodies
// are missing exactly up to an event, and that calls have a row exactly after it.
func checkPruned(t *testing.T, s *Store, last int64) {
	t.Helper()
	checkLeaves(t, s.read)
	for query, want := range map[string]int64{
		// Contiguous from 1, with bodies exactly after the event and in the events `pruned`.
		`SELECT count(*) - max(seq) + 0 * ? FROM events`: 0,
		`SELECT count(*) FROM events
			WHERE (body IS NULL) <> (seq <= ? AND kind <> 'pruned')`: 0,
		`SELECT count(*) FROM invocations WHERE seq <= ?`:     0,
		`SELECT count(*) FROM changed_files WHERE seq <= ?`:   0,
		`SELECT coalesce(max(last_seq), 0) - ? FROM prunings`: 0,
		`SELECT count(*) FROM events e WHERE kind = 'begun' AND seq > ?
			AND NOT EXISTS (SELECT 1 FROM invocations i WHERE i.seq = e.seq)`: 0,
	} {
		if got := scan[int64](t, s.read, query, last); got != want {
			t.Errorf("%s\nreturns %d", query, got)
		}
	}
}

// Progress is reported of what was removed so far (AU-08).
func TestPruneReportsProgress(t *testing.T) {
	s := open(t, options(t.TempDir()))
	start := time.Now().Add(-time.Hour)
	generate(t, s, progressBatches*pruneBatch/2+1, start, time.Millisecond)
	var told []Pruning
	report, err := s.Prune(context.Background(), PruneOptions{
		Before: time.Now(), Progress: func(p Pruning) { told = append(told, p) },
	})
	must(t, err)
	if len(told) != 1 || told[0].Events != progressBatches*pruneBatch ||
		report.Events != told[0].Events+2 {
		t.Errorf("told %+v of %+v", told, report)
	}
}

// Expired records are removed, with the files that only they used; hashes stay, later records are
// untouched, and an event says what was removed (AU-08).
func TestPrune(t *testing.T) {
	s := open(t, options(t.TempDir()))
	long := exited(0)
	long.Output = longJSON(maxInline + 1)
	shared := newInvocation("exec")
	shared.Input = longJSON(maxInline + 2)
	run(t, s, shared, long)
	old := newInvocation("sync")
	run(t, s, old, synced(maxInlineEntries+1))
	if err := s.RecordEvent(context.Background(), &ToolChanged{Tool: "x"}); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	kept := newInvocation("exec")
	kept.Input = shared.Input
	run(t, s, kept, synced(2))
	want := get(t, s, kept.ID)
	unused(t, s)

	dry, err := s.Prune(context.Background(), PruneOptions{Before: cut, DryRun: true})
	must(t, err)
	checkPruned(t, s, 0)
	report := prune(t, s, cut)
	dry.Principal = report.Principal
	if dry.Pruning != report.Pruning || report.Events != 5 || report.Calls != 2 || report.First != 1 ||
		report.Last != 5 || report.Bytes == 0 || report.HeldBy != "" {
		t.Errorf("Prune returns %+v after a dry run with %+v", report, dry)
	}
	if report.Files != 2 || report.FileBytes < maxInline {
		t.Errorf("%d files with %d bytes were removed, want an output and a list", report.Files,
			report.FileBytes)
	}
	checkPruned(t, s, 5)
	if got := get(t, s, kept.ID); !sameRecord(got, want) {
		t.Errorf("the later call is %+v, want %+v", got, want)
	}
	if got := scan[string](t, s.read, `SELECT body FROM events WHERE kind = 'pruned'`); !strings.Contains(
		got, `{"first":1,"last":5,"before":"`) || !strings.Contains(got, `"principal":"uid:0"`) {
		t.Errorf("the event is %s", got)
	}
	opts := Options{Path: s.path, CapturesDir: s.blobs.dir}
	checkNoFindings(t, mustVerify(t, opts, nil))
	// A second run finds nothing, and writes nothing.
	if again := prune(t, s, cut); again.Events != 0 || again.Files != 0 {
		t.Errorf("again: %+v", again)
	}
	if got := scan[int](t, s.read, `SELECT count(*) FROM events`); got != 8 {
		t.Errorf("%d events, want 8", got)
	}
}

// unused makes the files of all records look as if they were used long ago.
func unused(t *testing.T, s *Store) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.blobs.dir, "*"))
	must(t, err)
	long := time.Now().Add(-2 * usedFor)
	for _, name := range names {
		if err := os.Chtimes(name, long, long); err != nil {
			t.Fatal(err)
		}
	}
}

// A call that still runs, or ended later, is not touched, nor is what follows its begin record.
// When it has expired, the next run goes on from there (AU-08).
func TestPruneStopsAtUnexpiredCall(t *testing.T) {
	s := open(t, options(t.TempDir()))
	run(t, s, newInvocation("exec"), exited(0))
	inv := newInvocation("exec")
	var during PruneReport
	next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		run(t, s, newInvocation("exec"), exited(0))
		during = prune(t, s, time.Now())
		return exited(0), nil
	})
	if _, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv},
		dray.Discard); err != nil {
		t.Fatal(err)
	}
	if during.HeldBy != inv.ID || during.Last != 2 {
		t.Errorf("while the call ran: %+v", during)
	}
	checkPruned(t, s, 2)
	if rec := get(t, s, inv.ID); len(rec.Metadata.Warnings) > 0 || rec.Status != dray.StatusSucceeded {
		t.Errorf("the call that ran is %+v", rec)
	}
	if after := prune(t, s, time.Now()); after.First != 3 || after.Calls != 2 || after.HeldBy != "" {
		t.Errorf("when it had ended: %+v", after)
	}
}

// Get of a removed call says that it was removed; a call that never was is only unknown.
func TestPrunedCallIsNotFound(t *testing.T) {
	s := open(t, options(t.TempDir()))
	inv := newInvocation("exec")
	run(t, s, inv, exited(0))
	const later = "fffffffe-0000-7000-8000-000000000001"
	check := func(id, message string) {
		t.Helper()
		_, err := s.Get(context.Background(), "", id)
		if codeOf(err) != dray.CodeNotFound || strings.Contains(err.Error(), "removed") != (message != "") {
			t.Errorf("Get(%s) returns %v", id, err)
		}
	}
	check("00"+inv.ID[2:], "")
	prune(t, s, time.Now())
	check(inv.ID, "removed")
	check(later, "")
	check("x", "")
}

func TestPruneRefusesTheFuture(t *testing.T) {
	s := open(t, options(t.TempDir()))
	_, err := s.Prune(context.Background(), PruneOptions{Before: time.Now().Add(time.Hour)})
	if codeOf(err) != dray.CodeInvalidRequest {
		t.Errorf("Prune returns %v", err)
	}
}

// Many batches are removed while calls are made; each call is recorded, and the space of the
// removed records is used again (AU-08).
func TestPruneWhileCallsRun(t *testing.T) {
	s := open(t, options(t.TempDir()))
	const old = 4*pruneBatch + 7
	generate(t, s, old, time.Now().Add(-time.Hour), time.Millisecond)
	cut := time.Now()
	pages := scan[int](t, s.read, `PRAGMA page_count`)
	done := make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	for range 4 {
		callers.Go(func() {
			for running := true; running; {
				select {
				case <-done:
					running = false // one more
				default:
				}
				inv := newInvocation("exec")
				run(t, s, inv, exited(0))
				mu.Lock()
				ids = append(ids, inv.ID)
				mu.Unlock()
			}
		})
	}
	report := prune(t, s, cut)
	close(done)
	callers.Wait()
	if report.Events != 2*old || report.Calls != old || report.Last != 2*old {
		t.Errorf("Prune returns %+v", report)
	}
	checkPruned(t, s, 2*old)
	for _, id := range ids {
		if rec := get(t, s, id); rec.Status != dray.StatusSucceeded {
			t.Errorf("a call meanwhile is %+v", rec)
		}
	}
	if got := scan[int](t, s.read, `SELECT count(*) FROM prunings`); got != 9 {
		t.Errorf("%d transactions, want 9", got)
	}
	free := scan[int](t, s.read, `PRAGMA freelist_count`)
	if free < pages/2 {
		t.Errorf("of %d pages, %d are free again", pages, free)
	}
	generate(t, s, old/4, time.Now().Add(-time.Minute), time.Millisecond)
	if now := scan[int](t, s.read, `PRAGMA freelist_count`); now >= free {
		t.Errorf("%d pages were free, and are %d after more calls", free, now)
	}
}

// A process that is killed while it prunes leaves a range that its events name, and the next run
// goes on after it.
func TestPruneGoesOnAfterCancel(t *testing.T) {
	s := open(t, options(t.TempDir()))
	generate(t, s, pruneBatch, time.Now().Add(-time.Hour), time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Prune(ctx, PruneOptions{Before: time.Now()})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Prune returns %v", err)
	}
	checkPruned(t, s, 0)
	batch, err := s.findExpired(context.Background(), 0, time.Now())
	if err == nil {
		batch.Before = time.Now()
		err = s.removeExpired(context.Background(), batch)
	}
	must(t, err)
	checkPruned(t, s, pruneBatch)
	// The same range again fails, because it has no bodies.
	if err := s.removeExpired(context.Background(), batch); err == nil {
		t.Error("a range was removed twice")
	}
	prune(t, s, time.Now())
	checkPruned(t, s, 2*pruneBatch)
}

// A file that a call is about to refer to is not removed, nor is any while a backup runs.
func TestPruneKeepsFilesInUse(t *testing.T) {
	s := open(t, options(t.TempDir()))
	ref, err := s.blobs.put(longJSON(maxInline + 1))
	must(t, err)
	if report := prune(t, s, time.Now()); report.Files != 0 {
		t.Error("a file that was written just now is removed")
	}
	unused(t, s)
	if _, err := s.blobs.put(longJSON(maxInline + 1)); err != nil {
		t.Fatal(err)
	}
	if report := prune(t, s, time.Now()); report.Files != 0 {
		t.Error("a file that was used again just now is removed")
	}
	unused(t, s)
	output := filepath.Join(s.blobs.dir, ref.SHA256+".stdout")
	writeFile(t, output, "the output of a call")
	if report := prune(t, s, time.Now()); report.Files != 1 || report.FileBytes != ref.Bytes {
		t.Errorf("an unused file is not removed: %+v", report)
	}
	names, err := filepath.Glob(filepath.Join(s.blobs.dir, "*"))
	if err != nil || !slices.Equal(names, []string{output}) {
		t.Errorf("the directory has %q, %v", names, err)
	}
}
