package audit

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// record writes a call that started at the given second after the epoch.
func record(t testing.TB, s *Store, second int, inv dray.Invocation, res dray.Result) string {
	t.Helper()
	at := epoch.Add(time.Duration(second) * time.Second)
	if _, err := s.begin(context.Background(), dray.Call{Invocation: inv}, at); err != nil {
		t.Fatal(err)
	}
	res.EndedAt = at.Add(time.Second)
	if _, err := s.end(context.Background(), inv, dray.NormalizeResult(res, nil)); err != nil {
		t.Fatal(err)
	}
	return inv.ID
}

// library returns an audit log whose calls differ in every filter, and their ids, oldest first.
func library(t *testing.T) (s *Store, ids []string) {
	t.Helper()
	s = open(t, options(t.TempDir()))
	full := strings.Repeat("c", 64)
	for i, c := range []struct {
		inv dray.Invocation
		res dray.Result
	}{
		0: {dray.Invocation{Tool: "exec"}, exited(0)},
		1: {dray.Invocation{Tool: "shell"}, exited(1)},
		2: {dray.Invocation{Tool: "exec", Principal: "uid:7"}, dray.Result{Reason: dray.ReasonTimeout}},
		3: {
			dray.Invocation{Tool: "exec", Context: dray.CallContext{
				PlanID: "plan", SessionID: "session", Labels: map[string]string{"team": "a%b:c", "x": ""},
			}},
			dray.Result{Route: dray.Route{Environment: dray.KindHost}},
		},
		4: {dray.Invocation{Tool: "exec"}, dray.Result{Route: dray.Route{
			Environment: dray.KindContainer,
			Container:   "web",
		}}},
		5: {dray.Invocation{Tool: "exec"}, inContainer("web", full)},
		6: {dray.Invocation{Tool: "exec"}, inContainer("db", "web")},
	} {
		c.inv.ID = newID()
		ids = append(ids, record(t, s, i, c.inv, c.res))
	}
	running := newInvocation("exec")
	if _, err := s.begin(context.Background(), dray.Call{Invocation: running}, epoch.Add(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	return s, append(ids, running.ID)
}

func inContainer(name, id string) dray.Result {
	return dray.Result{
		Route:    dray.Route{Environment: dray.KindContainer},
		Metadata: dray.Metadata{Container: &dray.ContainerMetadata{Name: name, ID: id}},
	}
}

// Each filter selects its calls, alone and combined (AU-08).
func TestFilters(t *testing.T) {
	s, ids := library(t)
	second := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	tests := map[string]struct {
		q    Query
		want []int
	}{
		"all":                 {Query{}, []int{7, 6, 5, 4, 3, 2, 1, 0}},
		"tool":                {Query{Tool: "shell"}, []int{1}},
		"tool is exact":       {Query{Tool: "Shell"}, nil},
		"status":              {Query{Status: dray.StatusSucceeded}, []int{0}},
		"running":             {Query{Status: dray.StatusRunning}, []int{7}},
		"some ids":            {Query{Only: []string{ids[1], ids[7], "x"}}, []int{7, 1}},
		"empty id list":       {Query{Only: []string{}}, nil},
		"some ids and a tool": {Query{Only: ids[:4], Tool: "exec", Except: ids[3:]}, []int{2, 0}},
		"without some ids":    {Query{Except: ids[1:7]}, []int{7, 0}},
		"reason":              {Query{Reason: dray.ReasonTimeout}, []int{2}},
		"environment":         {Query{Environment: dray.KindContainer}, []int{6, 5, 4}},
		"container":           {Query{Container: "web"}, []int{6, 5, 4}},
		"container's id":      {Query{Container: strings.Repeat("c", 64)}, []int{5}},
		"short container id":  {Query{Container: strings.Repeat("c", 12)}, nil},
		"plan":                {Query{PlanID: "plan"}, []int{3}},
		"session":             {Query{SessionID: "session"}, []int{3}},
		"other session":       {Query{SessionID: "sessio_"}, nil},
		"label":               {Query{LabelName: "team", LabelValue: "a%b:c"}, []int{3}},
		"empty label":         {Query{LabelName: "x", Tool: "exec"}, []int{3}},
		"label's other value": {Query{LabelName: "team", LabelValue: "a"}, nil},
		"other label":         {Query{LabelName: "labels", LabelValue: "a%b:c"}, nil},
		"principal":           {Query{Principal: "uid:7"}, []int{2}},
		"since":               {Query{Since: second(6)}, []int{7, 6}},
		"until":               {Query{Until: second(2)}, []int{1, 0}},
		"since and until":     {Query{Since: second(2), Until: second(4)}, []int{3, 2}},
		"out of range": {Query{
			Since: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC),
			Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Tool: "shell",
		}, []int{1}},
		"tool and reason": {Query{Tool: "exec", Reason: dray.ReasonExited}, []int{0}},
		"container and all": {Query{
			Container: "web", Environment: dray.KindContainer, Tool: "exec",
			Since: second(5), Limit: 1,
		}, []int{6}},
		"nothing": {Query{Tool: "shell", Principal: "uid:7"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			page := list(t, s, tt.q)
			if got := indexes(ids, page.Items); !slices.Equal(got, tt.want) {
				t.Errorf("found %v, want %v", got, tt.want)
			}
			if page.Items == nil {
				t.Error("Items is nil, which is null in JSON")
			}
		})
	}
}

// indexes returns the positions of the calls in ids.
func indexes(ids []string, items []dray.Record) (got []int) {
	for _, rec := range items {
		got = append(got, slices.Index(ids, rec.ID))
	}
	return got
}

// The pages contain each row once, also if rows are inserted meanwhile and if many calls started at
// the same instant (AU-08).
func TestPagesContainEachRowOnce(t *testing.T) {
	for name, q := range map[string]Query{
		"all": {Limit: 5}, "one at a time": {Limit: 1},
		"by container": {Limit: 5, Container: "web"}, "by text": {Limit: 7, Text: "exec"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, options(t.TempDir()))
			var ids []string
			for i := range 23 {
				ids = append(ids, record(t, s, i/10, newInvocation("exec"), inContainer("web", "id")))
			}
			var got []int
			for more := true; more; more = q.Cursor != "" {
				page := list(t, s, q)
				got = append(got, indexes(ids, page.Items)...)
				q.Cursor = page.NextCursor
				record(t, s, 1000, newInvocation("exec"), inContainer("web", "id"))
			}
			slices.Reverse(got)
			if !slices.IsSorted(got) || len(slices.Compact(got)) != len(ids) || got[0] != 0 {
				t.Errorf("the pages contain %v", got)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for range MaxLimit/100 + 45 {
		record(t, s, 0, newInvocation("exec"), exited(0))
	}
	if got := list(t, s, Query{}); len(got.Items) != DefaultLimit || got.NextCursor == "" {
		t.Errorf("without a limit %d items, cursor %q", len(got.Items), got.NextCursor)
	}
	if got := list(t, s, Query{Limit: MaxLimit}); len(got.Items) != 55 || got.NextCursor != "" {
		t.Errorf("with the greatest limit %d items, cursor %q", len(got.Items), got.NextCursor)
	}
	for _, q := range []Query{
		{Limit: -1},
		{Limit: MaxLimit + 1},
		{Text: strings.Repeat("x", maxText+1)},
	} {
		if _, err := s.List(context.Background(), q); codeOf(err) != dray.CodeInvalidRequest ||
			dray.AsError(err).Hint == "" {
			t.Errorf("limit %d, %d bytes of text: %v", q.Limit, len(q.Text), err)
		}
	}
}

func TestMalformedCursors(t *testing.T) {
	s := open(t, options(t.TempDir()))
	good := position{epoch.UnixNano(), 1}.cursor(callCursor)
	for _, cursor := range []string{
		"x", "!", good[1:], good + "AAAA", good + "=", "AA" + good[2:],
		strings.Repeat("A", 1<<20), good[:len(good)-1] + "_",
	} {
		if _, err := s.List(context.Background(),
			Query{Cursor: cursor}); codeOf(err) != dray.CodeInvalidRequest || dray.AsError(err).Hint == "" {
			t.Errorf("List with cursor %.40q returns %v", cursor, err)
		}
	}
	list(t, s, Query{Cursor: good})
}

func FuzzCursor(f *testing.F) {
	f.Add(position{1, 2}.cursor(callCursor))
	f.Add(position{-1, -2}.cursor(callCursor))
	f.Add("")
	f.Add("AX000\r000000000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseCursor(callCursor, s)
		if err == nil && p.cursor(callCursor) != s {
			t.Errorf("%q is read as %+v, which is written %q", s, p, p.cursor(callCursor))
		}
	})
}

// FuzzBodies checks that a damaged body only leaves a warning.
func FuzzBodies(f *testing.F) {
	f.Add(`{"id":"x","input":{},"started_at":"2026-01-02T03:04:05Z"}`, `{"status":"failed","metadata":{"kill":{"survivors":[1]}}}`, `{"id":""}`)
	f.Add(`{`, `{"output_file":{"sha256":"../../etc/passwd"}}`, `null`)
	files := &blobStore{dir: f.TempDir()}
	f.Fuzz(func(t *testing.T, begun, ended, container string) {
		r := row{
			id: "i", tool: "t", status: "failed", begun: nullString(begun), ended: nullString(ended),
			container: nullString(container),
		}
		r.endedAt.Valid = true
		rec := r.record(files)
		if rec.ID != "i" || rec.Tool != "t" {
			t.Errorf("the columns are lost: %+v", rec)
		}
		if _, err := json.Marshal(rec); err != nil && json.Valid(rec.Input) {
			t.Errorf("the record cannot be encoded: %v", err)
		}
	})
}

// The search compares values, not their JSON encoding, and treats the wildcards of LIKE as text
// (AU-08).
func TestTextSearch(t *testing.T) {
	s := open(t, options(t.TempDir()))
	output, failure := exited(0), exited(2)
	output.Output = json.RawMessage(`{"list": [{"deep": "needle \"quoted\""}, "either\/or/both\tways"]}`)
	output.Stdout.Text = "line one\nline 50% two"
	failure.Stderr.Text = `C:\temp <b>`
	failure.Error = &dray.Error{Code: dray.CodeBadCwd, Message: "no such folder", Hint: "try another"}
	ids := []string{
		record(t, s, 0, dray.Invocation{ID: newID(), Tool: "under_score", Input: json.RawMessage(`{"argv":["go", "Test", "ünï"]}`)}, exited(0)),
		record(t, s, 1, dray.Invocation{ID: newID(), Tool: "underXscore"}, output),
		record(t, s, 2, dray.Invocation{ID: newID(), Tool: "shell"}, failure),
	}
	running := newInvocation("still_running")
	if _, err := s.begin(context.Background(), dray.Call{Invocation: running}, epoch.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ids = append(ids, running.ID)
	for q, want := range map[string][]int{
		"under":             {1, 0},
		"under_s":           {0},
		"test":              {0},
		"ünï":               {0},
		`needle "quoted"`:   {1},
		"one\nline":         {1},
		"either/or/both":    {1},
		"/both\tways":       {1},
		"either/or\t":       nil,
		"/":                 {1},
		"50%":               {1},
		"5%t":               nil,
		`C:\temp <b>`:       {2},
		"no such":           {2},
		"bad_cwd":           {2},
		"try another":       {2},
		"still":             {3},
		"principal":         nil, // a name in the JSON, not a value
		"uid:0":             nil,
		"'; DROP TABLE x--": nil,
	} {
		if got := indexes(ids, list(t, s, Query{Text: q}).Items); !slices.Equal(got, want) {
			t.Errorf("%q matches %v, want %v", q, got, want)
		}
	}
	if got := indexes(ids, list(t, s, Query{Text: "e", Tool: "shell"}).Items); !slices.Equal(got,
		[]int{2}) {
		t.Errorf("text and tool match %v", got)
	}
}

// Every filter is answered from an index in the order of the list, without sorting. A selective
// filter has its own index and reads no other rows; filters without an index are checked for a
// bounded number of candidates (AU-08).
func TestFiltersUseIndexes(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for name, tt := range map[string]struct {
		q     Query
		plans []string
	}{
		"none":        {Query{}, []string{"invocations_started"}},
		"since":       {Query{Since: epoch}, []string{"invocations_started (started_at>"}},
		"until":       {Query{Until: epoch}, []string{"invocations_started (started_at<"}},
		"tool":        {Query{Tool: "x"}, []string{"invocations_tool ("}},
		"status":      {Query{Status: dray.StatusFailed}, []string{"invocations_status ("}},
		"reason":      {Query{Reason: dray.ReasonTimeout}, []string{"invocations_reason ("}},
		"environment": {Query{Environment: dray.KindHost}, []string{"invocations_environment ("}},
		"plan":        {Query{PlanID: "x"}, []string{"invocations_plan ("}},
		"session":     {Query{SessionID: "x"}, []string{"invocations_session ("}},
		"principal":   {Query{Principal: "x"}, []string{"invocations_principal ("}},
		"workspace":   {Query{Workspace: "x"}, []string{"invocations_workspace ("}},
		"code":        {Query{Code: "x"}, []string{"invocations_code ("}},
		"label":       {Query{LabelName: "x"}, []string{"SEARCH i USING PRIMARY KEY (name=? AND value=?"}},
		"container": {Query{Container: "x"}, []string{
			"invocations_container (", "invocations_container_name (", "invocations_container_id (",
		}},
		"the plan before the tool": {Query{PlanID: "x", Tool: "x"}, []string{"invocations_plan ("}},
		// The most common values of status, reason and environment have no index entries.
		"succeeded": {Query{Status: dray.StatusSucceeded}, []string{"invocations_started"}},
		"exited":    {Query{Reason: dray.ReasonExited}, []string{"invocations_started"}},
		"container kind": {
			Query{Environment: dray.KindContainer}, []string{"invocations_started"},
		},
		"text":    {Query{Text: "x", Argv: "x", Image: "x"}, []string{"invocations_started"}},
		"slowest": {Query{Sort: SortDuration, Tool: "x"}, []string{"invocations_duration"}},
		"slower than a minute": {
			Query{Sort: SortDuration, MinDuration: time.Minute}, []string{"invocations_duration (duration>"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			search, err := tt.q.search()
			must(t, err)
			for _, after := range []*position{nil, {epoch.UnixNano(), 9}} {
				checkCandidates(t, queryPlan(t, s, search.candidates(after, 5)), tt.plans)
			}
			plan := queryPlan(t, s, search.checked([]position{{1, 2}}))
			if !strings.Contains(plan, "SEARCH i USING INTEGER PRIMARY KEY") ||
				strings.Contains(plan, "SCAN i") || strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("the checks read more than the candidates:\n%s", plan)
			}
		})
	}
}

// checkCandidates checks that a query reads the indexes in their order and no rows.
func checkCandidates(t *testing.T, plan string, indexes []string) {
	t.Helper()
	for _, index := range indexes {
		if !strings.Contains(plan, index) {
			t.Errorf("the plan does not use %s\n%s", index, plan)
		}
	}
	sorted := strings.Contains(plan, "TEMP B-TREE") && !strings.Contains(plan, "UNION")
	if sorted || strings.Contains(plan, "USING INDEX") {
		t.Errorf("the plan sorts, or reads rows\n%s", plan)
	}
}

func queryPlan(t *testing.T, s *Store, stmt selectQuery) string {
	t.Helper()
	rows, err := s.read.QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+stmt.sql,
		stmt.args...)
	must(t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

func TestListFails_ContextEnded(t *testing.T) {
	s, _ := library(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.List(ctx, Query{}); codeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("List returns %v", err)
	}
}

// A call that has no end record has the route that its begin record has, while it runs and after it
// was interrupted.
func TestCallWithoutEndHasItsRoute(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	call := dray.Call{Invocation: newInvocation("exec"), Route: dray.Route{
		Environment: dray.KindContainer, Rule: "call.container", Container: "web", Workspace: "/home/me/app",
		Candidates: []dray.Candidate{{Rule: "call.container", Environment: "web", Reason: "named"}},
	}}
	if _, err := s.begin(t.Context(), call, time.Now()); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store, status dray.Status) {
		t.Helper()
		for _, q := range []Query{{}, {Environment: "container"}, {Container: "web"}} {
			page := list(t, s, q)
			if len(page.Items) != 1 || page.Items[0].Status != status ||
				!reflect.DeepEqual(page.Items[0].Route, call.Route) {
				t.Errorf("%+v lists %+v", q, page)
			}
		}
		if rec := get(t, s, call.Invocation.ID); !reflect.DeepEqual(rec.Route, call.Route) ||
			len(rec.Metadata.Warnings) != 0 {
			t.Errorf("the record is %+v", rec)
		}
	}
	check(s, dray.StatusRunning)
	must(t, s.Close(t.Context()))
	s, found := reopen(t, opts)
	if found != 1 {
		t.Errorf("%d interrupted", found)
	}
	check(s, dray.StatusFailed)
}
