package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"
	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
	"github.com/dray-dev/dray/migrations"
)

const (
	// maxReaders bounds the reading connections; more would only share the same disk.
	maxReaders = 4
	// busyTimeout is how long SQLite itself waits for a lock, in milliseconds. It is short because the
	// wait cannot be interrupted when the daemon ends; the writer tries again.
	busyTimeout = "200"
)

func openReaders(path string) (*sql.DB, error) {
	db, err := openSQLite(path, url.Values{
		"mode": {"ro"}, "_query_only": {"1"}, "_busy_timeout": {"5000"}, "_stmt_cache_size": {"16"},
	})
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxReaders)
	db.SetMaxIdleConns(maxReaders)
	return db, nil
}

// openWriter opens the one connection that writes and verifies its durability: on some file systems
// SQLite falls back from WAL without an error.
func openWriter(ctx context.Context, path string) (*sql.DB, error) {
	db, err := openSQLite(path, url.Values{
		"mode": {"rw"}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_foreign_keys": {"1"},
		"_busy_timeout": {busyTimeout}, "_txlock": {"immediate"}, "_stmt_cache_size": {"16"},
	})
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	required := map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"}
	for pragma, want := range required {
		var got string
		if err := db.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got); err != nil {
			return db, fmt.Errorf("open the database: %w", err)
		}
		if got != want {
			return db, fmt.Errorf("open the database: %s is %s instead of %s: a local file system is "+
				"required",
				pragma, got, want)
		}
	}
	return db, nil
}

// dsn returns the path as a URI for SQLite.
func dsn(path string, params url.Values) string {
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?" + params.Encode()
}

// openSQLite opens a database with parameters of the driver.
func openSQLite(path string, params url.Values) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", dsn(path, params))
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	return db, nil
}

// migrate applies the missing migrations, each in its own transaction, so that an interrupted
// migration resumes. It refuses an unknown schema before it writes anything.
func migrate(ctx context.Context, db *sql.DB, path string) error {
	p, err := newMigrator(db)
	if err != nil {
		return err
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	if err := checkSchema(p, have, path); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	return nil
}

// checkSchema fails if a later version of dray has written the database.
func checkSchema(p *goose.Provider, have int64, path string) error {
	sources := p.ListSources()
	if known := sources[len(sources)-1].Version; have > known {
		return dray.Errorf(dray.CodeAuditUnavailable,
			"open the audit log %s: schema %d is newer than this version of dray (%d)", path, have, known).
			WithHint("run the newer dray, or choose another state directory with --state")
	}
	return nil
}

func newMigrator(db *sql.DB) (*goose.Provider, error) {
	p, err := goose.NewProvider(goose.DialectSQLite3, db, migrations.FS,
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %s", strings.TrimSpace(err.Error()))
	}
	return p, nil
}

const (
	lastSeq     = `SELECT coalesce(max(seq), 0) FROM events`
	insertEvent = `INSERT INTO events (seq, invocation, kind, at, body, leaf)
		VALUES (?, ?, ?, ?, ?, ?)`
)

// errNotRunning is returned when a projection changes no row: the call has no begin record, or has
// ended already.
var errNotRunning = errors.New("no such call is running in the audit log")

// commit writes a batch in one transaction: all of it or nothing. Its events share the time of the
// transaction. Begin records that were given up while the transaction waited for its lock are not
// written; commit returns the events that were.
//
// The transaction is plain SQL: a sql.Tx starts goroutines that watch its context, which never ends
// here, and that wake up with each commit.
func (w *writer) commit(ctx context.Context, batch []*pendingEvent) (
	written []*pendingEvent, err error,
) {
	tx, err := w.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin to write: %w", err)
	}
	defer func() { err = errors.Join(err, tx.Close()) }()
	if slices.ContainsFunc(batch, isPruning) {
		if _, err := tx.ExecContext(ctx, `PRAGMA foreign_keys = OFF`); err != nil {
			return nil, fmt.Errorf("begin to write: %w", err)
		}
		// Without it the next transactions would only lack a check.
		defer func() { _, _ = tx.ExecContext(ctx, `PRAGMA foreign_keys = ON`) }()
	}
	if _, err := tx.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return nil, fmt.Errorf("begin to write: %w", err)
	}
	defer func() {
		if err != nil {
			_, _ = tx.ExecContext(ctx, `ROLLBACK`) // SQLite may have done so already
		}
	}()
	defer recoverTo(&err) // runs first: after a panic the transaction is rolled back too
	last, edge, err := w.position(ctx, tx)
	if err != nil {
		return nil, err
	}
	at := time.Now().UnixNano()
	w.mu.Lock()
	written = dropAbandoned(batch)
	w.mu.Unlock()
	for _, e := range written {
		last++
		if err := e.write(ctx, tx, last, at, &edge); err != nil {
			return nil, err
		}
	}
	if _, err := tx.ExecContext(ctx, `COMMIT`); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	w.last = last
	w.setEdge(edge)
	return written, nil
}

// position returns the seq of the last event and the edge of the Merkle log, a copy. It forgets the
// seq, until the transaction is committed.
func (w *writer) position(ctx context.Context, tx *sql.Conn) (last int64, edge proof.Edge,
	err error,
) {
	last, edge, w.last = w.last, w.committedEdge(), 0
	if last == 0 {
		if err := tx.QueryRowContext(ctx, lastSeq).Scan(&last); err != nil {
			return 0, edge, fmt.Errorf("find the last event: %w", err)
		}
	}
	switch {
	case last < edge.Size():
		return 0, edge, fmt.Errorf("the events after %d were removed while the daemon ran", last)
	case last > edge.Size(): // a commit that failed was complete, or another program wrote
		edge, err = readEdge(ctx, tx, last)
	}
	return last, edge, err
}

