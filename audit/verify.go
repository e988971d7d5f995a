package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
)

// The kinds of findings.
const (
	// FindingDamage is a part of the file that cannot be read, or an index that does not fit its
	// table.
	FindingDamage = "damage"
	// FindingSequence is a number in the sequence of events that is missing.
	FindingSequence = "sequence"
	// FindingEvent is an event whose leaf does not belong to its columns.
	FindingEvent = "event"
	// FindingProjection is a row of invocations, changed_files or another table that is computed from
	// events, and differs from them.
	FindingProjection = "projection"
	// FindingCapture is a file in captures/ that is missing or was changed.
	FindingCapture = "capture"
	// FindingNode is a stored hash of the Merkle log that does not belong to the events.
	FindingNode = "node"
	// FindingCheckpoint is a checkpoint that is not signed by the log, or that the log does not
	// extend.
	FindingCheckpoint = "checkpoint"
	// FindingKey is a key file that is not that of the log.
	FindingKey = "key"
)

// maxFindings bounds the findings of a report.
const maxFindings = 1000

// Finding is something that should not be. Members that do not apply are empty.
type Finding struct {
	Kind       string `json:"kind" enum:"damage,sequence,event,projection,capture,node,checkpoint,key"`
	Seq        int64  `json:"seq,omitzero" doc:"The number of the event, or of the first one of several."`
	Invocation string `json:"invocation,omitzero"`
	Column     string `json:"column,omitzero" doc:"The column, as TABLE.COLUMN, or the file."`
	Expected   string `json:"expected,omitzero"`
	Got        string `json:"got,omitzero"`
	Message    string `json:"message"`
	Repairable bool   `json:"repairable,omitzero" doc:"Whether dray audit verify --repair corrects it."`
}

// Report is the result of Verify.
type Report struct {
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings" nullable:"false"`
	// Omitted is the number of findings beyond 1000.
	Omitted     int      `json:"findings_omitted,omitzero" doc:"The number of further findings."`
	Events      int64    `json:"events" doc:"The number of events that were read."`
	Pruned      int64    `json:"pruned" doc:"How many of them have no body any more, because retention removed it."`
	Captures    int      `json:"captures" doc:"The number of files in captures/ that were read."`
	Checkpoints int      `json:"checkpoints" doc:"The number of checkpoints that the log extends."`
	Root        string   `json:"root,omitzero" doc:"The root hash of the log, base64."`
	Notes       []string `json:"notes,omitempty" doc:"What could not be checked."`
}

// VerifyOptions configure Verify.
type VerifyOptions struct {
	// Path and CapturesDir are those of the store.
	Path, CapturesDir string
	// Checkpoint is a checkpoint that the log must extend, besides the stored ones; nil for none.
	Checkpoint []byte
	// Key verifies Checkpoint; nil for the public key file of the log.
	Key *proof.Verifier
	// Progress is called after each batch of events; nil for no calls.
	Progress func(done, total int64)
}

// Verify checks the audit log. It changes nothing, and works with and without a daemon that writes.
// It fails if the file cannot be opened, and if its schema is that of another version.
func Verify(ctx context.Context, opts VerifyOptions) (Report, error) {
	if _, err := os.Stat(opts.Path); err != nil {
		return Report{}, dray.Errorf(dray.CodeNotFound, "open the audit log: %w", err).
			WithHint("name the state directory with --state DIR")
	}
	db, err := openSQLite(opts.Path, url.Values{
		"mode": {"ro"}, "_busy_timeout": {"5000"}, "_stmt_cache_size": {"32"},
	})
	if err != nil {
		return Report{}, err
	}
	defer db.Close()
	return verify(ctx, db, opts, false)
}

// Verify checks the audit log of an open store.
func (s *Store) Verify(ctx context.Context) (Report, error) {
	return Verify(ctx, VerifyOptions{Path: s.path, CapturesDir: s.blobs.dir})
}

// verify checks what db has in one snapshot. With fix it corrects what is computed from events,
// else it writes only to temporary tables.
func verify(ctx context.Context, db *sql.DB, opts VerifyOptions, fix bool) (Report, error) {
	v := &verifier{
		opts: opts, fix: fix, report: Report{Findings: []Finding{}}, visited: map[string]bool{},
	}
	v.roots = v.loadCheckpoints() // before the snapshot, which then has their events
	conn, err := db.Conn(ctx)
	switch {
	case err == nil:
		defer conn.Close()
		v.db = conn
		err = v.run(ctx)
	case !fix: // nothing of the file can be read
		err = v.damage(ctx, 0, "open the file", err)
	}
	if err != nil {
		return v.report, unavailableError(opts.Path, "verify the audit log", err)
	}
	v.report.OK = len(v.report.Findings) == 0
	return v.report, nil
}

// verifier is a run of Verify.
type verifier struct {
	opts   VerifyOptions
	db     *sql.Conn
	report Report
	total  int64 // the number of the last event

	fix bool // correct what is computed from events

	roots   []rootCheck
	edge    proof.Edge
	broken  int64 // the first event that is not in edge because one is missing; 0 if none is
	replay  *replay
	visited map[string]bool // captures by name
}

// add adds a finding.
func (v *verifier) add(f Finding) {
	if len(v.report.Findings) >= maxFindings {
		v.report.Omitted++
		return
	}
	v.report.Findings = append(v.report.Findings, f)
}

