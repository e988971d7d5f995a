package audit

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/migrations"
)

// dumpSchema returns the statements that create the schema.
func dumpSchema(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name, type != 'table', type, name`)
	must(t, err)
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

// The schema after each migration is the released one (AU-04).
func TestSchemaAfterEachMigration(t *testing.T) {
	db, err := openWriter(context.Background(), touch(t))
	must(t, err)
	defer db.Close()
	p, err := newMigrator(db)
	must(t, err)
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
			t.Errorf("the schema after %s differs from %s (%v):\n%s", source.Path, golden, err, got)
		}
	}
}

// touch creates an empty database file.
func touch(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.db")
	writeFile(t, path, "")
	return path
}

// Migrations go forward only, are numbered without gaps, and run in one transaction each (AU-04).
func TestMigrationFileRules(t *testing.T) {
	names, err := fs.Glob(migrations.FS, "*")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	pattern := regexp.MustCompile(`^\d{5}_[a-z_]+\.sql$`)
	for i, name := range names {
		if !pattern.MatchString(name) || !strings.HasPrefix(name, fmt.Sprintf("%05d_", i+1)) {
			t.Errorf("file %d is %s", i+1, name)
		}
		b, err := fs.ReadFile(migrations.FS, name)
		must(t, err)
		for _, directive := range []string{"+goose Down", "NO TRANSACTION"} {
			if strings.Contains(string(b), directive) {
				t.Errorf("%s has %q", name, directive)
			}
		}
	}
}

// A failed migration leaves nothing, and the next Open completes it (AU-04).
func TestFailedMigrationResumes(t *testing.T) {
	opts := options(t.TempDir())
	writeFile(t, opts.Path, "")
	db := rawDB(t, opts.Path)
	// The last table of the first migration exists already.
	mustExec(t, db, `CREATE TABLE invocations (x)`)
	if _, _, err := Open(context.Background(), opts); err == nil {
		t.Fatal("Open returns no error")
	}
	if got := scan[int](t, db, `SELECT count(*) FROM sqlite_schema WHERE name = 'events'`); got != 0 {
		t.Error("a part of the failed migration remains")
	}
	mustExec(t, db, `DROP TABLE invocations`)
	run(t, open(t, opts), newInvocation("exec"), exited(0))
}

// Commits are durable: WAL with synchronous FULL (AU-04).
func TestWriterPragmas(t *testing.T) {
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

// No statement of the writer scans a table, including its triggers and references. The cost of a
// call does not grow with the audit log.
func TestWritesScanNoTable(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for _, statement := range []string{
		lastSeq, insertEvent, projectBegun, projectEnded,
		projectInterrupted, insertChangedFiles,
	} {
		ops := explain(t, s.write, statement)
		for i := 0; i < len(ops); i++ {
			switch op := ops[i]; {
			case op.code == "FkIfZero" && op.p1 == 0:
				// Searches for rows that refer to this one within the same statement, of which there are none.
				i = op.p2 - 1
			case op.code == "Rewind":
				t.Errorf("%s\nscans a table at step %d", statement, i)
			}
		}
	}
}

type operation struct {
	code   string
	p1, p2 int
}

// explain returns the program of a statement, followed by those of its triggers.
func explain(t *testing.T, db *sql.DB, statement string) (ops []operation) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), "EXPLAIN "+statement,
		make([]any, strings.Count(statement, "?"))...)
	must(t, err)
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
		t.Fatalf("%s\nhas %d steps, %v", statement, len(ops), err)
	}
	return ops
}

// Rows written with each released schema survive the later migrations, and every filter selects
// them (AU-04, AU-08).
func TestMigrationKeepsRows(t *testing.T) {
	opts := options(t.TempDir())
	writeFile(t, opts.Path, "")
	db := rawDB(t, opts.Path)
	p, err := newMigrator(db)
	must(t, err)
	if _, err := p.UpTo(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `INSERT INTO events VALUES (1, 'a', 'begun', 1, '{}', zeroblob(32)), (2, 'a', 'ended', 2, '{}', zeroblob(32)),
		(3, 'b', 'begun', 3, '{}', zeroblob(32)), (4, 'b', 'ended', 4, '{}', zeroblob(32))`)
	mustExec(t, db, `INSERT INTO invocations (seq, ended_seq, id, tool, principal, status, reason, environment, started_at, ended_at)
		VALUES (1, 2, 'a', 'exec', 'uid:0', 'succeeded', 'exited', 'host', 1, 2), (3, 4, 'b', 'exec', 'uid:0', 'failed', 'timeout', 'host', 3, 4)`)
	s := open(t, opts)
	for id, queries := range map[string][]Query{
		"a": {{Status: dray.StatusSucceeded}, {Reason: dray.ReasonExited}},
		"b": {
			{Status: dray.StatusFailed},
			{Reason: dray.ReasonTimeout},
			{Environment: dray.KindHost, Limit: 1},
		},
	} {
		for _, q := range queries {
			if items := list(t, s, q).Items; len(items) != 1 || items[0].ID != id {
				t.Errorf("%+v selects %+v, want %s", q, items, id)
			}
		}
	}
}

// killAtStatement makes the test binary migrate the database in crashDir and kill itself before the
// given statement of those that change the schema or commit, counted from 1.
const killAtStatement = "DRAY_TEST_KILL_AT_STATEMENT"

func migrateChild(dir, statement string) {
	left, err := strconv.Atoi(statement)
	if err != nil {
		panic(err)
	}
	counted := []int{
		sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_CREATE_TRIGGER,
		sqlite3.SQLITE_CREATE_VIEW, sqlite3.SQLITE_DROP_TABLE, sqlite3.SQLITE_DROP_INDEX,
		sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_DROP_VIEW, sqlite3.SQLITE_ALTER_TABLE,
		sqlite3.SQLITE_TRANSACTION,
	}
	authorize := func(operation int, _, _, _ string) int {
		if slices.Contains(counted, operation) {
			left--
		}
		if left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return sqlite3.SQLITE_OK
	}
	sql.Register("sqlite3_killed", &sqlite3.SQLiteDriver{
		ConnectHook: func(c *sqlite3.SQLiteConn) error {
			c.RegisterAuthorizer(authorize)
			return nil
		},
	})
	path := options(dir).Path
	db, err := sql.Open("sqlite3_killed", dsn(path, url.Values{"_journal_mode": {"WAL"}}))
	if err == nil {
		err = migrate(context.Background(), db, path)
	}
	if err != nil {
		panic(err)
	}
}

// killMigration reports whether a migration was killed before the given statement. It returns false
// if there are fewer statements.
func killMigration(t *testing.T, dir string, statement int) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, killAtStatement+"="+strconv.Itoa(statement))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok ||
		status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended by itself: %v\n%s", err, out)
	}
	return true
}

// A process is killed before each statement of the migrations after the oldest dump, and before
// every fifth one of an empty file. The next Open completes them (AU-04).
func TestKilledMigrationResumes(t *testing.T) {
	want := dumpSchema(t, open(t, options(t.TempDir())).read)
	for _, tt := range []struct {
		name string
		from func(*testing.T) (Options, expectedRecords)
		step int
	}{
		{"empty", func(t *testing.T) (Options, expectedRecords) {
			return options(t.TempDir()), expectedRecords{Changes: []Change{}}
		}, 5},
		{"oldest dump", func(t *testing.T) (Options, expectedRecords) {
			return restoreDump(t, dumpDirs(t)[0])
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for statement := 1; ; statement += tt.step {
				opts, records := tt.from(t)
				if !killMigration(t, filepath.Dir(opts.Path), statement) {
					return
				}
				s, _ := reopen(t, opts)
				if got := dumpSchema(t, s.read); got != want {
					t.Fatalf("killed before statement %d, the schema is\n%s", statement, got)
				}
				checkContains(t, asJSON(t, readBack(t, s, records.Running)), asJSON(t, records), "")
			}
		})
	}
}
