package audit

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"

	_ "github.com/mattn/go-sqlite3" // the driver "sqlite3"
	"github.com/pressly/goose/v3"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/migrations"
)

const (
	// maxReaders bounds the connections that read; more would only share the same disk.
	maxReaders = 4
	// busyTimeout is how long SQLite itself waits for a lock, in milliseconds. The writer tries again after it; it is short because
	// nothing can break this wait off when the daemon ends.
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

// openWriter opens the one connection that writes, and makes sure that it writes as durably as was asked: on some file systems
// SQLite falls back from WAL without an error.
func openWriter(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", dsn(path, url.Values{
		"mode": {"rw"}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_foreign_keys": {"1"}, "_busy_timeout": {busyTimeout},
		"_txlock": {"immediate"}, "_stmt_cache_size": {"16"},
	}))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(1)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
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

// migrate applies what is missing, each file in a transaction of its own, so that it goes on where it was broken off. A schema that
// this program does not know is refused before anything is written.
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
		return dray.Errorf(dray.CodeAuditUnavailable, "open the trail %s: a newer dray wrote it (schema %d, this one knows %d)", path, have, known).
			WithHint("run the newer dray, or choose another state folder with --state")
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	return nil
}

func newMigrator(db *sql.DB) (*goose.Provider, error) {
	p, err := goose.NewProvider(goose.DialectSQLite3, db, migrations.FS, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %s", strings.TrimSpace(err.Error()))
	}
	return p, nil
}