// damage adds an error of SQLite as a finding. Errors that say nothing about the file are returned.
func (v *verifier) damage(ctx context.Context, seq int64, what string, err error) error {
	if err == nil || ctx.Err() != nil || isRetryable(err) {
		return err
	}
	v.add(Finding{Kind: FindingDamage, Seq: seq, Message: fmt.Sprintf("%s: %v", what, err)})
	return nil
}

func (v *verifier) run(ctx context.Context) error {
	if err := v.checkSchema(ctx); err != nil {
		return err
	}
	begin, end := `BEGIN`, `ROLLBACK`
	if v.fix {
		begin, end = `BEGIN IMMEDIATE`, `COMMIT`
	}
	if err := v.exec(ctx, `PRAGMA temp_store = MEMORY`, begin); err != nil {
		return err
	}
	if err := v.runChecks(ctx); err != nil {
		return errors.Join(err, v.exec(context.WithoutCancel(ctx), `ROLLBACK`))
	}
	return v.exec(ctx, end)
}

func (v *verifier) runChecks(ctx context.Context) error {
	for _, check := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"check the pages", v.checkPages},
		{"check the schema", v.compareSchema},
		{"check the key", v.checkKey},
		{"read the events", v.checkEvents},
		{"read the Merkle log", v.checkNodeCount},
	} {
		if err := v.damage(ctx, 0, check.what, check.run(ctx)); err != nil {
			return err
		}
	}
	v.finishRoots()
	return nil
}

// note adds something that could not be checked.
func (v *verifier) note(format string, args ...any) {
	if len(v.report.Notes) < maxFindings {
		v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
	}
}

func (v *verifier) blobs() *blobStore { return &blobStore{dir: v.opts.CapturesDir} }

// checkCapture reads a file that an event refers to, once.
func (v *verifier) checkCapture(e storedEvent, ref *blobRef) {
	if ref == nil || v.visited[ref.SHA256] {
		return
	}
	v.visited[ref.SHA256] = true
	v.report.Captures++
	if _, err := v.blobs().get(ref); err != nil {
		v.add(Finding{
			Kind: FindingCapture, Seq: e.seq, Invocation: e.invocation, Column: "captures/" + ref.SHA256,
			Expected: ref.SHA256, Message: err.Error(),
		})
	}
}

func (v *verifier) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := v.db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// checkSchema refuses a schema that this version does not know, because its columns have another
// meaning.
func (v *verifier) checkSchema(ctx context.Context) error {
	var have int64
	err := v.db.QueryRowContext(ctx,
		`SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&have)
	switch {
	case err != nil && v.fix:
		return err
	case err != nil: // the rest of the log is checked by the newest schema
		return v.damage(ctx, 0, "read the version of the schema", err)
	}
	want, err := newestSchema()
	switch {
	case err != nil:
		return err
	case have < want:
		return dray.Errorf(dray.CodeConflict, "the schema of %s is %d, that of this version %d",
			v.opts.Path, have, want).WithHint("start the daemon of this version once; it migrates the log")
	case have > want:
		return dray.Errorf(dray.CodeConflict, "the schema of %s is %d, this version knows %d",
			v.opts.Path, have, want).WithHint("use the newer dray")
	}
	return nil
}

// checkPages checks the structure of the file, and each index against its table.
func (v *verifier) checkPages(ctx context.Context) error {
	rows, err := v.db.QueryContext(ctx, `PRAGMA integrity_check(100)`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var message string
		if err := rows.Scan(&message); err != nil {
			return err
		}
		if message != "ok" {
			v.add(Finding{Kind: FindingDamage, Message: message})
		}
	}
	if err := rows.Err(); err != nil || !v.fix {
		return err
	}
	return v.exec(ctx, `REINDEX`)
}

// checkKey compares the key in the database with the public key file.
func (v *verifier) checkKey(ctx context.Context) error {
	public, err := ReadPublicKey(filesOf(v.opts.Path).public)
	var known string
	scanErr := v.db.QueryRowContext(ctx, selectKey).Scan(&known)
	switch {
	case scanErr != nil && !errors.Is(scanErr, sql.ErrNoRows):
		return scanErr
	case err == nil && public.String() == known:
		return nil
	}
	got := public.String()
	if err != nil {
		got = ""
	}
	v.add(Finding{
		Kind: FindingKey, Column: filesOf(v.opts.Path).public, Expected: known, Got: got,
		Message: "the public key file is not that of the log",
	})
	return nil
}

// checkNodeCount looks for nodes beyond the end of the log; the others are compared while the
// events are read.
func (v *verifier) checkNodeCount(ctx context.Context) error {
	var extra int64
	err := v.db.QueryRowContext(ctx,
		`SELECT count(*) FROM merkle_nodes WHERE (n + 1) << level > ?`, v.total).Scan(&extra)
	if err == nil && extra > 0 {
		v.add(Finding{
			Kind: FindingNode, Seq: v.total, Got: fmt.Sprint(extra),
			Message: "merkle_nodes has hashes of events after the last one", Repairable: true,
		})
		if v.fix {
			_, err = v.db.ExecContext(ctx, `DELETE FROM merkle_nodes WHERE (n + 1) << level > ?`, v.total)
		}
	}
	return err
}
