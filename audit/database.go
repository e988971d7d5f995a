package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"
	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/migrations"
)

const (
	// maxReaders bounds the connections that read; more would only share the same disk.
	maxReaders = 4
	// busyTimeout is how long SQLite itself waits for a lock, in milliseconds. The writer tries again
	// after it; it is short because nothing can break this wait off when the daemon ends.
	busyTimeout = "200"
)

// openDatabase opens the writer's connection, brings the schema up to date and opens the readers.
func (s *Store) openDatabase(ctx context.Context) (err error) {
	if s.write, err = openWriter(ctx, s.path); err != nil {
		return err
	}
	if err := migrate(ctx, s.write, s.path); err != nil {
		return err
	}
	s.read, err = sql.Open("sqlite3", dsn(s.path, url.Values{
		"mode": {"ro"}, "_query_only": {"1"}, "_busy_timeout": {"5000"}, "_stmt_cache_size": {"16"},
	}))
	if err != nil {
		return fmt.Errorf("open the database for readers: %w", err)
	}
	s.read.SetMaxOpenConns(maxReaders)
	s.read.SetMaxIdleConns(maxReaders)
	return nil
}

// openWriter opens the one connection that writes, and makes sure that it writes as durably as was
// asked: on some file systems SQLite falls back from WAL without an error.
func openWriter(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", dsn(path, url.Values{
		"mode": {"rw"}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_foreign_keys": {"1"}, "_busy_timeout": {busyTimeout},
		"_txlock": {"immediate"}, "_stmt_cache_size": {"16"},
	}))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(1)
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2",
		"foreign_keys": "1",
	} {
		var got string
		if err := db.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got); err != nil {
			return db, fmt.Errorf("open the database: %w", err)
		}
		if got != want {
			return db, fmt.Errorf("open the database: %s is %s and not %s: the trail needs a local file system", pragma, got, want)
		}
	}
	return db, nil
}

// dsn writes a path as the URI that SQLite takes.
func dsn(path string, params url.Values) string {
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?" + params.Encode()
}

// migrate applies what is missing, each file in a transaction of its own, so that it goes on where
// it was broken off. A schema that this program does not know is refused before anything is
// written.
func migrate(ctx context.Context, db *sql.DB, path string) error {
	p, err := newMigrator(db)
	if err != nil {
		return err
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the version of the schema: %w", err)
	}
	sources := p.ListSources()
	if known := sources[len(sources)-1].Version; have > known {
		return dray.Errorf(dray.CodeAuditUnavailable,
			"open the trail %s: a newer dray wrote it (schema %d, this one knows %d)", path, have, known).
			WithHint("run the newer dray, or choose another state folder with --state")
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
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
	insertEvent = `INSERT INTO events (seq, invocation, kind, at, body, leaf) VALUES (?, ?, ?, ?, ?, ?)`
)

// errNotRunning says that a projection found nothing to change: the call was never begun, or is
// over already.
var errNotRunning = errors.New("no such call is running in the trail")

// commit writes a batch in one transaction: all of it or nothing. All events of it have one time,
// that of the transaction. Waiting for the lock may take long, so which jobs are still wanted is
// asked after it; those were written.
//
// The transaction is written out in SQL. A sql.Tx starts goroutines that watch its context, which
// never ends here, and wake up with each commit.
func commit(ctx context.Context, db *sql.DB, batch []*pendingEvent,
	wanted func([]*pendingEvent) []*pendingEvent,
) (written []*pendingEvent, err error) {
	tx, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin to write: %w", err)
	}
	defer func() { err = errors.Join(err, tx.Close()) }()
	if _, err := tx.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return nil, fmt.Errorf("begin to write: %w", err)
	}
	defer func() {
		if err != nil {
			_, _ = tx.ExecContext(ctx, `ROLLBACK`) // SQLite may have done it by itself
		}
	}()
	// before that: what was written until a panic is taken back, and the connection goes on
	defer recoverTo(&err)
	// Asked each time: another program may have appended, and a gap or a clash would be refused.
	var last int64
	if err := tx.QueryRowContext(ctx, lastSeq).Scan(&last); err != nil {
		return nil, fmt.Errorf("find the last event: %w", err)
	}
	at := time.Now().UnixNano()
	written = wanted(batch)
	for i, j := range written {
		if err := j.write(ctx, tx, last+int64(i)+1, at); err != nil {
			return nil, err
		}
	}
	if _, err := tx.ExecContext(ctx, `COMMIT`); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return written, nil
}

