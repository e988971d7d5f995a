package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// various returns an audit log with calls of every kind, and their ids, oldest first.
func various(t *testing.T) (s *Store, ids []string) {
	t.Helper()
	s = open(t, options(t.TempDir()))
	input := json.RawMessage(`{"argv":["go","test","./..."]}`)
	for i := range 36 {
		inv := dray.Invocation{ID: newID(), Tool: []string{"exec", "shell"}[i%2], Principal: "uid:0"}
		res := exited(i % 3)
		if i%2 == 0 {
			inv.Input = input
		} else {
			inv.Input = json.RawMessage(`{"command":"make Test 100%"}`)
		}
		if i%4 == 0 {
			inv.Workspace, inv.Principal = "/home/me/app", "uid:7"
			inv.Context.Labels = map[string]string{"team": "ci", "run": fmt.Sprint(i)}
		}
		if i%6 == 0 {
			inv.Context.PlanID, inv.Context.SessionID = "plan", "session"
			res = dray.Result{Reason: dray.ReasonTimeout, Error: &dray.Error{Code: dray.CodeBadCwd}}
		}
		if i%3 == 0 {
			res.Route.Environment = dray.KindContainer
			res.Metadata.Container = &dray.ContainerMetadata{Name: "web", ID: "id", Image: "debian:12"}
		} else {
			res.Route.Environment = dray.KindHost
		}
		res.Duration = time.Duration(i*7%36+1) * time.Second
		ids = append(ids, record(t, s, i/2, inv, res))
	}
	running := newInvocation("exec")
	_, err := s.begin(t.Context(), dray.Call{Invocation: running}, epoch.Add(time.Hour))
	must(t, err)
	return s, append(ids, running.ID)
}

// everyFilter has a query for each filter; each selects some of the calls of various.
var everyFilter = map[string]Query{
	"tool": {Tool: "exec"}, "status": {Status: dray.StatusFailed},
	"succeeded": {Status: dray.StatusSucceeded}, "reason": {Reason: dray.ReasonTimeout},
	"exited": {Reason: dray.ReasonExited}, "host": {Environment: dray.KindHost},
	"in a container": {Environment: dray.KindContainer}, "container": {Container: "web"},
	"image": {Image: "debian:12"}, "workspace": {Workspace: "/home/me/app"},
	"plan": {PlanID: "plan"}, "session": {SessionID: "session"},
	"label":     {LabelName: "team", LabelValue: "ci"},
	"principal": {Principal: "uid:7"}, "code": {Code: dray.CodeBadCwd},
	"duration": {MinDuration: 20 * time.Second}, "argv": {Argv: "go TEST"},
	"command": {Argv: "100%"}, "text": {Text: "./..."},
	"since": {Since: epoch.Add(5 * time.Second)}, "until": {Until: epoch.Add(15 * time.Second)},
}

// Two filters together select what each of them selects, by pages of any size and in both orders
// (AU-08).
func TestFiltersTogether(t *testing.T) {
	s, ids := various(t)
	alone := map[string][]int{}
	for name, q := range everyFilter {
		alone[name] = indexes(ids, list(t, s, q).Items)
		if n := len(alone[name]); n == 0 || n == len(ids) ||
			!slices.IsSortedFunc(alone[name], descending) {
			t.Errorf("%s selects %v", name, alone[name])
		}
	}
	byDuration := func(a, b int) int { return b*7%36*100 + b - a*7%36*100 - a }
	for a, first := range everyFilter {
		for b, second := range everyFilter {
			q := both(t, first, second)
			want := slices.DeleteFunc(slices.Clone(alone[a]),
				func(i int) bool { return !slices.Contains(alone[b], i) })
			if a == b || conflicting(first, second) {
				continue
			}
			if got := allPages(t, s, ids, q, 1+len(a)%4); !slices.Equal(got, want) {
				t.Errorf("%s and %s: %v, want %v", a, b, got, want)
			}
			q.Sort = SortDuration
			want = slices.DeleteFunc(want, func(i int) bool { return i == 36 }) // it has no duration
			slices.SortFunc(want, byDuration)
			if got := allPages(t, s, ids, q, 1+len(b)%4); !slices.Equal(got, want) {
				t.Errorf("%s and %s by duration: %v, want %v", a, b, got, want)
			}
		}
	}
}

func descending(a, b int) int { return b - a }

// both returns the query with the filters of two. The second wins where both have one.
func both(t *testing.T, first, second Query) Query {
	t.Helper()
	q := first
	fields, err := json.Marshal(second)
	must(t, err)
	var set map[string]json.RawMessage
	must(t, json.Unmarshal(fields, &set))
	for name, value := range set {
		if v := string(value); v == `""` || v == "0" || v == "null" || strings.HasPrefix(v, `"0001`) {
			delete(set, name)
		}
	}
	fields, err = json.Marshal(set)
	must(t, err)
	must(t, json.Unmarshal(fields, &q))
	return q
}

