package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// changed returns n changes of files, alternately created and replaced.
func changed(n int, folder string) []dray.FileChange {
	all := make([]dray.FileChange, n)
	for i := range all {
		all[i] = dray.FileChange{
			Environment: dray.KindHost, Path: fmt.Sprintf("%s/%05d \"<é>\n", folder,
				i), Action: dray.FileCreated, SHA256After: fmt.Sprintf("%064x", i),
		}
		if i%2 == 1 {
			all[i].Action, all[i].SHA256Before = dray.FileReplaced, fmt.Sprintf("%064x", i+1)
		}
	}
	return all
}

// synced returns the result of a sync of n files.
func synced(n int) dray.Result {
	res := exited(0)
	report := &dray.SyncReport{
		State: dray.SyncComplete, Files: []dray.SyncedFile{},
		Refused: []dray.RefusedPath{}, Bytes: int64(n),
	}
	for i := range n {
		name := fmt.Sprintf("/srv/results/report/%05d.txt", i)
		report.Files = append(report.Files, dray.SyncedFile{
			Path: name, Source: "/w" + name, Size: 1, SHA256: fmt.Sprintf("%064x",
				i), Mode: "0600", Action: dray.FileCreated,
		})
		report.Targets = append(report.Targets, dray.SyncTarget{Source: "/w" + name, Path: name})
		report.Refused = append(report.Refused,
			dray.RefusedPath{Path: name + ".lnk", Code: dray.CodePathInvalid, Message: "is a link"})
	}
	res.Metadata.Sync, res.Metadata.Changes = report, changed(n, "/srv/results")
	return res
}

func listChanges(t testing.TB, s *Store, q ChangeQuery) ChangePage {
	t.Helper()
	page, err := s.Changes(context.Background(), q)
	must(t, err)
	return page
}

// The changes of a call are recorded with its end record, with action and hashes, and are listed by
// plan, call and path (AU-11).
func TestChangesAreListed(t *testing.T) {
	s := open(t, options(t.TempDir()))
	db := rawDB(t, s.path)
	var ids []string
	for _, c := range []struct {
		plan, principal, folder string
		n                       int
	}{{"p1", "uid:0", "/a", 2}, {"p2", "uid:0", "/b", 1}, {"p1", "uid:7", "/a", 2}, {
		"", "uid:0", "/c",
		0,
	}, {"", "uid:0", "/c", 1}} {
		inv := newInvocation("write_file")
		inv.Context.PlanID, inv.Principal = c.plan, c.principal
		res := exited(0)
		res.Metadata.Changes = changed(c.n, c.folder)
		run(t, s, inv, res)
		ids = append(ids, inv.ID)
	}
	if got := scan[int](t, db, `SELECT count(*) FROM changed_files c JOIN events e ON e.seq = c.seq AND e.kind = 'ended' AND e.invocation = c.invocation`); got != 6 {
		t.Errorf("%d changes have the seq of their end record, want 6", got)
	}
	first := changed(2, "/a")
	for name, tt := range map[string]struct {
		q    ChangeQuery
		want []int // the calls, by number
	}{
		"all":              {ChangeQuery{}, []int{4, 2, 2, 1, 0, 0}},
		"plan":             {ChangeQuery{PlanID: "p1"}, []int{2, 2, 0, 0}},
		"call":             {ChangeQuery{Invocation: ids[1]}, []int{1}},
		"call without any": {ChangeQuery{Invocation: ids[3]}, nil},
		"no call":          {ChangeQuery{Invocation: newID()}, nil},
		"path":             {ChangeQuery{Path: first[1].Path}, []int{2, 0}},
		"path is exact":    {ChangeQuery{Path: "/a"}, nil},
		"principal":        {ChangeQuery{Principal: "uid:7"}, []int{2, 2}},
		"all together": {ChangeQuery{
			PlanID: "p1", Principal: "uid:0", Path: first[0].Path,
			Invocation: ids[0],
		}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			page := listChanges(t, s, tt.q)
			var got []int
			for _, c := range page.Items {
				got = append(got, slices.Index(ids, c.Invocation))
			}
			if !slices.Equal(got, tt.want) || page.NextCursor != "" || page.Items == nil {
				t.Errorf("found %v, want %v, cursor %q", got, tt.want, page.NextCursor)
			}
		})
	}
	for i, c := range listChanges(t, s, ChangeQuery{Invocation: ids[0]}).Items {
		ended := get(t, s, ids[0]).EndedAt
		if c.FileChange != first[1-i] || c.PlanID != "p1" || !c.At.Equal(*ended) {
			t.Errorf("change %d is %+v, want %+v at %v", i, c, first[1-i], ended)
		}
	}
}

// The pages contain each change once, in one order, also if changes are recorded meanwhile (AU-11).
func TestChangePagesContainEachChangeOnce(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for i := range 4 {
		inv := newInvocation("sync")
		inv.Context.PlanID = "p"
		run(t, s, inv, dray.Result{Metadata: dray.Metadata{Changes: changed(5, fmt.Sprintf("/%d", i))}})
	}
	want := listChanges(t, s, ChangeQuery{PlanID: "p"}).Items
	if len(want) != 20 {
		t.Fatalf("%d changes", len(want))
	}
	for _, limit := range []int{1, 3, 5, 20} {
		q, got := ChangeQuery{PlanID: "p", Limit: limit}, []Change(nil)
		for {
			page := listChanges(t, s, q)
			got = append(got, page.Items...)
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
			inv := newInvocation("sync")
			inv.Context.PlanID = "p"
			run(t, s, inv, dray.Result{Metadata: dray.Metadata{Changes: changed(1, "/new")}})
		}
		got = slices.DeleteFunc(got, func(c Change) bool { return strings.HasPrefix(c.Path, "/new") })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with pages of %d the changes are %v", limit, got)
		}
	}
	calls := position{1, 1}.cursor(callCursor)
	for _, q := range []ChangeQuery{
		{Limit: -1},
		{Limit: MaxLimit + 1},
		{Cursor: "x"},
		{Cursor: calls},
	} {
		if _, err := s.Changes(context.Background(), q); codeOf(err) != dray.CodeInvalidRequest ||
			dray.AsError(err).Hint == "" {
			t.Errorf("%+v returns %v", q, err)
		}
	}
}

