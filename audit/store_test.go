package audit

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray"
)

// The canonical bytes are those of the package documentation. They must not change.
func TestCanonicalBytes(t *testing.T) {
	e := event{
		seq: 1, at: 1789000000123456789, kind: begun,
		invocation: "019a7b2c-0000-7000-8000-000000000001", body: []byte("{}"),
	}
	const want = "dray event v1\n1\n1789000000123456789\nbegun\n019a7b2c-0000-7000-8000-000000000001\n" +
		"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\n"
	if got := string(e.proof().Canonical()); got != want {
		t.Errorf("canonical bytes\n%s\nwant\n%s", got, want)
	}
	// printf '\0dray event v1\n...' | sha256sum
	const leaf = "668e7d7d2dc0ad1312bb9577f752bd6af72932ffb06abfc7cdb2b5609f846457"
	if got := e.leaf(); hex.EncodeToString(got[:]) != leaf {
		t.Errorf("leaf %x, want %s", got[:], leaf)
	}
}

// Of 128 concurrent callers each call has one begin and one end record, seqs have no gap, and calls
// share transactions (AU-04).
func TestConcurrentCallsShareTransactions(t *testing.T) {
	const callers, rounds = 128, 8
	s := open(t, options(t.TempDir()))
	exec := s.Executor(returning(exited(0)))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				if _, err := exec.Execute(context.Background(), dray.Call{Invocation: newInvocation("exec")},
					dray.Discard); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkLog(t, s)
	const events = 2 * callers * rounds
	if got := scan[int](t, s.read, `SELECT count(*) FROM events`); got != events {
		t.Errorf("%d events, want %d", got, events)
	}
	if got := scan[int](t, s.read, `SELECT count(DISTINCT at) FROM events`); got > events/4 {
		t.Errorf("%d events in %d transactions, want fewer transactions", events, got)
	}
}

// checkLog checks the invariants of an audit log without pending writes.
func checkLog(t *testing.T, s *Store) {
	t.Helper()
	for query, want := range map[string]string{
		`PRAGMA integrity_check`:                        "ok",
		`SELECT count(*) FROM pragma_foreign_key_check`: "0",
		// Contiguous from 1.
		`SELECT count(*) - coalesce(max(seq), 0) + (coalesce(min(seq), 1) - 1) FROM events`: "0",
		// Each call has one begin and at most one end record, in this order, and one row with both seqs.
		`SELECT count(*) FROM (SELECT invocation FROM events WHERE invocation != '' GROUP BY invocation
			HAVING sum(kind = 'begun') != 1 OR sum(kind IN ('ended', 'interrupted')) > 1 OR min(seq) != min(CASE kind WHEN 'begun' THEN seq END))`: "0",
		`SELECT count(DISTINCT invocation) - (SELECT count(*) FROM invocations) FROM events WHERE invocation != ''`: "0",
		`SELECT count(*) FROM invocations i LEFT JOIN events b ON b.seq = i.seq LEFT JOIN events e ON e.seq = i.ended_seq
			WHERE b.invocation IS NOT i.id OR b.kind != 'begun'
			OR (i.status != 'running') != (e.seq IS NOT NULL) OR e.seq IS NOT NULL AND (e.invocation != i.id OR e.kind = 'begun')`: "0",
		// The projection equals the events.
		`SELECT count(*) FROM invocations i JOIN events b ON b.seq = i.seq LEFT JOIN events e ON e.seq = i.ended_seq
			WHERE i.tool IS NOT b.body ->> '$.tool' OR i.principal IS NOT b.body ->> '$.principal'
			OR i.plan_id IS NOT b.body ->> '$.context.plan_id'
			OR e.seq IS NOT NULL AND (i.status IS NOT e.body ->> '$.status'
			OR i.reason IS NOT e.body ->> '$.reason'
			OR i.exit_code IS NOT e.body ->> '$.exit_code' OR i.duration IS NOT e.body ->> '$.duration_ns'
			OR i.environment IS NOT nullif(e.body ->> '$.route.environment', '')
			OR i.container_id IS NOT e.body ->> '$.metadata.container.id')`: "0",
	} {
		if got := scan[string](t, s.read, query); got != want {
			t.Errorf("%s\nreturns %s, want %s", query, got, want)
		}
	}
	checkLeaves(t, s.read)
}

func checkLeaves(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), `SELECT seq, invocation, kind, at, body, body_sha256, leaf FROM events`)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var e event
		var sum, leaf []byte
		if err := rows.Scan(&e.seq, &e.invocation, &e.kind, &e.at, &e.body, &sum, &leaf); err != nil {
			t.Fatal(err)
		}
		want := e.leaf()
		if e.body == nil { // retention leaves the hash, of which the leaf is computed
			want = tlog.RecordHash(fmt.Appendf(nil, "dray event v1\n%d\n%d\n%s\n%s\n%x\n",
				e.seq, e.at, e.kind, e.invocation, sum))
		}
		if tlog.Hash(leaf) != want {
			t.Errorf("event %d has leaf %x, want %x", e.seq, leaf, want[:])
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}

