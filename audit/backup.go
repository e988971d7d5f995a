package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// ManifestName is the name of the file in a backup that lists all others.
const ManifestName = "backup.json"

// backupPages is the number of pages of the database that are copied before Backup looks whether it
// was cancelled.
const backupPages = 2048

// BackupOptions configure Backup.
type BackupOptions struct {
	// Path and CapturesDir are those of the store. Keys and checkpoints are beside Path.
	Path, CapturesDir string
	// Dir is the directory to create. It must not exist.
	Dir string
	// WithKeys also copies the private keys, so that a restored log signs its checkpoints and
	// recognizes idempotency keys.
	WithKeys bool
	// Progress is called with what is copied, in pages for the database and else in files; nil for no
	// calls.
	Progress func(what string, done, total int64)
}

// Manifest describes a backup.
type Manifest struct {
	Dir       string       `json:"-"`
	CreatedAt time.Time    `json:"created_at"`
	Events    int64        `json:"events"` // number of the last event
	Keys      bool         `json:"keys"`   // whether private keys are in it
	Bytes     int64        `json:"bytes"`  // of all files
	Files     []BackupFile `json:"files"`
}

// BackupFile is a file in a backup. Path is relative to the directory, with slashes.
type BackupFile struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// backup is a backup that is being written to a directory beside the final one.
type backup struct {
	opts BackupOptions
	dir  string
	Manifest
}

// Backup copies the audit log to a new directory, which has the form of a state directory: the
// database, checked, as it was at one moment, the captures, the checkpoints and the public key.
// It works with and without a daemon that writes, and does not block it; meanwhile the file
// audit.db-wal grows by what is written. All files have mode 0600.
//
// The directory gets its name when everything is on disk. Backup fails with conflict if it exists.
func Backup(ctx context.Context, opts BackupOptions) (Manifest, error) {
	if _, err := os.Lstat(opts.Dir); !errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, dray.Errorf(dray.CodeConflict, "%s exists", opts.Dir).
			WithHint("name a directory that does not exist: a backup overwrites nothing")
	}
	if _, err := os.Stat(opts.Path); err != nil {
		return Manifest{}, dray.Errorf(dray.CodeNotFound, "no audit log to back up: %w", err).
			WithHint("choose the state directory of the daemon with --state")
	}
	parent, name := filepath.Split(filepath.Clean(opts.Dir))
	dir, err := os.MkdirTemp(filepath.Clean(parent), "."+name+".partial-")
	if err != nil {
		return Manifest{}, dray.Errorf(dray.CodeInvalidRequest, "create the backup: %w", err).
			WithHint("name a directory in one that exists and that you can write to")
	}
	b := &backup{opts: opts, dir: dir, Manifest: Manifest{
		Dir: opts.Dir, CreatedAt: time.Now().UTC(), Keys: opts.WithKeys,
	}}
	if err := b.write(ctx); err != nil {
		return Manifest{}, errors.Join(backupError(opts.Dir, err), os.RemoveAll(dir))
	}
	return b.Manifest, nil
}

// backupError adds a code and a hint to an error that has none.
func backupError(dir string, err error) error {
	known, isKnown := errors.AsType[*dray.Error](err)
	sqlite, isSQLite := errors.AsType[sqlite3.Error](err)
	switch {
	case isKnown:
		return known
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT),
		isSQLite && sqlite.Code == sqlite3.ErrFull:
		return dray.Errorf(dray.CodeDiskFull, "%w", err).WithHint("free space on the disk of %s", dir)
	default:
		return dray.Errorf(dray.CodeAuditUnavailable, "%w", err).
			WithHint("check the audit log with `dray doctor`, and the disk of %s", dir)
	}
}

