package audit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// Options configure a Store.
type Options struct {
	// Path is the database; its directory must exist. PATH-wal, PATH-shm and PATH.lock are created
	// beside it, all with mode 0600, and the directories keys and checkpoints with mode 0700.
	Path string
	// CapturesDir is the directory for inputs and outputs over 8 KiB. It is created with mode 0700.
	CapturesDir string
	// Log receives failed writes and panics; nil discards them.
	Log *zap.Logger
	// WriteTimeout bounds how long a call waits for the commit of its begin or end record while the
	// database is locked or full, or the disk does not respond. Half of it, before that, bounds the
	// wait for a file in CapturesDir. 0 means 15 s.
	WriteTimeout time.Duration
	// Redact replaces the secrets in the JSON of an event that belongs to no call; nil replaces none.
	// Calls are redacted by the caller.
	Redact func(body []byte) []byte
	// Recover is called with the ids of calls that have no end record, before they are marked as
	// interrupted. It ends what may be left of them, and returns what is known of them by id. Nil
	// knows nothing.
	Recover func(ctx context.Context, ids []string) map[string]dray.Metadata
	// Degrade lets calls run while the log cannot be written. Their records are committed in order
	// when it can be again, and lost if the process ends before. Else such calls are refused.
	Degrade bool
	// Disk has the marks of the free space of the disk of Path.
	Disk DiskMarks
}

// Store is an open audit log. It is safe for concurrent use.
type Store struct {
	recorder
	lock  *os.File
	write *sql.DB // the writer's single connection
	read  *sql.DB

	checkpoints *checkpointer
	rejections  *rejections
	pruning     sync.Mutex // held while retention runs
}

// Open opens, creates or migrates the audit log. It marks calls that an earlier daemon left without
// an end record as interrupted and returns their number. It fails with audit_unavailable if another
// daemon has the file open, if it is locked, or if a newer version wrote it.
func Open(ctx context.Context, opts Options) (store *Store, interrupted int, err error) {
	s := &Store{recorder: recorder{
		log: opts.Log, writeTimeout: opts.WriteTimeout, redact: opts.Redact, degrade: opts.Degrade,
	}}
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
	edge, err := s.openProof(ctx)
	if err != nil {
		return nil, 0, err
	}
	s.disk = newDisk(s.path, opts.Disk, s.log, s.PostEvent)
	s.writer = newWriter(ctx, s.write, s.files, edge, s.disk, s.log)
	s.rejections = newRejections(s.writer)
	_ = s.disk.check() // it warns, and the next call fails
	if interrupted, err = s.interrupt(ctx, s.read, opts.Recover); err != nil {
		return nil, 0, err
	}
	s.checkpoints.start(ctx, s.writer)
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
		s.rejections.close()
		err = s.writer.close(ctx)
		s.rejections.recording.Wait()
	}
	if s.checkpoints != nil && s.checkpoints.writer != nil {
		err = errors.Join(err, s.checkpoints.close())
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
// the database, the last write failed, the disk is nearly full, or the files were removed, moved,
// replaced or cut short.
func (s *Store) Ready(ctx context.Context) error {
	if s.degrade {
		return nil
	}
	return s.writable(ctx)
}

// writable returns why a record could not be committed now.
func (s *Store) writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := cmp.Or(s.writer.writeError(), s.files.check(), s.disk.check())
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
