package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/dray-dev/dray"
)

// Repair is the result of a repair.
type Repair struct {
	// Backup is a copy of the database from before.
	Backup string `json:"backup"`
	// Before is what was found, and After what is left.
	Before Report `json:"before"`
	After  Report `json:"after"`
}

// RepairLog corrects what is computed from events: the rows of calls and changed files, the hashes
// of the Merkle log, and the indexes. All of it is one transaction. It computes nothing from an
// event that was changed, and never changes an event. No daemon may have the log open. It makes a
// copy of the database first, beside it, and fails with disk_full if there is no space for it.
func RepairLog(ctx context.Context, opts VerifyOptions) (Repair, error) {
	var done Repair
	path, err := realPath(opts.Path)
	if err != nil {
		return done, err
	}
	held, err := lock(path)
	if err != nil {
		return done, err
	}
	defer held.Close()
	db, err := openSQLite(path, url.Values{
		"mode": {"rw"}, "_synchronous": {"FULL"}, "_busy_timeout": {"5000"}, "_stmt_cache_size": {"32"},
	})
	if err != nil {
		return done, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if done.Backup, err = copyDatabase(ctx, db, path); err != nil {
		return done, err
	}
	if done.Before, err = verify(ctx, db, opts, true); err != nil {
		return done, err
	}
	done.After, err = verify(ctx, db, opts, false)
	return done, err
}

// copyDatabase copies the database to a file beside it.
func copyDatabase(ctx context.Context, db *sql.DB, path string) (string, error) {
	if _, err := db.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
		return "", unavailableError(path, "copy the audit log", err)
	}
	from, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("copy the audit log: %w", err)
	}
	defer from.Close()
	if err := checkSpace(from); err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s.before-repair-%s", path, time.Now().UTC().Format("20060102T150405Z"))
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("copy the audit log: %w", err)
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return "", fmt.Errorf("copy the audit log: %w", errors.Join(err, os.Remove(name)))
	}
	return name, syncDir(filepath.Dir(name))
}

// checkSpace fails unless the disk has space for a copy of the database, and for the transaction.
func checkSpace(database *os.File) error {
	info, err := database.Stat()
	if err != nil {
		return fmt.Errorf("find the size of the audit log: %w", err)
	}
	free, _, err := diskSpace(filepath.Dir(database.Name()))
	if err != nil {
		return err
	}
	if need := 2 * info.Size(); free < need {
		return dray.Errorf(dray.CodeDiskFull, "a repair needs %d bytes on the disk of %s, %d are free",
			need, database.Name(), free).WithHint("free space, then repeat the command")
	}
	return nil
}
