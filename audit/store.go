package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// Options say where a trail lies.
type Options struct {
	// Path is the database; its folder must exist. Beside it lie PATH-wal, PATH-shm and PATH.lock, all
	// with mode 0600.
	Path string
	// CapturesDir is the folder for inputs and outputs over 8 KiB; it is made if need be, with mode
	// 0700.
	CapturesDir string
	// Log hears of trouble and of panics; nil is silence.
	Log *zap.Logger
	// WriteTimeout is how long a begin, and an end, waits for a database that is locked or full; 0
	// means 15 s.
	WriteTimeout time.Duration
}

// Store is an open trail. Its methods may be used from several goroutines.
type Store struct {
	path         string
	log          *zap.Logger
	writeTimeout time.Duration
	lock         *os.File
	files        *blobStore
	write        *sql.DB // one connection, the writer's
	read         *sql.DB
	writer       *writer
}

// Open opens the trail, makes or migrates it, and ends as interrupted every call that an earlier
// daemon left without an end; it gives their number. It fails with audit_unavailable if another
// dray has the file open, if it is locked, or if a newer dray wrote it.
func Open(ctx context.Context, opts Options) (store *Store, interrupted int, err error) {
	s := &Store{log: opts.Log, writeTimeout: opts.WriteTimeout}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	if s.writeTimeout == 0 {
		s.writeTimeout = 15 * time.Second
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithCancel(ctx)
			cancel() // what could not be written until now is found again by the next Open
			err = unavailableError(opts.Path, "open the trail "+opts.Path, errors.Join(err, s.release(ctx)))
		}
	}()
	if err := s.openLocked(opts); err != nil {
		return nil, 0, err
	}
	if err := s.openDatabase(ctx); err != nil {
		return nil, 0, err
	}
	s.writer = newWriter(ctx, s.write, s.log)
	if interrupted, err = s.interrupt(ctx); err != nil {
		return nil, 0, err
	}
	return s, interrupted, nil
}

// openLocked takes the lock, and only then touches anything else: closing a file that another part
// of this process has open in SQLite would drop SQLite's own locks on it.
func (s *Store) openLocked(opts Options) error {
	path, err := realPath(opts.Path)
	if err != nil {
		return err
	}
	s.path = path
	if s.lock, err = lock(path); err != nil {
		return err
	}
	if err := createPrivate(path); err != nil {
		return err
	}
	s.files, err = openBlobs(opts.CapturesDir)
	return err
}

// realPath follows links, so that one file has one lock.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the folder: %w", err)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("find the folder: %w", err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// createPrivate makes the database if it is not there. SQLite gives the files beside it the mode of
// this one; those of an earlier run are put right.
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

// submit waits for a commit as long as the patience lasts, whatever becomes of the caller.
func (s *Store) submit(ctx context.Context, jobs ...*pendingEvent) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.writeTimeout)
	defer cancel()
	return s.writer.submit(ctx, jobs...)
}

// Close commits what is queued, until ctx ends, and closes the file. It is called once, when no
// call runs any more: a begin after it fails with shutting_down, and an end after it is not
// recorded.
func (s *Store) Close(ctx context.Context) error {
	if err := s.release(ctx); err != nil {
		return fmt.Errorf("close the trail %s: %w", s.path, err)
	}
	return nil
}

// release closes what is open. The readers go first: the last connection tidies the WAL away, and
// they could not.
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

// readyTimeout is how long Ready waits for a database that is busy.
const readyTimeout = time.Second

// Ready says why a begin could not be committed now: the database is locked by another program, or
// the last attempt to write has failed. It writes nothing.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.writer.writeError(); err != nil {
		return unavailableError(s.path, "write to the trail", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tx, err := s.write.BeginTx(ctx, nil) // it takes the lock that a commit needs
	if err == nil {
		err = tx.Rollback()
	}
	if err != nil {
		return unavailableError(s.path, "write to the trail", err)
	}
	return nil
}

// writeError says why nothing is written: the database does not take it, or the writer is closed.
func (w *writer) writeError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	return w.lastErr
}
