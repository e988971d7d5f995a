package audit

import (
	"context"
	"fmt"

	"github.com/dray-dev/dray"
)

// Check reads the audit log at path, changes nothing, and reports damage. It also works while a
// daemon writes. It reads the whole file, so ctx should bound it.
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
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("check the audit log: %w", ctx.Err())
		}
		return damaged(err)
	}
	if verdict != "ok" {
		return damaged(fmt.Errorf("it is damaged: %s", verdict))
	}
	if _, err := db.ExecContext(ctx, lastSeq); err != nil {
		return damaged(err)
	}
	return nil
}