// write appends the event and changes the projection.
func (j *pendingEvent) write(ctx context.Context, tx *sql.Conn, seq, at int64) error {
	e := j.event
	e.seq, e.at = seq, at
	leaf := e.leaf()
	_, err := tx.ExecContext(ctx, insertEvent, e.seq, e.invocation, string(e.kind), e.at,
		string(e.body), leaf[:])
	if err != nil {
		return fmt.Errorf("append the event: %w", err)
	}
	changed, err := tx.ExecContext(ctx, j.projectionSQL, append([]any{seq}, j.args...)...)
	if err != nil {
		return fmt.Errorf("write the projection: %w", err)
	}
	if n, err := changed.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errNotRunning, err)
	}
	return j.changes.write(ctx, tx, seq, e.invocation)
}

// isRetryable says whether a write may succeed later although nobody changes what is written: the
// file is locked, the disk is full, or the system refuses now.
func isRetryable(err error) bool {
	e, ok := errors.AsType[sqlite3.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case sqlite3.ErrBusy, sqlite3.ErrLocked, sqlite3.ErrFull, sqlite3.ErrIoErr, sqlite3.ErrNomem,
		sqlite3.ErrCantOpen, sqlite3.ErrProtocol:
		return true
	default:
		return false
	}
}

// unavailableError makes the error of a trail that cannot be used, with what to do about its cause.
func unavailableError(path, doing string, err error) *dray.Error {
	if known, ok := errors.AsType[*dray.Error](err); ok {
		return known
	}
	e := dray.Errorf(dray.CodeAuditUnavailable, "%s: %w", doing, err)
	cause, known := errors.AsType[sqlite3.Error](err)
	switch {
	case errors.Is(err, errClosed):
		return dray.Errorf(dray.CodeShuttingDown, "%s: %w", doing, err).
			WithHint("the daemon is ending: repeat the call when it runs again")
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return e.WithHint("ask for less, or allow more time")
	case !known:
		return e.WithHint("look at the disk of %s, then repeat the call", path)
	}
	switch cause.Code {
	case sqlite3.ErrConstraint:
		return dray.Errorf(dray.CodeConflict, "%s: %w", doing, err).
			WithHint("there is an invocation with this id: make a new one")
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return e.WithHint("another program has locked %s: end it (fuser %s), then repeat the call", path,
			path)
	case sqlite3.ErrFull:
		return e.WithHint("the disk of %s is full: free space, then repeat the call", path)
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		return e.WithHint("%s is damaged: stop the daemon, move the file away and restore a backup", path)
	default:
		return e.WithHint("look at the disk and the permissions of %s, then repeat the call", path)
	}
}

// lock takes the lock file beside the database, or says who has it. The lock goes with the process,
// however it ends. The file stays: removing it would let two others hold a lock on two files of one
// name.
func lock(path string) (*os.File, error) {
	f, err := openPrivate(path + ".lock")
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, dray.Errorf(dray.CodeAuditUnavailable,
			"open the trail %s: another dray%s has it open", path, holder(f)).
			WithHint("use the daemon that runs, stop it, or choose another state folder with --state")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	// Who holds it is a courtesy to the one who is refused: failing to write it is no harm.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	return f, nil
}

// holder reads the process id that the holder of the lock left.
func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || perr != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// openPrivate opens or makes a file that only its owner can read, whatever the umask and whatever
// mode it had.
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
