package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// generatedBatch is the number of calls in one transaction of generate.
const generatedBatch = 5000

// generate records n calls that ended, begun at even distances from start, as the encoder of the
// Store writes them: 20 tools, 50 containers, 10 principals, 100 workspaces, plans and sessions,
// one call of 20 failed, and 300 bytes of stdout on average. The same n and seed give the same
// calls. No other call may be recorded meanwhile.
func generate(t testing.TB, s *Store, n int, start time.Time, distance time.Duration) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(n), 0))
	batch := make([]*pendingEvent, 0, 2*generatedBatch)
	for i := range n {
		batch = append(batch, generateCall(t, s, random, i, start.Add(time.Duration(i)*distance))...)
		if len(batch) < cap(batch) && i < n-1 {
			continue
		}
		if _, err := s.writer.commit(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
		batch = batch[:0]
	}
}

func generateCall(t testing.TB, s *Store, random *rand.Rand, i int, at time.Time) []*pendingEvent {
	t.Helper()
	pick := func(name string, of int) string { return fmt.Sprintf("%s-%d", name, random.IntN(of)) }
	call := dray.Call{Invocation: dray.Invocation{
		ID:   fmt.Sprintf("%08x-%04x-7000-8000-%012x", at.UnixMilli()>>16, at.UnixMilli()&0xffff, i),
		Tool: pick("tool", 20), Principal: pick("uid", 10), Workspace: "/home/me/" + pick("app", 100),
		Input: fmt.Appendf(nil, `{"argv":["go","test","-run","Test%d","./..."]}`, random.IntN(100_000)),
		Context: dray.CallContext{
			PlanID: pick("plan", 1000), SessionID: pick("session", 5000),
			Labels: map[string]string{"team": pick("team", 8)},
		},
	}}
	call.Route = dray.Route{
		Environment: dray.KindContainer, Rule: "devcontainer.nearest",
		Workspace: call.Invocation.Workspace,
	}
	begin, err := s.beginEvent(call, at)
	must(t, err)
	end, err := s.endEvent(call.Invocation, generateResult(random, call.Route, at))
	must(t, err)
	return []*pendingEvent{begin, end}
}

func generateResult(random *rand.Rand, route dray.Route, at time.Time) dray.Result {
	var res dray.Result
	if code := max(0, random.IntN(20)-18); random.IntN(100) > 0 {
		res = exited(code)
	} else {
		res.Reason = dray.ReasonUnavailable
		res.Error = dray.Errorf(dray.CodeAgentLost, "the agent was lost")
	}
	container := random.IntN(50)
	res.Output, _ = json.Marshal(map[string]int{"n": random.IntN(1000)}) // it always has a JSON form
	res.Stdout.Text = fmt.Sprintf("ok  \tgithub.com/x/y%d\t0.1s\n", random.IntN(1000))
	for range random.IntN(20) {
		res.Stdout.Text += fmt.Sprintf("--- PASS: Test%d (0.00s)\n", random.IntN(100_000))
	}
	res.Stdout.TotalBytes = int64(len(res.Stdout.Text))
	res.Route = route
	res.Metadata.Container = &dray.ContainerMetadata{
		ID: fmt.Sprintf("%064x", container), Name: fmt.Sprintf("web-%d", container),
		Image: "debian:12", Engine: "docker 29", User: "vscode", Transport: "agent", Channel: "socket",
	}
	res.Duration = time.Duration(random.ExpFloat64() * float64(time.Second))
	res.StartedAt, res.EndedAt = at, at.Add(res.Duration)
	return dray.NormalizeResult(res, nil)
}

// Generated calls are those that the Store would record.
func TestGenerate(t *testing.T) {
	s := open(t, options(t.TempDir()))
	start := time.Now().UTC().Add(-time.Hour)
	generate(t, s, 100, start, time.Second)
	checkLog(t, s)
	page := list(t, s, Query{Limit: 1000})
	if len(page.Items) != 100 || !page.Items[99].StartedAt.Equal(start) {
		t.Errorf("%d calls, the first began at %v", len(page.Items), page.Items[99].StartedAt)
	}
	for _, item := range page.Items {
		if len(item.Metadata.Warnings) > 0 || item.EndedAt == nil {
			t.Errorf("%+v", item)
		}
	}
	run(t, s, newInvocation("exec"), exited(0))
	checkLog(t, s)
}
