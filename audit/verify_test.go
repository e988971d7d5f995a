package audit

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// mustVerify verifies the log of a closed or open store.
func mustVerify(t testing.TB, opts Options, checkpoint []byte) Report {
	t.Helper()
	report, err := Verify(context.Background(), VerifyOptions{
		Path: opts.Path, CapturesDir: opts.CapturesDir, Checkpoint: checkpoint,
	})
	must(t, err)
	return report
}

func checkNoFindings(t *testing.T, report Report) {
	t.Helper()
	if !report.OK || len(report.Findings) > 0 {
		text, _ := json.MarshalIndent(report, "", "  ")
		t.Errorf("%s", text)
	}
}

// A log with something of every kind verifies, while it is written and when it is closed (AU-06).
func TestVerifySamples(t *testing.T) {
	opts := options(t.TempDir())
	recordSamples(t, opts)
	s, _ := reopen(t, opts)
	beginOnly(t, s)
	signed, err := s.Checkpoint(context.Background())
	must(t, err)
	recordCalls(t, s, 2)
	report := mustVerify(t, opts, signed)
	checkNoFindings(t, report)
	if c := openCheckpoint(t, s); report.Events != c.Size || report.Root != c.Root.String() ||
		report.Checkpoints < 2 || report.Captures == 0 {
		t.Errorf("%+v", report)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkNoFindings(t, mustVerify(t, opts, signed))
}

// Logs of all versions verify after their migration (AU-04, AU-06).
func TestVerifyDumps(t *testing.T) {
	for _, dir := range dumpDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			opts, _ := restoreDump(t, dir)
			s, _ := reopen(t, opts)
			checkNoFindings(t, mustVerify(t, opts, nil))
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkNoFindings(t, mustVerify(t, opts, nil))
		})
	}
}

// Events that are compared in several batches, and nodes, verify too.
func TestVerifyManyEvents(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	first := beginOnly(t, s)
	recordCalls(t, s, verifyBatch)
	inv := newInvocation("exec")
	inv.ID = first
	end, err := s.endEvent(inv, dray.NormalizeResult(exited(1), nil))
	if err == nil {
		err = s.submit(context.Background(), end)
	}
	must(t, err)
	report := mustVerify(t, opts, nil)
	checkNoFindings(t, report)
	if report.Events != 2*verifyBatch+2 {
		t.Errorf("%d events", report.Events)
	}
}

// What retention has removed is no finding, and the rest of those events is still verified (AU-06).
func TestVerifyAfterRetention(t *testing.T) {
	opts := options(t.TempDir())
	recordSamples(t, opts)
	s := open(t, opts)
	signed, err := s.Checkpoint(t.Context())
	if err == nil {
		_, err = s.Prune(t.Context(), PruneOptions{Before: time.Now()})
	}
	must(t, err)
	recordCalls(t, s, 2)
	report := mustVerify(t, opts, signed)
	checkNoFindings(t, report)
	if report.Pruned == 0 || report.Checkpoints < 2 {
		t.Errorf("%+v", report)
	}
	mustExec(t, rawDB(t, opts.Path), `DROP TRIGGER events_no_update;
		UPDATE events SET at = at + 1 WHERE seq = 1`)
	if mustVerify(t, opts, signed).OK {
		t.Error("a pruned event was changed, and verify found nothing")
	}
}

// A verification ends when its context does, and finds nothing by that (AU-06).
func TestVerifyIsCancelled(t *testing.T) {
	opts := options(t.TempDir())
	recordCalls(t, open(t, opts), 2*verifyBatch)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	report, err := Verify(ctx, VerifyOptions{
		Path: opts.Path, CapturesDir: opts.CapturesDir,
		Progress: func(done, _ int64) {
			if done > verifyBatch {
				t.Errorf("%d events were read after the cancellation", done)
			}
			cancel()
		},
	})
	if !errors.Is(err, context.Canceled) || len(report.Findings) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// Each page of the file that is overwritten is a finding, whatever it has; a free page has nothing
// (AU-06).
func TestVerifyDamagedPages(t *testing.T) {
	opts := options(t.TempDir())
	recordSamples(t, opts)
	db := rawDB(t, opts.Path)
	free := scan[int](t, db, `PRAGMA freelist_count`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, unnoticed := readFile(t, opts.Path), 0
	for at := 0; at < len(file); at += pageSize {
		writeFile(t, opts.Path, file[:at]+badPage+file[at+pageSize:])
		report, err := Verify(t.Context(), VerifyOptions{Path: opts.Path, CapturesDir: opts.CapturesDir})
		if err != nil {
			t.Errorf("page %d: %v", at/pageSize+1, err)
		}
		if report.OK {
			unnoticed++
		}
	}
	if unnoticed > free {
		t.Errorf("%d pages are not found, %d are free", unnoticed, free)
	}
}
