package audit

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/dray-dev/dray/migrations"
)

// freshSchema returns the statements of the schema that the migrations make, by type and name.
func freshSchema(ctx context.Context) (map[string]string, error) {
	db, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("open a database in memory: %w", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a database of its own
	p, err := newMigrator(db)
	if err != nil {
		return nil, err
	}
	if _, err := p.Up(ctx); err != nil {
		return nil, fmt.Errorf("make the schema: %w", err)
	}
	return readSchema(ctx, db)
}

func readSchema(ctx context.Context, db querier) (map[string]string, error) {
	all, err := selectAll(ctx, db, selectQuery{sql: `SELECT type || ' ' || name, sql
		FROM main.sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`},
		func(s *[2]string) []any { return []any{&s[0], &s[1]} })
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	schema := map[string]string{}
	for _, s := range all {
		schema[s[0]] = s[1]
	}
	return schema, nil
}

// newestSchema returns the version of the schema that the migrations make.
func newestSchema() (version int64, err error) {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err == nil {
		version, err = goose.NumericComponent(slices.Max(names))
	}
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	return version, nil
}

// compareSchema compares the tables, indexes, triggers and views with those that the migrations
// make. What others added is no finding, except for triggers.
func (v *verifier) compareSchema(ctx context.Context) error {
	want, err := freshSchema(ctx)
	if err != nil {
		return err
	}
	got, err := readSchema(ctx, v.db)
	if err != nil {
		return err
	}
	for name, statement := range want {
		if got[name] != statement {
			v.add(Finding{
				Kind: FindingDamage, Column: name, Expected: statement, Got: got[name],
				Message: "the schema was changed",
			})
		}
	}
	for name, statement := range got {
		if want[name] == "" && strings.HasPrefix(name, "trigger ") {
			v.add(Finding{
				Kind: FindingDamage, Column: name, Got: statement, Message: "a trigger was added",
			})
		}
	}
	return nil
}