// committedEdge returns a copy of the right edge of the Merkle log of all committed events.
func (w *writer) committedEdge() proof.Edge {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.edge.Clone()
}

func (w *writer) setEdge(edge proof.Edge) {
	w.mu.Lock()
	w.edge = edge
	w.mu.Unlock()
	select {
	case w.grown <- struct{}{}:
	default: // it has a value
	}
}

// write appends the event to the table and to the Merkle log, and updates the projection.
func (p *pendingEvent) write(ctx context.Context, tx *sql.Conn, seq, at int64, edge *proof.Edge,
) error {
	e := p.event
	e.seq, e.at = seq, at
	leaf := e.leaf()
	if _, err := tx.ExecContext(ctx, insertEvent,
		e.seq, e.invocation, string(e.kind), e.at, string(e.body), leaf[:]); err != nil {
		return fmt.Errorf("append the event: %w", err)
	}
	for _, n := range edge.Append(leaf) {
		if _, err := tx.ExecContext(ctx, insertNode, n.Level, n.N, n.Hash[:]); err != nil {
			return fmt.Errorf("append to the Merkle log: %w", err)
		}
	}
	if p.projectionSQL == "" {
		return nil
	}
	changed, err := tx.ExecContext(ctx, p.projectionSQL, append([]any{seq}, p.args...)...)
	if err != nil {
		return fmt.Errorf("write the projection: %w", err)
	}
	if n, err := changed.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errNotRunning, err)
	}
	if p.extra == nil {
		return nil
	}
	return p.extra.write(ctx, tx, seq, e.invocation)
}

// isRetryable reports whether the same write may succeed later: the file is locked or displaced,
// the disk is full, or the system refuses for now.
func isRetryable(err error) bool {
	e, ok := errors.AsType[sqlite3.Error](err)
	return isDisplaced(err) || ok && slices.Contains([]sqlite3.ErrNo{
		sqlite3.ErrBusy, sqlite3.ErrLocked, sqlite3.ErrFull, sqlite3.ErrIoErr, sqlite3.ErrNomem,
		sqlite3.ErrCantOpen, sqlite3.ErrProtocol,
	}, e.Code)
}

// isConstraint reports whether a constraint refused the write.
func isConstraint(err error) bool {
	e, ok := errors.AsType[sqlite3.Error](err)
	return ok && e.Code == sqlite3.ErrConstraint
}

// isFull reports whether a write failed because the disk is full.
func isFull(err error) bool {
	e, ok := errors.AsType[sqlite3.Error](err)
	return ok && e.Code == sqlite3.ErrFull
}

// unavailableError returns the error of an operation that the audit log refused, with a hint for
// its cause. A dray.Error is returned unchanged.
func unavailableError(path, doing string, err error) *dray.Error {
	if known, ok := errors.AsType[*dray.Error](err); ok {
		return known
	}
	e := dray.Errorf(dray.CodeAuditUnavailable, "%s: %w", doing, err)
	cause, known := errors.AsType[sqlite3.Error](err)
	switch {
	case errors.Is(err, errClosed):
		return dray.Errorf(dray.CodeShuttingDown, "%s: %w", doing, err).
			WithHint("repeat the call when the daemon runs again")
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return e.WithHint("request less, or allow more time")
	case isDisplaced(err):
		return e.WithHint("put the file back that was there, then repeat the call; or stop the daemon "+
			"(kill %d): the next one uses what is there", os.Getpid())
	case !known:
		return e.WithHint("check the disk of %s, then repeat the call", path)
	}
	switch cause.Code {
	case sqlite3.ErrConstraint:
		return dray.Errorf(dray.CodeConflict, "%s: %w", doing, err).
			WithHint("an invocation with this id exists: use a new id")
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return e.WithHint("another program has locked %s: end it (fuser %[1]s), then repeat the call",
			path)
	case sqlite3.ErrFull:
		return e.WithHint("the disk of %s is full: free space, then repeat the call", path)
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		return e.WithHint("%s is damaged: stop the daemon, move the file away and restore a backup", path)
	default:
		return e.WithHint("check the disk and the permissions of %s, then repeat the call", path)
	}
}

// lock takes the lock file beside the database. The kernel releases the lock with the process. The
// file is never removed, because two processes could then lock two files of the same name.
func lock(path string) (*os.File, error) {
	f, err := openPrivate(path + ".lock")
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, dray.Errorf(dray.CodeAuditUnavailable,
			"open the audit log %s: another dray%s has it open", path, holder(f)).
			WithHint("use the running daemon, stop it, or choose another state directory with --state")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	if f.Truncate(0) == nil { // the pid is only for the error message of another process
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	return f, nil
}

// holder reads the pid that the holder of the lock wrote.
func holder(f *os.File) string {
	var pid int
	if _, err := fmt.Fscan(f, &pid); err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// openPrivate opens or creates a file that only its owner can read, regardless of the umask and of
// its mode.
func openPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s private: %w", path, err), f.Close())
	}
	return f, nil
}
