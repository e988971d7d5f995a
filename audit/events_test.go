package audit

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

func events(t *testing.T, s *Store, q EventQuery) []Event {
	t.Helper()
	page, err := s.Events(t.Context(), q)
	must(t, err)
	return page.Items
}

// recordAll records one call of uid:1 and events beside it, and returns the id of the call.
func recordAll(t *testing.T, s *Store) (id string) {
	t.Helper()
	inv := newInvocation("exec")
	inv.Principal = "uid:1"
	run(t, s, inv, exited(0))
	for _, body := range []Body{
		&TrustChanged{Principal: "uid:1", Workspace: "/w", Action: "give", Hash: "abc"},
		&ContainerChanged{Workspace: "/w", To: "running"},
		&OperatorAct{Principal: "uid:0", Owner: "uid:1", Action: "cancel", Invocation: inv.ID},
	} {
		must(t, s.RecordEvent(t.Context(), body))
	}
	return inv.ID
}

// All events are in one list, and filters select among them (AU-10).
func TestEventsAreFiltered(t *testing.T) {
	s := open(t, options(t.TempDir()))
	id := recordAll(t, s)
	run(t, s, newInvocation("exec"), exited(0))
	all := events(t, s, EventQuery{})
	third := all[len(all)-3].At
	for _, c := range []struct {
		name  string
		q     EventQuery
		kinds string
	}{
		{"all", EventQuery{}, "ended begun operator container trust ended begun"},
		{"kind", EventQuery{Kind: "trust"}, "trust"},
		{"kind of calls", EventQuery{Kind: "begun"}, "begun begun"},
		{"unknown kind", EventQuery{Kind: "approval"}, ""},
		{"call", EventQuery{Invocation: id}, "operator ended begun"},
		{"call and kind", EventQuery{Invocation: id, Kind: "operator"}, "operator"},
		{"owner of a call", EventQuery{Principal: "uid:1"}, "operator trust ended begun"},
		{"who acted", EventQuery{Principal: "uid:0"}, "ended begun operator"},
		{"nobody", EventQuery{Principal: "uid:2"}, ""},
		{"since", EventQuery{Since: third}, "ended begun operator container trust"},
		{"until", EventQuery{Until: third}, "ended begun"},
		{"the future", EventQuery{Since: time.Now().Add(time.Hour)}, ""},
		{"the past", EventQuery{Until: epoch}, ""},
	} {
		var kinds []string
		for _, e := range events(t, s, c.q) {
			kinds = append(kinds, e.Kind)
		}
		if got := strings.Join(kinds, " "); got != c.kinds {
			t.Errorf("%s: got %s, want %s", c.name, got, c.kinds)
		}
	}
}

