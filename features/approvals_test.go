package features

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// asking is a daemon with a tool that policy asks about. Each of its runs appends a line to a file.
type asking struct {
	*daemon
	t    *testing.T
	root string
	tcp  string // address, if it listens there
}

func startAsking(t *testing.T, more string) *asking {
	t.Helper()
	a := &asking{t: t, root: newDir(t)}
	writeFiles(t, a.root, map[string]string{"work/x": "", "work/sub/x": "", "config.yaml": more +
		strings.ReplaceAll(`
host: {roots: [ROOT/work]}
tools:
  - name: deploy
    argv: [sh, -c, 'echo "$0" >> ROOT/runs', "${input.to}"]
    input_schema: {type: object, properties: {to: {type: string}}, required: [to]}
    environment: host
    capabilities: [human_approval_required]
`, "ROOT", a.root)})
	a.start()
	t.Cleanup(func() { a.end(t) })
	return a
}

func (a *asking) start() {
	a.t.Helper()
	a.daemon = launch(a.root+"/state", a.root+"/config.yaml")
	ready, ok := a.log.await("ready")
	if !ok {
		a.t.Fatalf("the daemon does not start: %s", a.log.text())
	}
	a.tcp = fmt.Sprint(ready["tcp"])
}

func (a *asking) deploy(to string) map[string]any {
	return map[string]any{
		"tool": "deploy", "input": map[string]any{"to": to}, "cwd": a.root + "/work",
	}
}