// Queued events share a transaction, up to its maximum (AU-04).
func TestBatchesAreBounded(t *testing.T) {
	s := open(t, options(t.TempDir()))
	const n = 2*maxBatch + 10
	jobs := make([]*pendingEvent, n)
	for i := range jobs {
		j, err := s.beginEvent(dray.Call{Invocation: newInvocation("exec")}, time.Now())
		must(t, err)
		jobs[i] = j
	}
	if err := s.submit(context.Background(), jobs...); err != nil {
		t.Fatal(err)
	}
	if got := scan[int](t, s.read, `SELECT count(DISTINCT at) FROM events`); got != 3 {
		t.Errorf("%d events took %d transactions, want 3", n, got)
	}
	if got := scan[int](t, s.read, `SELECT max(n) FROM (SELECT count(*) AS n FROM events GROUP BY at)`); got != maxBatch {
		t.Errorf("the largest transaction had %d events, want %d", got, maxBatch)
	}
}

// An event that cannot be written fails alone, although it shared a transaction.
func TestInvalidEventFailsAlone(t *testing.T) {
	s := open(t, options(t.TempDir()))
	inv := newInvocation("exec")
	var jobs []*pendingEvent
	for _, i := range []dray.Invocation{newInvocation("exec"), inv, inv, newInvocation("exec")} {
		j, err := s.beginEvent(dray.Call{Invocation: i}, time.Now())
		must(t, err)
		jobs = append(jobs, j)
	}
	end := func(i dray.Invocation) *pendingEvent {
		j, err := s.endEvent(i, dray.NormalizeResult(exited(0), nil))
		must(t, err)
		return j
	}
	never := newInvocation("exec")
	if err := s.submit(context.Background(), append(jobs, end(never))...); err == nil {
		t.Error("no error for the second begin record of a call")
	}
	if err := s.submit(context.Background(), end(never)); !errors.Is(err, errNotRunning) {
		t.Errorf("an end record without a begin record returns %v", err)
	}
	if err := s.submit(context.Background(), end(inv), end(inv)); !errors.Is(err, errNotRunning) {
		t.Errorf("the second end record of a call returns %v", err)
	}
	checkLog(t, s)
	if got := scan[int](t, s.read, `SELECT count(*) FROM events`); got != 4 {
		t.Errorf("%d events, want 4", got)
	}
}

