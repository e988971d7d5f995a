package audit

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dray-dev/dray"
)

// Check reads the audit log at path, changes nothing, and reports damage, and a schema of a later
// version of dray. It also works while a daemon writes. It reads the whole file, so ctx should
// bound it.
func Check(ctx context.Context, path string) error {
	db, err := openReaders(path)
	if err != nil {
		return err
	}
	defer db.Close()
	damaged := func(err error) error {
		return dray.Errorf(dray.CodeAuditUnavailable, "read the audit log %s: %w", path, err).
			WithHint("move %s away, with the files beside it that begin with its name, to begin a new "+
				"audit log, or restore a backup", path)
	}
	if err := quickCheck(ctx, db); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("check the audit log: %w", ctx.Err())
		}
		return damaged(err)
	}
	if _, err := db.ExecContext(ctx, lastSeq); err != nil {
		return damaged(err)
	}
	var schema int64
	err = db.QueryRowContext(ctx, `SELECT max(version_id) FROM goose_db_version`).Scan(&schema)
	if err != nil {
		return damaged(err)
	}
	p, err := newMigrator(db)
	if err != nil {
		return err
	}
	return checkSchema(p, schema, path)
}

// quickCheck fails if the structure of a database is damaged. It does not compare indexes with
// their tables.
func quickCheck(ctx context.Context, db *sql.DB) error {
	var verdict string
	err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = fmt.Errorf("it is damaged: %s", verdict)
	}
	return err
}
