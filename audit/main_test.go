package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
)

func TestMain(m *testing.M) {
	dir, statement := os.Getenv(crashDir), os.Getenv(killAtStatement)
	switch {
	case os.Getenv(backupChildDir) != "":
		backupChild(os.Getenv(backupChildDir))
		return
	case os.Getenv(readerChildPath) != "":
		readerChild(os.Getenv(readerChildPath))
		return
	case statement != "":
		migrateChild(dir, statement)
		return
	case dir != "":
		crashChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

var lastID atomic.Int64

// newID returns an id in the form of a UUIDv7, greater than the previous one.
func newID() string { return fmt.Sprintf("019a7b2c-0000-7000-8000-%012x", lastID.Add(1)) }

func options(dir string) Options {
	return Options{
		Path: filepath.Join(dir, "audit.db"), CapturesDir: filepath.Join(dir, "captures"),
		WriteTimeout: 10 * time.Second,
	}
}

// open returns a store that is closed when the test ends.
func open(t testing.TB, opts Options) *Store {
	t.Helper()
	s, _, err := Open(context.Background(), opts)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reopen opens a store and returns the number of interrupted calls.
func reopen(t *testing.T, opts Options) (*Store, int) {
	t.Helper()
	s, n, err := Open(context.Background(), opts)
	must(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s, n
}

// rawDB returns a connection to the file as another program has it.
func rawDB(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", dsn(path,
		url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_busy_timeout": {"5000"}}))
	must(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func scan[T any](t testing.TB, db querier, query string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRowContext(context.Background(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func mustExec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func newInvocation(tool string) dray.Invocation {
	return dray.Invocation{ID: newID(), Tool: tool, Input: json.RawMessage(`{}`), Principal: "uid:0"}
}

func exited(code int) dray.Result {
	return dray.Result{Reason: dray.ReasonExited, ExitCode: &code}
}

// returning returns an executor that runs nothing and returns res.
func returning(res dray.Result) dray.Executor {
	execute := func(context.Context, dray.Call, dray.Sink) (dray.Result, error) { return res, nil }
	return dray.ExecutorFunc(execute)
}

// run records a call and fails the test if that fails.
func run(t testing.TB, s *Store, inv dray.Invocation, res dray.Result) dray.Result {
	t.Helper()
	res, err := s.Executor(returning(res)).
		Execute(context.Background(), dray.Call{Invocation: inv}, dray.Discard)
	must(t, err)
	return res
}

func get(t testing.TB, s *Store, id string) dray.Record {
	t.Helper()
	rec, err := s.Get(context.Background(), "", id)
	must(t, err)
	return rec
}

// mustNotRun returns an Executor for a call that must not run.
func mustNotRun(t *testing.T) dray.Executor {
	return dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		t.Error("the call ran")
		return exited(0), nil
	})
}

func list(t testing.TB, s *Store, q Query) Page {
	t.Helper()
	page, err := s.List(context.Background(), q)
	must(t, err)
	return page
}

// codeOf returns the code of an error, empty for nil.
func codeOf(err error) dray.Code {
	if err == nil {
		return ""
	}
	return dray.CodeOf(err)
}
