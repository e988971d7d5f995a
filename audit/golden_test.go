package audit

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// dumpsDir has a directory for each version of the schema, with a database as the Store of that
// version wrote it:
//
//	audit.sql       the database as SQL
//	captures/       the files beside it
//	keys/           the key of its checkpoints, since version 9
//	expected.json   what the Store of that version read from it
//
// A dump is written once, by the commit that adds the migration, and never changed.
const dumpsDir = "testdata/dumps"

// expectedRecords is what a Store reads from a dump, except for the call that runs.
type expectedRecords struct {
	Running string        `json:"running"` // the id of a call without an end record
	Calls   []dray.Record `json:"calls"`
	Changes []Change      `json:"changes"`
}

// readBack reads all calls but the running one, oldest first, and all changed files.
func readBack(t *testing.T, s *Store, running string) expectedRecords {
	t.Helper()
	all := expectedRecords{Running: running}
	for _, item := range slices.Backward(list(t, s, Query{Limit: MaxLimit}).Items) {
		if item.ID != running {
			all.Calls = append(all.Calls, get(t, s, item.ID))
		}
	}
	all.Changes = listChanges(t, s, ChangeQuery{Limit: MaxLimit}).Items
	return all
}

func schemaVersions(t *testing.T) []int64 {
	t.Helper()
	db := rawDB(t, touch(t))
	p, err := newMigrator(db)
	must(t, err)
	var all []int64
	for _, source := range p.ListSources() {
		all = append(all, source.Version)
	}
	return all
}

func dumpDir(version int64) string {
	return filepath.Join(filepath.FromSlash(dumpsDir), fmt.Sprintf("%05d", version))
}

// dumpDirs returns the directories of all dumps, the oldest first.
func dumpDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(filepath.FromSlash(dumpsDir), "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	return dirs
}

// The newest version of the schema has a dump. With -update, one is written if there is none
// (AU-04).
func TestNewestSchemaHasDump(t *testing.T) {
	dir := dumpDir(slices.Max(schemaVersions(t)))
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) && *update {
		writeDump(t, dir)
		return
	}
	if err != nil {
		t.Errorf("%v\nadd to recordSamples what the migration stores, and run "+
			"`go test ./audit -run 'Schema' -update`", err)
	}
}

func writeDump(t *testing.T, dir string) {
	t.Helper()
	opts := options(t.TempDir())
	recordSamples(t, opts)
	s := open(t, opts)
	running := beginOnly(t, s)
	expected, err := json.MarshalIndent(readBack(t, s, running), "", "\t")
	must(t, err)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "captures"), os.DirFS(opts.CapturesDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "keys"), os.DirFS(filesOf(opts.Path).keysDir)); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "audit.sql"), dumpSQL(t, s.read))
	writeFile(t, filepath.Join(dir, "expected.json"), string(expected)+"\n")
}

// sample is a call for a dump.
type sample struct {
	inv dray.Invocation
	res dray.Result
	err error
}

// beginOnly commits the begin record of a call, and returns its id.
func beginOnly(t *testing.T, s *Store) string {
	t.Helper()
	inv := newInvocation("shell")
	if _, err := s.begin(context.Background(), dray.Call{Invocation: inv}, time.Now()); err != nil {
		t.Fatal(err)
	}
	return inv.ID
}

// recordSamples records something of every kind that the audit log stores, and a call that the next
// Open marks as interrupted.
func recordSamples(t *testing.T, opts Options) {
	t.Helper()
	s, _ := reopen(t, opts)
	run(t, s, newInvocation("exec"), exited(0))
	prune(t, s, time.Now())
	recordSampleEvents(t, s)
}