// The pages have each event once, also if others are recorded meanwhile.
func TestEventsPages(t *testing.T) {
	s := open(t, options(t.TempDir()))
	recordAll(t, s)
	var seqs []int64
	for q := (EventQuery{Limit: 2}); ; recordAll(t, s) {
		page, err := s.Events(t.Context(), q)
		must(t, err)
		for _, e := range page.Items {
			seqs = append(seqs, e.Seq)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	if !slices.Equal(seqs, []int64{5, 4, 3, 2, 1}) {
		t.Errorf("the pages have %v", seqs)
	}
	for _, cursor := range []string{"x", position{}.cursor(callCursor)} {
		if _, err := s.Events(t.Context(), EventQuery{Cursor: cursor}); codeOf(err) != dray.CodeInvalidRequest {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// A body that cannot be read leaves the rest of the event.
func TestDamagedEventIsListed(t *testing.T) {
	s := open(t, options(t.TempDir()))
	recordAll(t, s)
	db := rawDB(t, s.path)
	mustExec(t, db, `DROP TRIGGER events_no_update`)
	mustExec(t, db, `UPDATE events SET body = '{' WHERE seq = 3`)
	mustExec(t, db, `UPDATE events SET body = NULL WHERE seq = 1`)
	all := events(t, s, EventQuery{})
	if len(all) != 5 || string(all[2].Body) != "null" || string(all[4].Body) != "null" ||
		all[2].Kind != "trust" {
		t.Errorf("%+v", all)
	}
	_ = events(t, s, EventQuery{Principal: "uid:1"})
}

// Queries for kinds and calls use the indexes that calls do not pay for.
func TestEventQueriesUseIndexes(t *testing.T) {
	s := open(t, options(t.TempDir()))
	type step struct {
		id, parent, unused int
		detail             string
	}
	for _, q := range []EventQuery{{Kind: "trust"}, {Invocation: newID()}} {
		c, err := q.conditions()
		must(t, err)
		plan, err := selectAll(t.Context(), s.read, selectQuery{
			sql: "EXPLAIN QUERY PLAN SELECT 1 FROM events e" + c.where() + " ORDER BY e.seq DESC", args: c.args,
		}, func(st *step) []any { return []any{&st.id, &st.parent, &st.unused, &st.detail} })
		must(t, err)
		for _, st := range plan {
			if strings.HasPrefix(st.detail, "SCAN e") {
				t.Errorf("%+v: %s", q, st.detail)
			}
		}
	}
}

// Posted events are committed in order, at the latest when the store is closed.
func TestPostedEventsAreCommitted(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	for i := range 100 {
		s.PostEvent(&BreakerChanged{Container: "c", State: "open", Failures: i})
	}
	must(t, s.Close(t.Context()))
	s.PostEvent(&BreakerChanged{Container: "late"})
	s, _ = reopen(t, opts)
	all := events(t, s, EventQuery{Kind: "breaker", Limit: 1000})
	slices.Reverse(all)
	for i, e := range all {
		var b BreakerChanged
		if must(t, json.Unmarshal(e.Body, &b)); b.Failures != i {
			t.Fatalf("event %d has %d failures", i, b.Failures)
		}
	}
	if len(all) != 100 {
		t.Errorf("%d events", len(all))
	}
}

var updateReference = flag.Bool("update-reference", false, "write docs/reference/audit-events.md")

// The page of the reference has every kind and every field (AU-10).
func TestReferenceOfEventsIsComplete(t *testing.T) {
	page := filepath.Join("..", "docs", "reference", "audit-events.md")
	text, err := os.ReadFile(page)
	must(t, err)
	head, _, ok := strings.Cut(string(text), "## begun\n")
	if !ok {
		t.Fatalf("%s has no heading begun", page)
	}
	want := head + referenceOfKinds(t)
	if *updateReference {
		writeFile(t, page, want)
	} else if want != string(text) {
		t.Errorf("%s differs from the code: run go test ./audit -run TestReferenceOfEvents "+
			"-update-reference", page)
	}
}

func referenceOfKinds(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, k := range Kinds() {
		body := k.Body()
		if body.Kind() != k.Name || k.When == "" {
			t.Errorf("the body of %s says that it is %s", k.Name, body.Kind())
		}
		_ = body.Summary() // of an empty body
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", k.Name, k.When)
		if k.Name != string(interrupted) {
			b.WriteString("| field | type | content |\n|---|---|---|\n")
			writeFields(t, &b, reflect.TypeOf(body).Elem(), k.Name)
			b.WriteString("\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// writeFields writes a row for each member of the JSON of a struct, without those of embedded ones.
func writeFields(t *testing.T, b *strings.Builder, body reflect.Type, kind string) {
	t.Helper()
	for f := range body.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		doc := f.Tag.Get("doc")
		if doc == "" {
			t.Errorf("%s.%s has no doc", kind, name)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, jsonType(f.Type), doc)
	}
}

func jsonType(goType reflect.Type) string {
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch {
	case goType == reflect.TypeFor[time.Time]():
		return "time"
	case goType == reflect.TypeFor[json.RawMessage](), goType.Kind() == reflect.Struct,
		goType.Kind() == reflect.Map:
		return "object"
	case goType.Kind() == reflect.String:
		return "string"
	case goType.Kind() == reflect.Bool:
		return "boolean"
	case goType.Kind() == reflect.Slice:
		return "list"
	default:
		return "number"
	}
}