func (a *asking) runs() int {
	text, err := os.ReadFile(a.root + "/runs")
	if err != nil && !os.IsNotExist(err) {
		a.t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// pending makes a call that must ask, and returns the id of its approval.
func (a *asking) pending(body map[string]any) string {
	a.t.Helper()
	got, err := a.call(a.t.Context(), "", body)
	if err != nil || got.at("/reason") != "denied" || got.at("/error/code") != "approval_required" {
		a.t.Fatalf("the call does not ask: %v: %s", err, got.raw)
	}
	id := fmt.Sprint(got.at("/error/errors/0/message"))
	if !strings.Contains(fmt.Sprint(got.at("/error/hint")), "dray approvals approve "+id) {
		a.t.Fatalf("the hint has no command with %s: %s", id, got.raw)
	}
	return id
}

// decide returns the status of a decision over HTTP.
func (a *asking) decide(id, decision string) int {
	a.t.Helper()
	got, err := a.ask(a.t.Context(), http.MethodPost, "/v1/approvals/"+id+"/decision",
		map[string]any{"decision": decision})
	if err != nil {
		a.t.Error(err)
	}
	return got.status
}

// reason returns how a call ends.
func (a *asking) reason(body map[string]any) string {
	got, err := a.call(a.t.Context(), "", body)
	if err != nil {
		a.t.Error(err)
	}
	return fmt.Sprint(got.at("/reason"))
}

// steps checks the recorded states of an approval, the first first, and the audit log as a whole.
func (a *asking) steps(id string, want ...string) {
	a.t.Helper()
	events := getFrom(a.t, a.daemon, "/v1/audit/events?kind=approval&limit=1000")
	items, _ := events.at("/items").([]any)
	var got []string
	for i := range items {
		at := func(p string) any { return events.at(fmt.Sprintf("/items/%d/body/%s", i, p)) }
		if at("approval") == id {
			got = append([]string{fmt.Sprint(at("state"))}, got...)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		a.t.Errorf("the steps of %s are %v, want %v", id, got, want)
	}
	if ran := a.dray(a.t.Context(), nil, "audit", "verify"); ran.code != 0 {
		a.t.Errorf("audit verify: %d %s %s", ran.code, ran.stdout, ran.stderr)
	}
}

// An approved call runs once when it is repeated, and asks again after that; a second decision is a
// conflict (SE-04, MC-05).
func TestApprovalLetsOneCallRun(t *testing.T) {
	a := startAsking(t, "")
	id := a.pending(a.deploy("prod"))
	if again := a.pending(a.deploy("prod")); again != id {
		t.Errorf("the repeated call asks for %s, not %s", again, id)
	}
	if ran := a.dray(t.Context(), nil, "approvals", "approve", id); ran.code != 0 {
		t.Fatalf("approve: %d %s", ran.code, ran.stderr)
	}
	if status := a.decide(id, "deny"); status != http.StatusConflict {
		t.Errorf("the second decision: %d", status)
	}
	got, err := a.call(t.Context(), "", a.deploy("prod"))
	if err != nil || got.at("/reason") != "exited" || a.runs() != 1 {
		t.Errorf("the approved call: %v, %d runs: %s", err, a.runs(), got.raw)
	}
	shown := a.dray(t.Context(), nil, "audit", "show", got.id())
	if want := fmt.Sprintf("%s, decided by uid:%d\n", id, os.Getuid()); !strings.Contains(
		string(shown.stdout), want) {
		t.Errorf("audit show does not have %q: %s", want, shown.stdout)
	}
	if next := a.pending(a.deploy("prod")); next == id || a.runs() != 1 {
		t.Errorf("the replayed call: %s, %d runs", next, a.runs())
	}
	a.steps(id, "pending", "approved", "used")
}

// A denied call does not run, and says who denied it (SE-04).
func TestApprovalDenied(t *testing.T) {
	a := startAsking(t, "")
	id := a.pending(a.deploy("prod"))
	ran := a.dray(t.Context(), nil, "approvals", "deny", id, "--reason", "not on Friday")
	if ran.code != 0 {
		t.Fatalf("deny: %d %s", ran.code, ran.stderr)
	}
	got, err := a.call(t.Context(), "", a.deploy("prod"))
	if err != nil || got.at("/error/code") != "denied" || a.runs() != 0 ||
		!strings.Contains(fmt.Sprint(got.at("/error/message")), "not on Friday") ||
		getFrom(t, a.daemon, "/v1/invocations/"+got.id()).at("/metadata/approval/id") != id {
		t.Errorf("%v: %s", err, got.raw)
	}
	a.steps(id, "pending", "denied")
}

// A call that waits ends when its approval expires, which is recorded (SE-04).
func TestApprovalExpires(t *testing.T) {
	a := startAsking(t, "policy: {approval_lifetime: 1s}\n")
	got, err := a.call(t.Context(), "?wait_ms=60000", a.deploy("prod"))
	if err != nil || got.at("/reason") != "denied" || got.at("/error/code") != "approval_required" {
		t.Fatalf("%v: %s", err, got.raw)
	}
	list := getFrom(t, a.daemon, "/v1/approvals?state=expired")
	id := fmt.Sprint(list.at("/items/0/id"))
	if status := a.decide(id, "approve"); status != http.StatusConflict || a.runs() != 0 {
		t.Errorf("a decision after the expiry: %d, %d runs", status, a.runs())
	}
	a.steps(id, "pending", "expired")
}

// A call that is altered in any way after its approval asks again (SE-04, SE-05).
func TestApprovalOfAnotherCall(t *testing.T) {
	a := startAsking(t, "")
	id := a.pending(a.deploy("prod"))
	if status := a.decide(id, "approve"); status != http.StatusOK {
		t.Fatal(status)
	}
	for name, change := range map[string]map[string]any{
		"input":       {"input": map[string]any{"to": "prod2"}},
		"cwd":         {"cwd": a.root + "/work/sub"},
		"env":         {"env": map[string]any{"A": "b"}},
		"timeout":     {"timeout_seconds": 5},
		"idle":        {"idle_timeout_seconds": 5},
		"leftovers":   {"leftovers": "keep"},
		"environment": {"environment": "host"},
		"sync":        {"sync": []string{"x"}},
		"mapping":     {"mapping": "none"},
		"plan":        {"context": map[string]any{"plan_id": "x"}},
		"session id":  {"context": map[string]any{"session_id": "x"}},
		"sandbox":     {"context": map[string]any{"sandbox_id": "x"}},
	} {
		body := a.deploy("prod")
		maps.Copy(body, change)
		if other := a.pending(body); other == id {
			t.Errorf("a call with another %s uses the approval", name)
		}
	}
	if a.runs() != 0 {
		t.Error("an altered call ran")
	}
	labelled := a.deploy("prod")
	labelled["context"] = map[string]any{"labels": map[string]string{"try": "2"}}
	if got := a.reason(labelled); got != "exited" || a.runs() != 1 {
		t.Errorf("the approved call: %s, %d runs", got, a.runs())
	}
	a.steps(id, "pending", "approved", "used")
}

// Of two deciders one decides, and of two identical calls one runs (SE-04).
func TestApprovalRaces(t *testing.T) {
	a := startAsking(t, "")
	want := 0
	for i := range 50 {
		call := a.deploy(fmt.Sprint("race", i))
		id := a.pending(call)
		statuses := both(func(n int) string {
			return fmt.Sprint(a.decide(id, []string{"approve", "deny"}[n]))
		})
		if statuses[0] == statuses[1] {
			t.Fatalf("round %d: both deciders get %s", i, statuses[0])
		}
		reasons := both(func(int) string { return a.reason(call) })
		ran := 0
		for _, reason := range reasons {
			if reason == "exited" {
				ran++
			}
		}
		if statuses[0] == "200" { // approved
			want++
			if ran != 1 {
				t.Errorf("round %d: %d of two calls ran", i, ran)
			}
		} else if ran != 0 {
			t.Errorf("round %d: a denied call ran", i)
		}
		if a.runs() != want {
			t.Fatalf("round %d: %d runs, want %d", i, a.runs(), want)
		}
	}
}

// both calls do twice at once.
func both(do func(n int) string) map[int]string {
	var group sync.WaitGroup
	var mu sync.Mutex
	out := map[int]string{}
	for n := range 2 {
		group.Go(func() {
			got := do(n)
			mu.Lock()
			defer mu.Unlock()
			out[n] = got
		})
	}
	group.Wait()
	return out
}

// An approval outlives the daemon that it was given to, and a used one stays used (SE-04).
func TestApprovalAfterRestart(t *testing.T) {
	a := startAsking(t, "")
	id := a.pending(a.deploy("prod"))
	if status := a.decide(id, "approve"); status != http.StatusOK {
		t.Fatal(status)
	}
	a.end(t)
	a.start()
	if got := a.reason(a.deploy("prod")); got != "exited" || a.runs() != 1 {
		t.Errorf("after the restart: %s, %d runs", got, a.runs())
	}
	a.end(t)
	a.start()
	if next := a.pending(a.deploy("prod")); next == id || a.runs() != 1 {
		t.Errorf("after the second restart: %s, %d runs", next, a.runs())
	}
	a.steps(id, "pending", "approved", "used")
}

// list_calls tells a model that a call waits for a person, not for a slot (MC-05, SS-02).
func TestListedCallThatWaitsForApproval(t *testing.T) {
	a := startAsking(t, "")
	waits, err := a.call(t.Context(), "?wait_ms=400", a.deploy("prod"))
	if err != nil || waits.at("/status") != "queued" {
		t.Fatalf("%v: %s", err, waits.raw)
	}
	text := connectMCP(t, a.daemon, revisions[1], "").call("list_calls", nil).text
	if want := fmt.Sprint(", waits for approval ", waits.at("/approval")); !strings.Contains(text, want) {
		t.Errorf("%q does not have %q", text, want)
	}
}

// The user of an MCP client decides by elicitation; without it the model gets the pending id
// (MC-05, SE-05).
func TestApprovalByElicitation(t *testing.T) {
	t.Parallel()
	for _, revision := range revisions {
		for action, want := range map[string]string{
			"accept": "used", "decline": "denied", "cancel": "pending", "": "pending",
		} {
			t.Run(revision+" "+action, func(t *testing.T) { elicited(t, revision, action, want) })
		}
	}
}

func elicited(t *testing.T, revision, action, want string) {
	a := startAsking(t, "")
	asked := ""
	opts := &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}}
	if action != "" {
		opts.ElicitationHandler = func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult,
			error,
		) {
			asked = req.Params.Message
			return &sdk.ElicitResult{Action: action}, nil // accept without content
		}
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts).
		Connect(t.Context(), &sdk.StreamableClientTransport{
			Endpoint: "http://localhost/mcp", HTTPClient: a.http,
		}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{
		Name: "deploy",
		Arguments: map[string]any{
			"to": "prod", "cwd": a.root + "/work", "env": map[string]any{"LEVEL": "9\r\x1b[2K"},
			"idempotency_key": "k",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	content, ok := res.Content[0].(*sdk.TextContent)
	if !ok {
		t.Fatalf("the model gets %T", res.Content[0])
	}
	text := content.Text
	list := getFrom(t, a.daemon, "/v1/approvals?state=all")
	if got := list.at("/items/0/state"); got != want || list.at("/items/1") != nil {
		t.Errorf("the approvals are %s, want one that is %s", list.raw, want)
	}
	if ran := a.runs() == 1; ran != (action == "accept") || res.IsError == ran {
		t.Errorf("%d runs, the model gets %s", a.runs(), text)
	}
	id := fmt.Sprint(list.at("/items/0/id"))
	if want == "pending" && !strings.Contains(text, id) {
		t.Errorf("the model does not get the id %s: %s", id, text)
	}
	if action == "" {
		return
	}
	for _, part := range []string{`command: sh -c 'echo "$0" >> ` + a.root + `/runs' prod`, `"to":"prod"`, a.root + "/work", `LEVEL=9\u000d\u001b[2K`, id} {
		if !strings.Contains(asked, part) {
			t.Errorf("the user does not see %q in %s", part, asked)
		}
	}
}

// A token and a process of a running call decide nothing, and a client cannot make up the answer of
// its user (SE-05).
func TestApprovalIsNotSelfMade(t *testing.T) {
	a := startAsking(t, "")
	id := a.pending(a.deploy("prod"))
	got, err := a.call(t.Context(), "", map[string]any{
		"tool": "exec", "environment": "host", "cwd": a.root + "/work",
		"input": map[string]any{"argv": []string{
			"curl", "-s", "--unix-socket", a.state + "/dray.sock", "-H", "Content-Type: application/json",
			"-d", `{"decision": "approve"}`, "http://localhost/v1/approvals/" + id + "/decision",
		}},
	})
	if err != nil || got.at("/exit_code") == nil ||
		!strings.Contains(fmt.Sprint(got.at("/stdout/text")), `"denied"`) {
		t.Errorf("a process of a call decides: %v: %s", err, got.raw)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{
			Endpoint: "http://localhost/mcp", HTTPClient: a.http,
		}, &sdk.ClientSessionOptions{ProtocolVersion: "2026-07-28"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{
		Name: "deploy", Arguments: map[string]any{"to": "prod", "cwd": a.root + "/work"},
		RequestState:   id + ".00",
		InputResponses: sdk.InputResponseMap{"approval": &sdk.ElicitResult{Action: "accept"}},
	})
	if err != nil || !res.IsError || a.runs() != 0 {
		t.Errorf("a forged answer: %v: %+v, %d runs", err, res, a.runs())
	}
	a.steps(id, "pending")
}

// A process of a call on the host is no MCP client whose user decides (SE-05).
func TestApprovalIsNotElicitedInCall(t *testing.T) {
	a := startAsking(t, "")
	message := func(more string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy",` +
			`"arguments":{"to":"prod","cwd":"` + a.root + `/work"},` + more + `"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`
	}
	const script = `post() {
curl -s --unix-socket "$1" -H "Content-Type: application/json" -H "Mcp-Method: tools/call" \
-H "Mcp-Name: deploy" -H "Mcp-Protocol-Version: 2026-07-28" \
-H "Accept: application/json, text/event-stream" -d "$2" http://localhost/mcp
}
state=$(post "$1" "$2" | sed -n 's/.*"requestState":"\([^"]*\)".*/\1/p')
echo "state $state"
post "$1" "$(printf %s "$3" | sed "s/STATE/$state/")"`
	got, err := a.call(t.Context(), "", map[string]any{
		"tool": "exec", "environment": "host", "cwd": a.root + "/work",
		"input": map[string]any{"argv": []string{
			"sh", "-c", script, "sh", a.state + "/dray.sock", message(""),
			message(`"requestState":"STATE","inputResponses":{"approval":{"action":"accept"}},`),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(getFrom(t, a.daemon, "/v1/approvals").at("/items/0/id"))
	text := fmt.Sprint(got.at("/stdout/text"))
	if !strings.HasPrefix(text, "state "+id[:4]) || !strings.Contains(text, "may not decide") {
		t.Errorf("the process gets %s", text)
	}
	if n := a.runs(); n != 0 {
		t.Errorf("the call ran %d times", n)
	}
	a.steps(id, "pending")
}

// A token does not decide about its own calls; the daemon's user does (SE-05).
func TestApprovalOfTokenCall(t *testing.T) {
	a := startAsking(t, "server: {tcp: 0}\n")
	secret, err := os.ReadFile(a.state + "/token")
	if err != nil {
		t.Fatal(err)
	}
	post := func(path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.tcp+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	call := fmt.Sprintf(`{"tool": "deploy", "input": {"to": "prod"}, "cwd": "%s/work"}`, a.root)
	post("/v1/invocations", call)
	id := fmt.Sprint(getFrom(t, a.daemon, "/v1/approvals").at("/items/0/id"))
	approve := `{"decision": "approve"}`
	if status, text := post("/v1/approvals/"+id+"/decision", approve); status != http.StatusForbidden {
		t.Errorf("a token decides: %d %s", status, text)
	}
	foreign := a.pending(a.deploy("prod")) // the same call of another principal is another call
	if status, text := post("/v1/approvals/"+foreign+"/decision", approve); foreign == id ||
		status != http.StatusNotFound {
		t.Errorf("a token sees the approval of another principal: %d %s", status, text)
	}
	if status := a.decide(id, "approve"); status != http.StatusOK {
		t.Errorf("the daemon's user decides: %d", status)
	}
	if _, text := post("/v1/invocations", call); a.runs() != 1 {
		t.Errorf("%d runs: %s", a.runs(), text)
	}
}

// pending makes a call that must ask, and returns the id of its approval.
func (g *guarded) pending(body map[string]any) string {
	g.t.Helper()
	got, err := g.call(g.t.Context(), "", body)
	if err != nil || got.at("/error/code") != "approval_required" {
		g.t.Fatalf("the call does not ask: %v: %s", err, got.raw)
	}
	return fmt.Sprint(got.at("/error/errors/0/message"))
}

func (g *guarded) approve(id string) {
	g.t.Helper()
	if ran := g.dray(g.t.Context(), nil, "approvals", "approve", id); ran.code != 0 {
		g.t.Fatalf("approve: %d %s", ran.code, ran.stderr)
	}
}

// session makes a call in a session, which is approved first.
func (g *guarded) session(dir, command string) {
	g.t.Helper()
	body := g.body(dir, "shell", map[string]any{"command": command, "session": "s"})
	g.approve(g.pending(body))
	g.runs(body)
}

// An approval of a command in a session is of the state that its human saw: the directory,
// variables and functions that earlier commands left (SE-04, SE-05, SS-01).
func TestApprovalIsOfTheStateOfTheSession(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	for _, dir := range []string{g.root + "/host", g.root + "/app"} {
		g.session(dir, "export LEVEL=safe")
		command := g.body(dir, "shell",
			map[string]any{"command": `echo "$LEVEL $PWD" >>` + dir + "/out", "session": "s"})
		if strings.HasSuffix(dir, "app") {
			command["paths"] = "host"
		}
		for _, change := range []string{
			"export LEVEL=hostile", "cd /tmp", "unset LEVEL", "cd /", "export OTHER=/tmp:x",
		} {
			id := g.pending(command)
			shown := g.dray(t.Context(), nil, "approvals", "show", id)
			if !strings.Contains(string(shown.stdout), "session") {
				t.Errorf("the human does not see the session: %s", shown.stdout)
			}
			g.approve(id)
			g.session(dir, change)
			if next := g.pending(command); next == id {
				t.Errorf("%s: the approval is still used after %q", dir, change)
			}
			if _, err := os.Stat(dir + "/out"); !os.IsNotExist(err) {
				t.Fatalf("the command ran after %q", change)
			}
		}
		id := g.pending(command)
		shown := g.dray(t.Context(), nil, "approvals", "show", id)
		if text := string(shown.stdout); !strings.Contains(text, "OTHER=/tmp:x") {
			t.Errorf("the human does not see the variables of the session: %s", text)
		}
		g.approve(id)
		g.runs(command)
	}
}

// An approval is of a directory, not of a symlink that leads elsewhere when the call runs, and of
// the definition of a tool, not of its name (SE-04).
func TestApprovalOfWhatWasSwapped(t *testing.T) {
	g := startGuarded(t)
	host := g.root + "/host"
	writeFiles(t, host, map[string]string{"a/x": "", "b/x": ""})
	link := func(to string) {
		_ = os.Remove(host + "/link")
		if err := os.Symlink(to, host+"/link"); err != nil {
			t.Fatal(err)
		}
	}
	link("a")
	body := g.body(host, "exec", map[string]any{"argv": []string{"python3", "-c", "open('ran', 'w')"}})
	body["cwd"] = host + "/link"
	id := g.pending(body)
	g.approve(id)
	link("b")
	if next := g.pending(body); next == id {
		t.Error("the approval is used in another directory")
	}
	if _, err := os.Stat(host + "/b/ran"); !os.IsNotExist(err) {
		t.Error("the call ran in another directory")
	}
	link("a")
	g.runs(body)
	if _, err := os.Stat(host + "/a/ran"); err != nil {
		t.Error(err)
	}
	for _, guess := range []string{"", "x", strings.Repeat("0", 36), "..%2f", id[:35], strings.ToUpper(id)} {
		got, err := g.ask(t.Context(), http.MethodPost, "/v1/approvals/"+guess+"/decision",
			map[string]any{"decision": "approve"})
		if err != nil || got.status < 400 {
			t.Errorf("%q: %v %d", guess, err, got.status)
		}
	}
}