// conflicting reports whether two queries use the same filter.
func conflicting(a, b Query) bool {
	return a.Status != "" && b.Status != "" || a.Reason != "" && b.Reason != "" ||
		a.Environment != "" && b.Environment != "" || a.Argv != "" && b.Argv != ""
}

// allPages returns the positions of all calls that a query selects.
func allPages(t *testing.T, s *Store, ids []string, q Query, limit int) (got []int) {
	t.Helper()
	q.Limit = limit
	for more := true; more; more = q.Cursor != "" {
		page := list(t, s, q)
		if len(page.Items) > limit {
			t.Fatalf("a page has %d items", len(page.Items))
		}
		got, q.Cursor = append(got, indexes(ids, page.Items)...), page.NextCursor
	}
	return got
}

// A page examines a bounded number of calls, whatever its filters are: it ends with the calls that
// it found by then and the cursor of the rest (AU-08).
func TestPagesExamineABoundedNumberOfCalls(t *testing.T) {
	s := open(t, options(t.TempDir()))
	fill(t, s, 2*maxExamined+examineAtOnce)
	for name, q := range map[string]Query{
		"text": {Text: "argument 7 "}, "argv": {Argv: "argument 7 "},
		"slow and text": {Text: "argument 7 ", Sort: SortDuration},
	} {
		var found, pages int
		for more := true; more; more = q.Cursor != "" {
			page := list(t, s, q)
			found, q.Cursor = found+len(page.Items), page.NextCursor
			pages++
		}
		if found != 1 || pages != 3 {
			t.Errorf("%s: %d calls on %d pages", name, found, pages)
		}
	}
}

// fill writes n calls as SQL, which is faster than generate, but without leaves and labels. Each
// begins a second after the other from epoch; they have 10 tools, 100 workspaces, 1000 sessions and
// 3 principals, and one of 20 failed.
func fill(t testing.TB, s *Store, n int) {
	t.Helper()
	for first := 1; first <= n; first += 100_000 {
		last := min(n, first+99_999)
		for _, query := range []string{fillEvents, fillInvocations} {
			query = strings.NewReplacer("$FIRST", fmt.Sprint(first), "$LAST", fmt.Sprint(last),
				"$EPOCH", fmt.Sprint(epoch.UnixNano())).Replace(query)
			if _, err := s.write.ExecContext(context.Background(), query); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.writer.last = 0
}

const (
	fillEvents = `WITH RECURSIVE n (i, part) AS (SELECT $FIRST, 0 UNION ALL
		SELECT i + part, 1 - part FROM n WHERE i + part <= $LAST)
	INSERT INTO events (seq, invocation, kind, at, body, leaf)
	SELECT 2 * i - 1 + part, printf('019a7b2c-0000-7000-9000-%012x', i),
		iif(part = 0, 'begun', 'ended'), $EPOCH + i * 1000000000,
		iif(part = 0,
			printf('{"tool":"tool%d","input":{"argv":["run","argument %d of the call","--flag"]},' ||
				'"workspace":"/home/me/w%d","context":{"session_id":"s%d"},"principal":"uid:%d",' ||
				'"route":{"environment":"container","rule":"devcontainer.nearest","candidates":[]}}',
				i % 10, i, i % 100, i % 1000, i % 3),
			printf('{"status":"%s","reason":"exited","exit_code":%d,' ||
				'"stdout":{"text":"%s","total_bytes":%d},"stderr":{"text":""},"metadata":{}}',
				iif(i % 20 = 0, 'failed', 'succeeded'), i % 20 = 0, hex(zeroblob(200)), i % 4096)),
		zeroblob(32) FROM n WHERE i <= $LAST`

	fillInvocations = `WITH RECURSIVE n (i) AS (SELECT $FIRST UNION ALL SELECT i + 1 FROM n WHERE i < $LAST)
	INSERT INTO invocations (seq, ended_seq, id, tool, principal, session_id, status, reason,
		exit_code, environment, container_name, container_id, image, workspace, started_at, ended_at,
		duration, bytes)
	SELECT 2 * i - 1, 2 * i, printf('019a7b2c-0000-7000-9000-%012x', i), 'tool' || (i % 10),
		'uid:' || (i % 3), 's' || (i % 1000), iif(i % 20 = 0, 'failed', 'succeeded'), 'exited',
		i % 20 = 0, 'container', 'box' || (i % 50), printf('%064x', i % 50), 'debian:12',
		'/home/me/w' || (i % 100), $EPOCH + i * 1000000000, $EPOCH + i * 1000000000 + 5000000,
		(i * 7919 % 5000) * 1000000, i % 4096 FROM n`
)