func TestEventsAreAppendOnly(t *testing.T) {
	s := open(t, options(t.TempDir()))
	run(t, s, newInvocation("exec"), exited(0))
	db := rawDB(t, s.path)
	const noBody = `UPDATE events SET body = NULL, body_sha256 = zeroblob(32)`
	const columns = ` INTO events (seq, invocation, kind, at, body, leaf) `
	for name, statement := range map[string]string{
		"update":      `UPDATE events SET body = '{}' WHERE seq = 1`,
		"delete":      `DELETE FROM events`,
		"delete last": `DELETE FROM events WHERE seq = 2`,
		"replace":     `INSERT OR REPLACE` + columns + `VALUES (1, '', 'x', 0, '', zeroblob(32))`,
		"upsert":      `INSERT` + columns + `VALUES (1, '', 'x', 0, '', zeroblob(32)) ON CONFLICT DO UPDATE SET body = ''`,
		"gap":         `INSERT` + columns + `VALUES (4, '', 'x', 0, '', zeroblob(32))`,
		"ignore gap":  `INSERT OR IGNORE` + columns + `VALUES (4, '', 'x', 0, '', zeroblob(32))`,
		"no leaf":     `INSERT` + columns + `VALUES (3, '', 'x', 0, '', x'00')`,
		// Retention may replace a body by its hash, once, and change nothing else.
		"no hash":         `UPDATE events SET body = NULL`,
		"hash beside it":  `UPDATE events SET body_sha256 = zeroblob(32)`,
		"short hash":      `UPDATE events SET body = NULL, body_sha256 = zeroblob(31)`,
		"hash as text":    `UPDATE events SET body = NULL, body_sha256 = printf('%032d', 0)`,
		"body and seq":    noBody + `, seq = seq + 9`,
		"body and call":   noBody + `, invocation = ''`,
		"body and kind":   noBody + `, kind = 'x'`,
		"body and time":   noBody + `, at = 0`,
		"body and leaf":   noBody + `, leaf = zeroblob(32)`,
		"replace the row": `UPDATE OR REPLACE events SET seq = 1 WHERE seq = 2`,
	} {
		if _, err := db.ExecContext(context.Background(), statement); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	checkLog(t, s)
	mustExec(t, db, noBody+` WHERE seq = 1`)
	for _, again := range []string{noBody, `UPDATE events SET body = '{}', body_sha256 = NULL`} {
		if _, err := db.ExecContext(context.Background(), again+` WHERE seq = 1`); err == nil {
			t.Errorf("%s: no error for a body that was removed", again)
		}
	}
	// Another program may append; the writer continues after it.
	mustExec(t, db, `INSERT`+columns+`VALUES (3, '', 'x', 0, '', zeroblob(32))`)
	run(t, s, newInvocation("exec"), exited(0))
	if got := scan[int](t, s.read, `SELECT max(seq) FROM events`); got != 5 {
		t.Errorf("the last event is %d, want 5", got)
	}
}

// A damaged part of a row is named and the rest of the row returned. An unreadable row is named and
// the list continues (AU-05).
func TestDamagedRowsAreNamed(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	ids := make([]string, 5)
	for i := range ids {
		inv := newInvocation("exec")
		inv.Input = longJSON(maxInline + 1)
		ids[i] = inv.ID
		res := exited(i)
		res.Route.Environment = dray.KindContainer
		res.Metadata.Container = &dray.ContainerMetadata{
			Name: "web",
			User: strings.Repeat("overflow", 4096),
		}
		run(t, s, inv, res)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	db := rawDB(t, opts.Path)
	mustExec(t, db, `DROP TRIGGER events_no_update`)
	mustExec(t, db, `UPDATE invocations SET metadata_container = '{"id":' WHERE id = ?`, ids[0])
	mustExec(t, db, `UPDATE events SET body = '{' WHERE kind = 'begun' AND invocation = ?`, ids[1])
	mustExec(t, db, `UPDATE events SET body = NULL WHERE kind = 'ended' AND invocation = ?`, ids[2])
	mustExec(t, db, `UPDATE invocations SET metadata_container = replace(metadata_container, 'overflow', 'poisoned') WHERE id = ?`, ids[3])
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	breakChain(t, opts.Path, "poisoned")

	s = open(t, opts)
	page := list(t, s, Query{})
	if len(page.Items) != 4 || len(page.Unreadable) != 1 || page.Unreadable[0].Seq != 7 ||
		page.Unreadable[0].Message == "" {
		t.Fatalf("%d items, unreadable %+v", len(page.Items), page.Unreadable)
	}
	for id, want := range map[string]string{
		ids[0]: "metadata_container", ids[1]: "begun event",
		ids[2]: "ended event", ids[4]: "",
	} {
		checkDamage(t, get(t, s, id), want)
	}
	if _, err := s.Get(context.Background(), "", ids[3]); codeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("Get of the unreadable row returns %v", err)
	}
	// A search reads the damaged bodies and continues.
	if page := list(t, s, Query{Text: "exec"}); len(page.Items) != 4 {
		t.Errorf("the search returns %d rows", len(page.Items))
	}
}

func checkDamage(t *testing.T, rec dray.Record, want string) {
	t.Helper()
	warnings := strings.Join(rec.Metadata.Warnings, "\n")
	if (warnings != "") != (want != "") || !strings.Contains(warnings, want) {
		t.Errorf("the warnings are %q, want one of %q", warnings, want)
	}
	if rec.Tool != "exec" || rec.Reason != dray.ReasonExited || rec.Status == dray.StatusRunning ||
		rec.EndedAt == nil || rec.DurationMS == nil {
		t.Errorf("the columns are not in the record: %+v", rec)
	}
	if want != "metadata_container" && (rec.Metadata.Container == nil ||
		rec.Metadata.Container.Name != "web") {
		t.Errorf("the container is %+v", rec.Metadata.Container)
	}
	if want != "begun event" && !json.Valid(rec.Input) {
		t.Errorf("the input has %d bytes", len(rec.Input))
	}
}

// A missing or changed capture is named (AU-05).
func TestDamagedCaptureIsNamed(t *testing.T) {
	s := open(t, options(t.TempDir()))
	inv := newInvocation("exec")
	inv.Input = longJSON(maxInline + 1)
	run(t, s, inv, exited(0))
	file := s.blobs.dir + "/" + scan[string](t, s.read, `SELECT input_sha256 FROM invocations`)
	for name, damage := range captureDamage {
		if err := damage(file); err != nil {
			t.Fatal(err)
		}
		rec := get(t, s, inv.ID)
		if rec.Input != nil || len(rec.Metadata.Warnings) != 1 ||
			!strings.Contains(rec.Metadata.Warnings[0], name) {
			t.Errorf("%s: input %.20s, warnings %q", name, rec.Input, rec.Metadata.Warnings)
		}
	}
}

// A read does not block a write, nor a write a read.
func TestReadersAndWriterDoNotBlock(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	first := newInvocation("exec")
	run(t, s, first, exited(0))
	read, err := s.read.BeginTx(context.Background(), nil)
	must(t, err)
	scan[int](t, read, `SELECT count(*) FROM events`)
	run(t, s, newInvocation("exec"), exited(0))
	if got := scan[int](t, read, `SELECT count(*) FROM events`); got != 2 {
		t.Errorf("the reader's snapshot changed: %d events", got)
	}
	if err := read.Rollback(); err != nil {
		t.Fatal(err)
	}
	unlock := lockDatabase(t, opts.Path)
	get(t, s, first.ID)
	unlock()
}

func TestReadersCannotWrite(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for _, statement := range []string{`DELETE FROM invocations`, `PRAGMA query_only = 0; DELETE FROM invocations`} {
		if _, err := s.read.ExecContext(context.Background(), statement); err == nil {
			t.Errorf("%s: no error", statement)
		}
	}
}
