package audit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// Options configure a Store.
type Options struct {
	// Path is the database; its directory must exist. PATH-wal, PATH-shm and PATH.lock are created
	// beside it, all with mode 0600.
	Path string
	// CapturesDir is the directory for inputs and outputs over 8 KiB. It is created with mode 0700.
	CapturesDir string
	// Log receives failed writes and panics; nil discards them.
	Log *zap.Logger
	// WriteTimeout bounds how long a call waits for the commit of its begin or end record while the
	// database is locked or full, or the disk does not respond. Half of it, before that, bounds the
	// wait for a file in CapturesDir. 0 means 15 s.
	WriteTimeout time.Duration
}

// Store is an open audit log. It is safe for concurrent use.
type Store struct {
	recorder
	lock  *os.File
	write *sql.DB // the writer's single connection
	read  *sql.DB
}

// Open opens, creates or migrates the audit log. It marks calls that an earlier daemon left without
// an end record as interrupted and returns their number. It fails with audit_unavailable if another
// daemon has the file open, if it is locked, or if a newer version wrote it.
func Open(ctx context.Context, opts Options) (store *Store, interrupted int, err error) {
	s := &Store{recorder: recorder{log: opts.Log, writeTimeout: opts.WriteTimeout}}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	if s.writeTimeout == 0 {
		s.writeTimeout = 15 * time.Second
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithCancel(ctx)
			cancel() // the next Open finds the calls that have no end record yet
			err = unavailableError(opts.Path, "open the audit log "+opts.Path,
				errors.Join(err, s.release(ctx)))
		}
	}()
	if err := s.openFiles(ctx, opts); err != nil {
		return nil, 0, err
	}
	s.writer = newWriter(ctx, s.write, s.files, s.log)
	if interrupted, err = s.interrupt(ctx, s.read); err != nil {
		return nil, 0, err
	}
	return s, interrupted, nil
}

// openFiles takes the lock before it opens anything else: closing a file that SQLite has open
// elsewhere in this process would release SQLite's own locks on it.
func (s *Store) openFiles(ctx context.Context, opts Options) (err error) {
	if s.path, err = realPath(opts.Path); err != nil {
		return err
	}
	if s.lock, err = lock(s.path); err != nil {
		return err
	}
	if err := createPrivate(s.path); err != nil {
		return err
	}
	if s.blobs, err = openBlobs(opts.CapturesDir, s.writeTimeout/2); err != nil {
		return err
	}
	if s.write, err = openWriter(ctx, s.path); err != nil {
		return err
	}
	if err := migrate(ctx, s.write, s.path); err != nil {
		return err
	}
	if s.read, err = openReaders(s.path); err != nil {
		return err
	}
	s.files, err = identifyFiles(s.path, s.path+"-wal", s.path+"-shm", s.lock.Name(), s.blobs.dir)
	return err
}

// realPath resolves symlinks, so that one file has one lock.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the directory: %w", err)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("find the directory: %w", err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// createPrivate creates the database if it does not exist. SQLite creates the files beside it with
// the same mode; the modes of existing ones are corrected.
func createPrivate(path string) error {
	f, err := openPrivate(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), syncDir(filepath.Dir(path))); err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Chmod(path+suffix, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("make %s private: %w", path+suffix, err)
		}
	}
	return nil
}

// Close commits what is queued until ctx ends, and closes the file. A commit that has begun is not
// interrupted. Close must be called once, when no call runs any more: a begin record after it fails
// with shutting_down, and an end record after it is lost.
func (s *Store) Close(ctx context.Context) error {
	if err := s.release(ctx); err != nil {
		return fmt.Errorf("close the audit log %s: %w", s.path, err)
	}
	return nil
}

// release closes what is open. The writer's connection is closed after the readers', because the
// last connection removes the WAL and readers cannot write.
func (s *Store) release(ctx context.Context) error {
	var err error
	if s.writer != nil {
		err = s.writer.close(ctx)
	}
	if s.read != nil {
		err = errors.Join(err, s.read.Close())
	}
	if s.write != nil {
		err = errors.Join(err, s.write.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// readyTimeout bounds how long Ready waits for a busy database.
const readyTimeout = time.Second

// Ready returns an error if a begin record could not be committed now: another program has locked
// the database, the last write failed, or the files were removed, moved or replaced. It writes
// nothing.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := cmp.Or(s.writer.writeError(), s.files.check())
	if err == nil {
		var tx *sql.Tx
		if tx, err = s.write.BeginTx(ctx, nil); err == nil { // takes the lock that a commit needs
			err = tx.Rollback()
		}
	}
	if err != nil {
		return unavailableError(s.path, "write to the audit log", err)
	}
	return nil
}