// Each filter is answered from an index, newest first without sorting (AU-08).
func TestChangesUseIndexes(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for name, q := range map[string]ChangeQuery{
		"USING INDEX changed_files_plan (plan_id=?)": {PlanID: "p", Principal: "uid:0"},
		"USING INDEX changed_files_path (path=?)":    {Path: "/p", Principal: "uid:0"},
		"USING PRIMARY KEY (seq=?)":                  {Invocation: newID(), Principal: "uid:0"},
		"SCAN changed_files":                         {},
	} {
		stmt, err := q.statement()
		must(t, err)
		if plan := queryPlan(t, s, stmt); !strings.Contains(plan, name) ||
			strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("the plan of %+v is\n%s", q, plan)
		}
	}
}

// sameLists reports whether the lists of files of two records are equal and complete.
func sameLists(a, b dray.Metadata) bool {
	return a.ChangesOmitted == 0 && a.Sync.FilesOmitted == 0 && a.Sync.RefusedOmitted == 0 &&
		a.Sync.TargetsOmitted == 0 &&
		slices.Equal(a.Changes, b.Changes) && slices.Equal(a.Sync.Files, b.Sync.Files) &&
		slices.Equal(a.Sync.Refused, b.Sync.Refused) &&
		slices.Equal(a.Sync.Targets, b.Sync.Targets)
}

// A sync of ten thousand files reads back complete. Neither its row nor a list of calls contains
// all of them (SY-10).
func TestLongListsAreStoredInFile(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	inv := newInvocation("sync")
	want := run(t, s, inv, synced(10_000))
	rec := get(t, s, inv.ID)
	if !sameLists(rec.Metadata, want.Metadata) {
		t.Error("the metadata does not read back equal")
	}
	if got := scan[int](t, rawDB(t, s.path), `SELECT max(length(body)) FROM events`); got > 16<<10 {
		t.Errorf("the body of an event has %d bytes", got)
	}
	item := list(t, s, Query{}).Items[0]
	b, err := json.Marshal(item)
	if err != nil || len(b) > 16<<10 {
		t.Errorf("an item of a list has %d bytes, %v", len(b), err)
	}
	m := item.Metadata
	if len(m.Sync.Files) != 10 || m.Sync.FilesOmitted != 9990 || len(m.Sync.Refused) != 10 ||
		m.Sync.RefusedOmitted != 9990 || len(m.Sync.Targets) != 10 || m.Sync.TargetsOmitted != 9990 ||
		len(m.Changes) != 10 || m.ChangesOmitted != 9990 || m.Sync.Bytes != 10_000 ||
		m.Sync.State != dray.SyncComplete || m.Warnings != nil {
		t.Errorf("in a list the metadata is %.2000s", b)
	}
	if got := scan[int](t, rawDB(t, s.path), `SELECT count(*) FROM changed_files WHERE invocation = ?`, inv.ID); got != 10_000 {
		t.Errorf("%d changes are in the table", got)
	}
	// Without the file the rest of the row is returned with a warning (AU-05).
	if err := os.RemoveAll(opts.CapturesDir); err != nil {
		t.Fatal(err)
	}
	if rec := get(t, s, inv.ID); len(rec.Metadata.Warnings) != 1 ||
		rec.Metadata.Sync.FilesOmitted != 9990 {
		t.Errorf("without the file the warnings are %q", rec.Metadata.Warnings)
	}
}

// Short lists are complete in the row and in a list of calls.
func TestShortListsStayInTheRow(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	inv := newInvocation("sync")
	want := run(t, s, inv, synced(maxInlineEntries))
	if item := list(t, s, Query{}).Items[0]; !sameLists(item.Metadata, want.Metadata) {
		t.Errorf("in a list the metadata is %+v", item.Metadata)
	}
	if left, err := filepath.Glob(filepath.Join(opts.CapturesDir, "*")); err != nil || len(left) > 0 {
		t.Errorf("files were written: %v, %v", left, err)
	}
}

// A lost result does not lose the changes of files (AU-11).
func TestChangesAreRecordedWithoutResult(t *testing.T) {
	s := open(t, options(t.TempDir()))
	inv := newInvocation("sync")
	res := synced(3)
	res.Output = json.RawMessage(`{`)
	if got := run(t, s, inv, res); got.Error == nil || got.Error.Code != dray.CodeInternal {
		t.Fatalf("the result is %+v", got)
	}
	if got := listChanges(t, s, ChangeQuery{Invocation: inv.ID}).Items; len(got) != 3 {
		t.Errorf("%d changes are recorded", len(got))
	}
}

// BenchmarkLongSync measures the end record of a sync of 10,000 files, which blocks other writes.
func BenchmarkLongSync(b *testing.B) {
	s := open(b, options(b.TempDir()))
	res := synced(10_000)
	b.ReportAllocs()
	for b.Loop() {
		run(b, s, newInvocation("sync"), res)
	}
}