// write copies the checkpoints before the database, so that none is newer than it, and the captures
// after it, so that all that it names exist. Retention removes no capture meanwhile.
func (b *backup) write(ctx context.Context) error {
	captures, err := os.Open(b.opts.CapturesDir)
	if err != nil {
		return fmt.Errorf("open the captures directory: %w", err)
	}
	defer captures.Close()
	if err := unix.Flock(int(captures.Fd()), unix.LOCK_SH); err != nil {
		return fmt.Errorf("lock the captures directory: %w", err)
	}
	files := filesOf(b.opts.Path)
	isKey := func(name string) bool { return b.opts.WithKeys || strings.HasSuffix(name, ".pub") }
	isCapture := func(name string) bool { return !strings.HasPrefix(name, newPrefix) }
	for _, step := range []func() error{
		func() error { return b.copyDir(ctx, files.keysDir, isKey) },
		func() error { return b.copyDir(ctx, files.checkpoints, isCapture) },
		func() error { return b.copyDatabase(ctx) },
		func() error { return b.copyDir(ctx, b.opts.CapturesDir, isCapture) },
		b.finish,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// copyDir copies the regular files of a directory that take accepts. One that is removed meanwhile
// is skipped: captured output may be, and an old checkpoint.
func (b *backup) copyDir(ctx context.Context, from string, take func(string) bool) error {
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list %s: %w", from, err)
	}
	name := filepath.Base(from)
	if err := os.Mkdir(filepath.Join(b.dir, name), 0o700); err != nil {
		return fmt.Errorf("create the backup: %w", err)
	}
	for i, e := range entries {
		if !e.Type().IsRegular() || !take(e.Name()) {
			continue
		}
		err := b.copyFile(filepath.Join(from, e.Name()), filepath.Join(name, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		b.progress(name, int64(i+1), int64(len(entries)))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (b *backup) copyFile(from, name string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open a file to copy: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(filepath.Join(b.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create a copy: %w", err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(target, sum), source)
	if err := errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	b.add(name, n, sum.Sum(nil))
	return nil
}

func (b *backup) add(name string, n int64, sum []byte) {
	b.Bytes += n
	b.Files = append(b.Files,
		BackupFile{Path: filepath.ToSlash(name), Bytes: n, SHA256: hex.EncodeToString(sum)})
}

func (b *backup) progress(what string, done, total int64) {
	if b.opts.Progress != nil {
		b.opts.Progress(what, done, total)
	}
}

// copyDatabase copies the database as it is at one moment: the source is read within a transaction.
func (b *backup) copyDatabase(ctx context.Context) error {
	path := filepath.Join(b.dir, "audit.db")
	if err := createPrivate(path); err != nil {
		return err
	}
	from, err := openReaders(b.opts.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openSQLite(path, url.Values{"mode": {"rw"}})
	if err != nil {
		return err
	}
	defer to.Close()
	to.SetMaxOpenConns(1)
	if err := b.copyPages(ctx, from, to); err != nil {
		return fmt.Errorf("copy the audit log: %w", err)
	}
	if err := quickCheck(ctx, to); err != nil {
		return dray.Errorf(dray.CodeAuditUnavailable, "check the copy of %s: %w", b.opts.Path, err).
			WithHint("run `dray audit verify`, check the disk of the backup, then repeat the command")
	}
	if err := to.Close(); err != nil { // removes the WAL of the copy
		return fmt.Errorf("close the copy: %w", err)
	}
	return b.addDatabase(path)
}

// addDatabase reads the copy for its hash.
func (b *backup) addDatabase(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	b.add("audit.db", n, sum.Sum(nil))
	return nil
}

func (b *backup) copyPages(ctx context.Context, from, to *sql.DB) error {
	source, err := from.Conn(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := to.Conn(ctx)
	if err != nil {
		return err
	}
	defer target.Close()
	if _, err := source.ExecContext(ctx, `BEGIN`); err != nil {
		return err
	}
	defer func() { _, _ = source.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`) }()
	if err := source.QueryRowContext(ctx, lastSeq).Scan(&b.Events); err != nil {
		return err // the snapshot begins with this query
	}
	return rawConn(target, func(to *sqlite3.SQLiteConn) error {
		return rawConn(source, func(from *sqlite3.SQLiteConn) error {
			return b.stepPages(ctx, from, to)
		})
	})
}

func rawConn(conn *sql.Conn, do func(*sqlite3.SQLiteConn) error) error {
	return conn.Raw(func(c any) error {
		raw, ok := c.(*sqlite3.SQLiteConn)
		if !ok {
			return fmt.Errorf("unexpected driver %T", c)
		}
		return do(raw)
	})
}

func (b *backup) stepPages(ctx context.Context, from, to *sqlite3.SQLiteConn) (err error) {
	pages, err := to.Backup("main", from, "main")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pages.Finish()) }()
	for done := false; !done; {
		if done, err = pages.Step(backupPages); err != nil {
			return err
		}
		total := int64(pages.PageCount())
		b.progress("audit.db, pages", total-int64(pages.Remaining()), total)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// finish writes the manifest, and gives the directory its name when all is on disk.
func (b *backup) finish() error {
	slices.SortFunc(b.Files, func(a, b BackupFile) int { return strings.Compare(a.Path, b.Path) })
	text, err := json.MarshalIndent(b.Manifest, "", "\t")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	err = os.WriteFile(filepath.Join(b.dir, ManifestName), append(text, '\n'), 0o600)
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := syncFileSystem(b.dir); err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, b.dir, unix.AT_FDCWD, b.opts.Dir, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a network file system; only an empty directory is replaced
		err = os.Rename(b.dir, b.opts.Dir)
	}
	if err != nil {
		return fmt.Errorf("rename the backup to %s: %w", b.opts.Dir, err)
	}
	return syncDir(filepath.Dir(b.opts.Dir))
}

// syncFileSystem syncs all files of the file system of a directory: captures are many.
func syncFileSystem(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s to sync it: %w", dir, err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
