package audit

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dray-dev/dray/migrations"
)

// dumpSchema gives the statements that would make the schema.
func dumpSchema(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name, type != 'table', type, name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		b.WriteString(s + ";\n\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// AU-04: the schema after each migration is the one that was released with it.
func TestSchemaAfterEachMigration(t *testing.T) {
	db, err := openWriter(context.Background(), touch(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := newMigrator(db)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range p.ListSources() {
		if _, err := p.UpTo(context.Background(), source.Version); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "schema", fmt.Sprintf("%05d.sql", source.Version))
		got := dumpSchema(t, db)
		if *update {
			writeFile(t, golden, got)
		}
		if want, err := os.ReadFile(golden); err != nil || got != string(want) {
			t.Errorf("the schema after %s is not %s (%v); it is\n%s", source.Path, golden, err, got)
		}
	}
}

// touch makes an empty database file.
func touch(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.db")
	writeFile(t, path, "")
	return path
}

// AU-04: forward only, numbered without gaps, each in one transaction.
func TestMigrationFiles(t *testing.T) {
	names, err := fs.Glob(migrations.FS, "*")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	form := regexp.MustCompile(`^\d{5}_[a-z_]+\.sql$`)
	for i, name := range names {
		if !form.MatchString(name) || !strings.HasPrefix(name, fmt.Sprintf("%05d_", i+1)) {
			t.Errorf("file %d is %s", i+1, name)
		}
		b, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"+goose Down", "NO TRANSACTION"} {
			if strings.Contains(string(b), word) {
				t.Errorf("%s has %q", name, word)
			}
		}
	}
}

// AU-04: a migration that was broken off is not there at all, and the next start makes it whole.
func TestMigrationResumes(t *testing.T) {
	opts := options(t.TempDir())
	writeFile(t, opts.Path, "")
	db := rawDB(t, opts.Path)
	// The last table of the first migration is in the way.
	mustExec(t, db, `CREATE TABLE invocations (x)`)
	if _, _, err := Open(context.Background(), opts); err == nil {
		t.Fatal("Open gives no error")
	}
	if got := scan[int](t, db, `SELECT count(*) FROM sqlite_schema WHERE name = 'events'`); got != 0 {
		t.Error("half of a migration is there")
	}
	mustExec(t, db, `DROP TABLE invocations`)
	run(t, open(t, opts), newInvocation("exec"), exited(0))
}

// AU-04: commits are as durable as SQLite makes them.
func TestPragmas(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2",
		"foreign_keys": "1", "busy_timeout": busyTimeout,
	} {
		if got := scan[string](t, s.write, "PRAGMA "+pragma); got != want {
			t.Errorf("%s of the writer is %s, want %s", pragma, got, want)
		}
	}
}

// The cost of a call does not grow with the trail: no statement of the writer, with all its
// triggers and references, walks a table.
func TestWritesWalkNoTable(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for _, statement := range []string{
		lastSeq, insertEvent, projectBegun, projectEnded,
		projectInterrupted, insertChangedFiles,
	} {
		ops := explain(t, s.write, statement)
		for i := 0; i < len(ops); i++ {
			switch op := ops[i]; {
			case op.code == "FkIfZero" && op.p1 == 0:
				// Looks for rows that wait for this one, if any waits within this very statement: none does.
				i = op.p2 - 1
			case op.code == "Rewind":
				t.Errorf("%s\nwalks a table at step %d", statement, i)
			}
		}
	}
}

type operation struct {
	code   string
	p1, p2 int
}

// explain gives the program of a statement, followed by those of its triggers.
func explain(t *testing.T, db *sql.DB, statement string) (ops []operation) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), "EXPLAIN "+statement,
		make([]any, strings.Count(statement, "?"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var op operation
		var addr, p3, p4, p5, comment any
		if err := rows.Scan(&addr, &op.code, &op.p1, &op.p2, &p3, &p4, &p5, &comment); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	if err := rows.Err(); err != nil || len(ops) == 0 {
		t.Fatalf("%s\nis explained in %d steps, %v", statement, len(ops), err)
	}
	return ops
}
