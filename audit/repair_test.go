package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

func mustRepair(t *testing.T, opts Options) Repair {
	t.Helper()
	done, err := RepairLog(context.Background(), VerifyOptions{
		Path: opts.Path, CapturesDir: opts.CapturesDir,
	})
	must(t, err)
	return done
}

// Every column of every computed table is compared, and repaired from the events (AU-05, AU-06).
func TestEditedColumnsAreFoundAndRepaired(t *testing.T) {
	dir, _ := newClosedLog(t)
	l := copyLog(t, dir)
	l.dropTriggers(t)
	want := map[string]int{}
	for _, c := range texts(t, l.db, `SELECT m.name || '.' || c.name || ' ' || c.type
		FROM sqlite_schema m, pragma_table_info(m.name) c WHERE c.pk = 0 AND m.type = 'table'
		AND m.name IN ('invocations', 'changed_files', 'prunings')`) {
		name, kind, _ := strings.Cut(c, " ")
		table, column, _ := strings.Cut(name, ".")
		value := map[string]string{"TEXT": `'edited'`, "INTEGER": "7654321"}[kind]
		l.exec(t, fmt.Sprintf(`UPDATE %s SET %s = %s WHERE seq = (SELECT max(seq) FROM %[1]s
			WHERE seq < 40)`, table, column, value))
		if scan[int](t, l.db, `SELECT count(*) FROM `+table+` WHERE seq < 40`) > 0 {
			want[name]++
		}
	}
	l.close()
	for _, f := range mustVerify(t, l.opts, nil).Findings {
		if f.Seq == 0 || f.Got == "" && f.Kind == FindingProjection {
			t.Errorf("a finding that names nothing: %+v", f)
		}
		delete(want, f.Column)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	done := mustRepair(t, l.opts)
	checkNoFindings(t, done.After)
	if info, err := os.Stat(done.Backup); err != nil || info.Mode().Perm() != 0o600 || done.Before.OK {
		t.Errorf("the copy: %v, %v", info, err)
	}
}

// Repair corrects rows, and never events or what follows from an event that was changed (AU-05).
func TestRepair(t *testing.T) {
	repairable := map[string]bool{}
	for _, name := range []string{
		"a row deleted", "a row invented", "a row of no event invented", "a column of a row edited",
		"a changed file edited", "a changed file deleted", "a changed file invented",
		"a hash of the Merkle log edited", "a hash of the Merkle log deleted",
		"an index that hides a row",
	} {
		repairable[name] = true
	}
	dir, checkpoint := newClosedLog(t)
	for _, tt := range tamperings {
		if !tt.alone {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			l := copyLog(t, dir)
			l.dropTriggers(t)
			tt.change(t, l)
			l.close()
			const events = `SELECT concat_ws('|', seq, invocation, kind, at, body, hex(leaf)) FROM events`
			readable := !strings.Contains(tt.name, "page")
			var before []string
			if readable {
				before = texts(t, rawDB(t, l.opts.Path), events)
			}
			if !readable { // refused as a whole: only a backup helps
				_, err := RepairLog(context.Background(), VerifyOptions{
					Path: l.opts.Path, CapturesDir: l.opts.CapturesDir,
				})
				if codeOf(err) != dray.CodeAuditUnavailable || dray.AsError(err).Hint == "" {
					t.Error(err)
				}
				return
			}
			done := mustRepair(t, l.opts)
			if done.After.OK != repairable[tt.name] {
				t.Errorf("repaired: %v: %+v", done.After.OK, done.After.Findings)
			}
			if repairable[tt.name] {
				checkNoFindings(t, mustVerify(t, l.opts, checkpoint))
			}
			if strings.Join(texts(t, rawDB(t, l.opts.Path), events), "\n") !=
				strings.Join(before, "\n") {
				t.Error("the events were changed")
			}
		})
	}
}

// Repair refuses a log that a daemon has open.
func TestRepairNeedsTheLock(t *testing.T) {
	opts := options(t.TempDir())
	open(t, opts)
	_, err := RepairLog(context.Background(), VerifyOptions{Path: opts.Path, CapturesDir: opts.CapturesDir})
	if codeOf(err) != dray.CodeAuditUnavailable || !strings.Contains(err.Error(), "has it open") {
		t.Error(err)
	}
}

// After a new key, the log opens again, and what the old key signed verifies with its public key
// (AU-06).
func TestReplaceKey(t *testing.T) {
	for name, damage := range keyDamage {
		t.Run(name, func(t *testing.T) {
			opts := options(t.TempDir())
			s, _ := reopen(t, opts)
			recordCalls(t, s, 1)
			old := s.Key()
			signed, err := s.Checkpoint(context.Background())
			if err == nil {
				err = s.Close(context.Background())
			}
			if err == nil {
				err = damage.change(filesOf(opts.Path))
			}
			must(t, err)
			public, previous, err := ReplaceKey(context.Background(), opts.Path)
			if err != nil || public.String() == old.String() ||
				!strings.HasPrefix(previous, filesOf(opts.Path).keysDir) {
				t.Fatal(public, previous, err)
			}
			s, _ = reopen(t, opts)
			if s.Key().String() != public.String() {
				t.Error("another key is used")
			}
			report, err := Verify(context.Background(), VerifyOptions{
				Path: opts.Path, CapturesDir: opts.CapturesDir, Checkpoint: signed, Key: &old,
			})
			must(t, err)
			checkNoFindings(t, report)
			if left, _ := filepath.Glob(filepath.Join(previous, "checkpoints", "*")); len(left) == 0 &&
				name != "all missing" {
				t.Error("the old checkpoints were not kept")
			}
		})
	}
}
