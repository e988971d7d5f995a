package features

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// request sends a request of the newest revision and returns its result, or the code of its error.
// An empty capability declares nothing. name is the header with the name of what it is about.
func (c rawMCP) request(method, name, extension string, params map[string]any,
) (result map[string]any, code float64) {
	c.t.Helper()
	client, host := c.http, "localhost"
	if c.token != "" {
		client, host = http.DefaultClient, c.tcp
	}
	extensions := map[string]any{}
	if extension != "" {
		extensions[extension] = map[string]any{}
	}
	capabilities := map[string]any{"extensions": extensions}
	if c.elicits {
		capabilities["elicitation"] = map[string]any{"form": map[string]any{}}
	}
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    revisions[1],
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "t", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": capabilities,
	}
	body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+host+"/mcp",
		strings.NewReader(string(body)))
	if err != nil {
		c.t.Fatal(err)
	}
	for header, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": revisions[1], "Mcp-Method": method, "Mcp-Name": name,
	} {
		req.Header.Set(header, value)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, data, ok := strings.Cut(string(text), "data: "); ok {
		text = []byte(data)
	}
	var reply struct {
		Result map[string]any `json:"result"`
		Error  struct {
			Code float64 `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		c.t.Fatalf("%s: %s: %v", method, text, err)
	}
	return reply.Result, reply.Error.Code
}

const tasksExtension = "io.modelcontextprotocol/tasks"

// shell calls the tool shell for a client with tasks.
func (c rawMCP) shell(command string, more map[string]any) map[string]any {
	c.t.Helper()
	args := map[string]any{"command": command, "cwd": c.root}
	maps.Copy(args, more)
	res, code := c.request("tools/call", "shell", tasksExtension,
		map[string]any{"name": "shell", "arguments": args})
	if code != 0 {
		c.t.Fatalf("shell: %v", code)
	}
	return res
}

func (c rawMCP) task(method, id string) (result map[string]any, code float64) {
	c.t.Helper()
	return c.request(method, id, tasksExtension, map[string]any{"taskId": id})
}

// ended waits for the end of a task and returns it.
func (c rawMCP) ended(id string) map[string]any {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		task, code := c.task("tasks/get", id)
		if code != 0 || task["resultType"] != "complete" || task["taskId"] != id {
			c.t.Fatalf("tasks/get: %v %v", task, code)
		}
		if status := task["status"]; status != "working" && status != "input_required" {
			return task
		}
		if time.Now().After(end) {
			c.t.Fatalf("the task does not end: %v", task)
		}
	}
}

// A call that lasts is a task, which only its principal finds and cancels (MC-04, SE-06).
func TestMCPTask_Cancel(t *testing.T) {
	t.Parallel()
	user, ci := startRawMCP(t)
	created := user.shell("sleep 600", nil)
	id := fmt.Sprint(created["taskId"])
	if created["resultType"] != "task" || created["status"] != "working" || created["content"] != nil {
		t.Fatalf("the result of a long call: %v", created)
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		if res, code := ci.task(method, id); code != -32602 {
			t.Errorf("%s of another principal: %v %v", method, res, code)
		}
		if res, code := user.request(method, id, "", map[string]any{"taskId": id}); code != -32021 {
			t.Errorf("%s without the extension: %v %v", method, res, code)
		}
		for _, name := range []string{"", "another"} {
			res, code := user.request(method, name, tasksExtension, map[string]any{"taskId": id})
			if code != -32020 {
				t.Errorf("%s with the name %q: %v %v", method, name, res, code)
			}
		}
	}
	if task, _ := user.task("tasks/get", id); task["status"] != "working" {
		t.Errorf("the task was changed: %v", task)
	}
	for range 2 { // also when it has ended
		if res, code := user.task("tasks/cancel", id); code != 0 || res["resultType"] != "complete" {
			t.Errorf("cancel: %v %v", res, code)
		}
		if task := user.ended(id); task["status"] != "cancelled" {
			t.Errorf("the cancelled task: %v", task)
		}
	}
	a := getFrom(t, user.daemon, "/v1/invocations/"+id)
	if a.at("/reason") != "cancelled" {
		t.Errorf("the record of the task: %s", a.raw)
	}
}

// A task has the result of its call, also after a restart of the daemon. A short call is none
// (MC-04).
func TestMCPTask_Result(t *testing.T) {
	user, _ := startRawMCP(t)
	if res := user.shell("echo short", nil); res["resultType"] != "complete" || res["taskId"] != nil {
		t.Errorf("a short call: %v", res)
	}
	created := user.shell("cat; echo done; exit 3", map[string]any{"wait_ms": 0, "stdin_open": true})
	id := fmt.Sprint(created["taskId"])
	if created["resultType"] != "task" || created["result"] != nil {
		t.Fatalf("a call with wait_ms 0: %v", created)
	}
	user.request("tools/call", "write_stdin", tasksExtension, map[string]any{
		"name": "write_stdin", "arguments": map[string]any{"id": id, "eof": true},
	})
	check := func() {
		t.Helper()
		task := user.ended(id)
		result, _ := task["result"].(map[string]any)
		text := fmt.Sprint(result["content"])
		if task["status"] != "completed" || result["isError"] == true ||
			!strings.Contains(text, "[exit 3 · ") || !strings.Contains(text, "done") {
			t.Errorf("the task: %v", task)
		}
	}
	check()
	user.daemon = user.relaunch(t)
	check()
}

// A call that needs an approval is a task at once. It asks a client that can show a form, and tells
// others what it waits for; an answer to another question decides nothing (MC-04, MC-05).
func TestMCPTask_Approval(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		elicits bool
		action  string
		state   string
		ran     int
	}{
		"accepted":            {true, "accept", "used", 1},
		"declined":            {true, "decline", "denied", 0},
		"approved by HTTP":    {false, "", "used", 1},
		"closed and approved": {true, "cancel", "used", 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAsking(t, "")
			client := rawMCP{daemon: a.daemon, t: t, root: a.root, elicits: c.elicits}
			created, code := client.request("tools/call", "deploy", tasksExtension, map[string]any{
				"name": "deploy", "arguments": map[string]any{"to": "prod", "cwd": a.root + "/work"},
			})
			id := fmt.Sprint(created["taskId"])
			if code != 0 || created["resultType"] != "task" || created["status"] != "working" {
				t.Fatalf("the call that asks: %v %v", created, code)
			}
			list := getFrom(t, a.daemon, "/v1/approvals")
			approval := fmt.Sprint(list.at("/items/0/id"))
			task, _ := client.task("tasks/get", id)
			questions, _ := task["inputRequests"].(map[string]any)
			question, _ := questions["approval-"+approval].(map[string]any)
			if (task["status"] == "input_required") != c.elicits || (question != nil) != c.elicits ||
				!strings.Contains(fmt.Sprint(task["statusMessage"]), approval) {
				t.Errorf("the task that waits: %v", task)
			}
			if c.elicits && !strings.Contains(fmt.Sprint(question), `"to":"prod"`) {
				t.Errorf("the question does not show the call: %v", question)
			}
			call := getFrom(t, a.daemon, "/v1/invocations/"+id)
			if call.at("/status") != "queued" || call.at("/approval") != approval {
				t.Errorf("the call that waits: %s", call.raw)
			}
			answer := func(key, action string) {
				t.Helper()
				_, code := client.request("tasks/update", id, tasksExtension, map[string]any{
					"taskId":         id,
					"inputResponses": map[string]any{key: map[string]any{"action": action}},
				})
				if code != 0 {
					t.Fatalf("tasks/update: %v", code)
				}
			}
			answer("approval", "accept")
			answer("approval-"+id, "accept")
			if a.runs() != 0 {
				t.Fatal("the answer to another question runs the call")
			}
			if c.elicits {
				answer("approval-"+approval, c.action)
			}
			if c.action == "" || c.action == "cancel" {
				a.decide(approval, "approve")
			}
			ended := client.ended(id)
			result, _ := ended["result"].(map[string]any)
			if ended["status"] != "completed" || result["isError"] == (c.ran == 1) || a.runs() != c.ran {
				t.Errorf("%d runs; the task at its end: %v", a.runs(), ended)
			}
			list = getFrom(t, a.daemon, "/v1/approvals?state=all")
			if list.at("/items/0/state") != c.state || list.at("/items/1") != nil {
				t.Errorf("the approvals: %s", list.raw)
			}
		})
	}
}