// recordSampleEvents is recordSamples without removed records. It closes the store.
func recordSampleEvents(t *testing.T, s *Store) {
	t.Helper()
	for _, c := range sampleCalls() {
		next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
			return c.res, c.err
		})
		call := dray.Call{Invocation: c.inv}
		if c.inv.Tool == "sync" {
			call.Idempotency = &dray.Idempotency{Key: "key of " + c.inv.ID, Request: "0f"}
		}
		if _, err := s.Executor(next).Execute(context.Background(), call, dray.Discard); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range Kinds() {
		body := k.Body()
		switch body.(type) {
		case *beginBody, *endBody:
			continue // by the calls
		}
		if err := s.RecordEvent(context.Background(), body); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	must(t, s.RequestApproval(context.Background(), Approval{
		ID: "01a2082c-cc10-73b8-9a07-8684ec52b6d0", Hash: "0f", Principal: "uid:0", CreatedAt: now,
		ExpiresAt: now.Add(time.Minute), Request: json.RawMessage(`{}`),
	}, ApprovalChanged{Principal: "uid:0", Owner: "uid:0", Tool: "exec"}))
	beginOnly(t, s)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// sampleCalls returns a call for each reason, and for each way to store one.
func sampleCalls() []sample {
	var all []sample
	for _, name := range slices.Sorted(maps.Keys(roundTrips)) {
		tt := roundTrips[name]
		c := sample{newInvocation("exec"), tt.result, tt.err}
		if tt.change != nil {
			tt.change(&c.inv)
		}
		if len(c.inv.Input) > maxInline {
			c.inv.Input = longJSON(maxInline + 1)
		}
		all = append(all, c)
	}
	for _, n := range []int{2, maxInlineEntries + 1} { // within the row, and in a file
		c := sample{inv: newInvocation("sync"), res: synced(n)}
		c.inv.Context = dray.CallContext{PlanID: "p1", SessionID: "s1"}
		all = append(all, c)
	}
	for reason, code := range map[dray.Reason]dray.Code{
		dray.ReasonExited: dray.CodeOutputInvalid, dray.ReasonIdleTimeout: "",
		dray.ReasonOutputLimit: dray.CodeLimitExceeded, dray.ReasonOOM: "",
		dray.ReasonStartFailed: dray.CodeExecutableNotFound, dray.ReasonDenied: dray.CodeDenied,
		dray.ReasonInvalid: dray.CodeInvalidInput, dray.ReasonUnavailable: dray.CodeAgentLost,
	} {
		c := sample{inv: newInvocation("shell"), res: dray.Result{Reason: reason}}
		if reason == dray.ReasonExited {
			c.res = exited(0)
		}
		if code != "" {
			c.res.Error = dray.Errorf(code, "sample").WithHint("none")
		}
		all = append(all, c)
	}
	return all
}

// dumpSQL returns the statements that restore a database: the tables with their rows, then indexes,
// triggers and views.
func dumpSQL(t *testing.T, db *sql.DB) string {
	t.Helper()
	var b strings.Builder
	for _, table := range texts(t, db, `SELECT name FROM sqlite_schema
		WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY rowid`) {
		b.WriteString(scan[string](t, db, `SELECT sql FROM sqlite_schema WHERE name = ?`, table) + ";\n")
		values := scan[string](t, db, `SELECT group_concat('quote("' || name || '")', ' || '','' || ')
			FROM pragma_table_info(?)`, table)
		for _, row := range texts(t, db, `SELECT `+values+` FROM "`+table+`"`) {
			fmt.Fprintf(&b, "INSERT INTO %s VALUES (%s);\n", table, row)
		}
	}
	for _, statement := range texts(t, db, `SELECT sql FROM sqlite_schema
		WHERE type <> 'table' AND sql IS NOT NULL ORDER BY rowid`) {
		b.WriteString(statement + ";\n")
	}
	return b.String()
}

func texts(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	all, err := selectAll(context.Background(), db, selectQuery{sql: query},
		func(s *string) []any { return []any{s} })
	must(t, err)
	return all
}

// restoreDump restores a dump into a new directory.
func restoreDump(t *testing.T, dir string) (Options, expectedRecords) {
	t.Helper()
	opts := options(t.TempDir())
	statements, err := os.ReadFile(filepath.Join(dir, "audit.sql"))
	must(t, err)
	writeFile(t, opts.Path, "")
	mustExec(t, rawDB(t, opts.Path), "BEGIN;"+string(statements)+"COMMIT")
	if err := os.CopyFS(opts.CapturesDir, os.DirFS(filepath.Join(dir, "captures"))); err != nil {
		t.Fatal(err)
	}
	restoreKeys(t, filepath.Join(dir, "keys"), filesOf(opts.Path))
	var want expectedRecords
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	must(t, err)
	return opts, want
}

// restoreKeys restores the key of a dump that has one.
func restoreKeys(t *testing.T, from string, to stateFiles) {
	t.Helper()
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := os.CopyFS(to.keysDir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to.key, 0o600); err != nil { // a checkout has other modes
		t.Fatal(err)
	}
}

// A database of each released schema opens, its events are unchanged, and its calls and changed
// files read back as the version that wrote it read them (AU-03, AU-04).
func TestDumpsReadBack(t *testing.T) {
	for _, dir := range dumpDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			opts, want := restoreDump(t, dir)
			const events = `SELECT concat_ws('|', seq, invocation, kind, at, body, hex(leaf)) FROM events`
			before := texts(t, rawDB(t, opts.Path), events)
			s, interrupted := reopen(t, opts)
			if after := texts(t, s.read, events); !slices.Equal(after[:len(before)], before) {
				t.Errorf("the events are\n%q\nwere\n%q", after, before)
			}
			if rec := get(t, s, want.Running); interrupted != 1 ||
				rec.Reason != dray.ReasonInterrupted {
				t.Errorf("Open marked %d calls as interrupted; the one that ran is %+v", interrupted, rec)
			}
			checkContains(t, asJSON(t, readBack(t, s, want.Running)), asJSON(t, want), "")
			checkLeaves(t, s.read)
		})
	}
}

// Calls of each released schema are found by what later versions have a column for (AU-04, AU-08).
func TestDumpsAreFound(t *testing.T) {
	for _, dir := range dumpDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			opts, want := restoreDump(t, dir)
			s, _ := reopen(t, opts)
			for _, rec := range want.Calls {
				queries := []Query{{Workspace: cmp.Or(rec.Route.Workspace, rec.Workspace)}}
				for name, value := range rec.Context.Labels {
					queries = append(queries, Query{LabelName: name, LabelValue: value})
				}
				if rec.Error != nil {
					queries = append(queries, Query{Code: rec.Error.Code})
				}
				for _, q := range queries {
					q.Limit = MaxLimit
					if !slices.ContainsFunc(list(t, s, q).Items,
						func(found dray.Record) bool { return found.ID == rec.ID }) {
						t.Errorf("%+v does not find %s", q, rec.ID)
					}
				}
			}
		})
	}
}

// asJSON returns a value as the generic types of encoding/json.
func asJSON(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	var generic any
	if err == nil {
		err = json.Unmarshal(b, &generic)
	}
	must(t, err)
	return generic
}

// checkContains reports members of want that got lacks or that differ. Later versions may have more
// members.
func checkContains(t *testing.T, got, want any, path string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for name, value := range want {
			checkContains(t, got[name], value, path+"/"+name)
		}
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			t.Errorf("%s has %d elements, want %d", path, len(got), len(want))
			return
		}
		for i, value := range want {
			checkContains(t, got[i], value, fmt.Sprintf("%s/%d", path, i))
		}
	default:
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}
