package features

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray/cmd/dray/command"
)

// revisions are the newest one of each kind of client (MC-01).
var revisions = []string{"2025-11-25", "2026-07-28"}

// mcpClient is a session of the official Go client.
type mcpClient struct {
	t *testing.T
	*sdk.ClientSession

	progress chan string
}

// connectMCP connects with a revision. query has the defaults of calls.
func connectMCP(t *testing.T, d *daemon, revision, query string) *mcpClient {
	t.Helper()
	c := &mcpClient{t: t, progress: make(chan string, 1000)}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{},
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			c.progress <- req.Params.Message
		},
	})
	var err error
	c.ClientSession, err = client.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: "http://localhost/mcp?" + query, HTTPClient: d.http, DisableStandaloneSSE: true,
	}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if got := c.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("the revision is %s, want %s", got, revision)
	}
	return c
}

// mcpResult is a result as its client gets it.
type mcpResult struct {
	text    string
	isError bool
	value   map[string]any
}

func (c *mcpClient) call(name string, args map[string]any) mcpResult {
	c.t.Helper()
	res, err := c.tryCall(c.t.Context(), name, args)
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	return res
}

func (c *mcpClient) tryCall(ctx context.Context, name string, args map[string]any,
) (mcpResult, error) {
	params := &sdk.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken("token")
	res, err := c.CallTool(ctx, params)
	if err != nil {
		return mcpResult{}, err
	}
	if len(res.Content) != 1 {
		c.t.Fatalf("%s returns %d contents", name, len(res.Content))
	}
	text, ok := res.Content[0].(*sdk.TextContent)
	if !ok {
		c.t.Fatalf("%s returns %T", name, res.Content[0])
	}
	out := mcpResult{text: text.Text, isError: res.IsError}
	out.value, _ = res.StructuredContent.(map[string]any)
	return out, nil
}

func (r mcpResult) id() string { return fmt.Sprint(r.value["id"]) }

// has checks that both forms of a result contain a text.
func (r mcpResult) has(t *testing.T, text string) {
	t.Helper()
	value, _ := json.Marshal(r.value)
	quoted, _ := json.Marshal(text)
	if !strings.Contains(r.text, text) ||
		!strings.Contains(string(value), string(quoted[1:len(quoted)-1])) {
		t.Errorf("a form of the result lacks %q: %s\n%s", text, r.text, value)
	}
}

func getFrom(t *testing.T, d *daemon, path string) answer {
	t.Helper()
	a, err := d.ask(t.Context(), http.MethodGet, path, nil)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %v: %d %s", path, err, a.status, a.raw)
	}
	return a
}

func forEachRevision(t *testing.T, run func(t *testing.T, d *daemon, c *mcpClient, dir string)) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			dir := newDir(t)
			d := startDaemon(t, "host: {roots: ["+dir+"]}\n")
			run(t, d, connectMCP(t, d, revision, "cwd="+dir), dir)
		})
	}
}

// A call in a session of a shell says where its next command starts (SS-01, MC-03).
func TestMCPShellSession(t *testing.T) {
	forEachRevision(t, func(t *testing.T, _ *daemon, c *mcpClient, dir string) {
		writeFiles(t, dir, map[string]string{"sub/x": ""})
		r := c.call("shell", map[string]any{"command": "cd sub; export A=1", "session": "s"})
		session, _ := r.value["session"].(map[string]any)
		if session["cwd"] != dir+"/sub" || session["name"] != "s" {
			t.Errorf("the session is %v", r.value)
		}
		c.call("shell", map[string]any{"command": "echo $A $PWD", "session": "s"}).has(t, "1 "+dir+"/sub")
	})
}

// Every tool has a description and all four annotations (MC-01).
func TestMCPTools(t *testing.T) {
	forEachRevision(t, func(t *testing.T, _ *daemon, c *mcpClient, _ string) {
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, tool := range list.Tools {
			names[tool.Name] = true
			a := tool.Annotations
			if tool.Description == "" || a == nil || a.DestructiveHint == nil || a.OpenWorldHint == nil {
				t.Errorf("%s lacks a description or annotations: %+v", tool.Name, a)
			}
		}
		for _, name := range []string{"exec", "shell", "read_file", "python", "read_output"} {
			if !names[name] {
				t.Errorf("tool %s is not listed", name)
			}
		}
	})
}

// A program that fails is a result; a call that is not started, refused or killed is an error. Both
// forms of a result have the output (MC-03).
func TestMCPResults(t *testing.T) {
	forEachRevision(t, func(t *testing.T, d *daemon, c *mcpClient, dir string) {
		res := c.call("shell", map[string]any{"command": "pwd; echo oops >&2; exit 3"})
		res.has(t, dir)
		res.has(t, "oops")
		if res.isError || !strings.HasPrefix(res.text, "[exit 3 · ") ||
			!strings.Contains(res.text, res.id()) {
			t.Errorf("a failed program: %+v", res)
		}
		if rec := getFrom(t, d, "/v1/invocations/"+res.id()); rec.at("/exit_code") != json.Number("3") {
			t.Errorf("the record: %s", rec.raw)
		}
		for name, one := range map[string]struct {
			tool string
			args map[string]any
			text string
		}{
			"not started": {"exec", map[string]any{"argv": []string{"no-such-program"}}, "executable_not_found"},
			"invalid":     {"exec", map[string]any{"argv": 1}, "/input/argv"},
			"unknown":     {"exec", map[string]any{"argv": []string{"true"}, "bogus": 1}, "bogus"},
			"timeout":     {"shell", map[string]any{"command": "sleep 60", "timeout_seconds": 0.3}, "timeout"},
			"wait":        {"shell", map[string]any{"command": "true", "wait_ms": -1}, "wait_ms"},
		} {
			res := c.call(one.tool, one.args)
			if !res.isError {
				t.Errorf("%s is no error: %s", name, res.text)
			}
			res.has(t, one.text)
		}
	})
}

// Long output is cut in both forms, and read_output reads all of it (MC-03).
func TestMCPLongOutput(t *testing.T) {
	t.Parallel()
	forEachRevision(t, func(t *testing.T, _ *daemon, c *mcpClient, _ string) {
		res := c.call("shell", map[string]any{"command": "seq 100000"})
		if n := len(res.text); n > 20<<10 || res.value["truncated"] != true {
			t.Errorf("the result has %d bytes, truncated %v", n, res.value["truncated"])
		}
		res.has(t, "99999\n100000\n")
		var all strings.Builder
		for {
			piece := c.call("read_output", map[string]any{
				"id": res.id(), "offset": all.Len(), "limit": 100_000,
			})
			text, _ := piece.value["text"].(string)
			all.WriteString(text)
			if piece.value["next_offset"] == piece.value["size"] {
				break
			}
		}
		lines := strings.Split(strings.TrimSpace(all.String()), "\n")
		if len(lines) != 100_000 || lines[99_999] != "100000" {
			t.Errorf("read_output has %d lines", len(lines))
		}
	})
}

// A call goes on after wait_ms, takes input, and is waited for. A repeated idempotency key is the
// same call (MC-04).
func TestMCPRunning(t *testing.T) {
	forEachRevision(t, func(t *testing.T, _ *daemon, c *mcpClient, dir string) {
		args := map[string]any{
			"command": "echo begin >> log; cat; exit 5", "stdin_open": true, "wait_ms": 50,
			"idempotency_key": "once",
		}
		res := c.call("shell", args)
		if again := c.call("shell", args); again.id() != res.id() || res.isError {
			t.Errorf("a repeat is call %s, not %s", again.id(), res.id())
		}
		c.call("list_calls", nil).has(t, res.id())
		c.call("write_stdin", map[string]any{"id": res.id(), "text": "typed\n", "eof": true})
		end := c.call("read_output", map[string]any{"id": res.id(), "wait_ms": 20_000})
		end.has(t, "typed")
		if !strings.HasPrefix(end.text, "[exit 5 · ") {
			t.Errorf("the end: %s", end.text)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(text) != "begin\n" {
			t.Errorf("the call ran more than once: %q %v", text, err)
		}
	})
}

// Progress has the lines that a call writes, and cancelling the request ends its processes (MC-04).
func TestMCPProgressAndCancel(t *testing.T) {
	forEachRevision(t, func(t *testing.T, d *daemon, c *mcpClient, dir string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := c.tryCall(ctx, "shell", map[string]any{
				"command": "echo $$ > pid; echo compiling; sleep 600 & sleep 600",
			})
			ended <- err
		}()
		select {
		case line := <-c.progress:
			if line != "compiling" {
				t.Errorf("progress is %q", line)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("there is no progress")
		}
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled call: %v", err)
		}
		for end := time.Now().Add(20 * time.Second); syscall.Kill(-pid, 0) == nil || exists(fmt.Sprint("/proc/", pid)); {
			if time.Now().After(end) {
				t.Fatal("the processes of a cancelled call still run")
			}
			time.Sleep(20 * time.Millisecond)
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			list := getFrom(t, d, "/v1/invocations?reason=cancelled")
			if list.at("/items/0/tool") == "shell" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the cancelled call is not recorded: %s", list.raw)
			}
		}
	})
}

// A call that two requests with one idempotency key wait for goes on when one of them is cancelled:
// a client that gives up may just have repeated its request (MC-04).
func TestMCPCancelOfRepeatedCall(t *testing.T) {
	forEachRevision(t, func(t *testing.T, d *daemon, first *mcpClient, dir string) {
		second := connectMCP(t, d, first.InitializeResult().ProtocolVersion, "cwd="+dir)
		args := map[string]any{
			"command":         "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo done",
			"idempotency_key": "once",
		}
		type end struct {
			res mcpResult
			err error
		}
		begin := func(ctx context.Context, c *mcpClient) <-chan end {
			ended := make(chan end, 1)
			go func() {
				res, err := c.tryCall(ctx, "shell", args)
				ended <- end{res, err}
			}()
			select {
			case <-c.progress: // it waits for the call
			case <-time.After(20 * time.Second):
				t.Fatal("there is no progress")
			}
			return ended
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancelled, other := begin(ctx, first), begin(t.Context(), second)
		cancel()
		if got := <-cancelled; !errors.Is(got.err, context.Canceled) {
			t.Errorf("the cancelled request: %v", got.err)
		}
		// A request that the daemon serves after the cancel shows whether the call goes on.
		first.call("list_calls", nil).has(t, "shell")
		writeFiles(t, dir, map[string]string{"go": ""})
		if got := <-other; got.err != nil || !strings.HasPrefix(got.res.text, "[exit 0 ") {
			t.Errorf("the other request: %v, %s", got.err, got.res.text)
		}
	})
}

// A client that has a session of an earlier daemon goes on without noticing (MC-01).
func TestMCPRestart(t *testing.T) {
	dir := newDir(t)
	d := startDaemon(t, "host: {roots: ["+dir+"]}\n")
	c := connectMCP(t, d, revisions[0], "cwd="+dir)
	c.call("shell", map[string]any{"command": "true"})
	d.end(t)
	next := launch(d.state, d.config)
	t.Cleanup(func() { next.end(t) })
	if _, ok := next.log.await("ready"); !ok {
		t.Fatal(next.log.text())
	}
	c.call("shell", map[string]any{"command": "echo again"}).has(t, "again")
}

// The bridge passes messages on in both directions. What is not a message gets an error and ends
// nothing (MC-01).
func TestMCPBridge(t *testing.T) {
	dir := newDir(t)
	d := startDaemon(t, "host: {roots: ["+dir+"]}\n")
	t.Chdir(dir)
	in, input := io.Pipe()
	output, out := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- command.Execute(t.Context(), []string{"mcp", "--state", d.state, "--config", d.config}, in, out,
			io.Discard)
		_ = out.Close()
	}()
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<24)
	exchange := func(message, want string) {
		t.Helper()
		_, _ = io.WriteString(input, message+"\n")
		if want == "" {
			return
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%.100s: got %.400s, want %s", message, lines.Text(), want)
		}
	}
	exchange("nonsense", "-32700")
	exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, `"2025-06-18"`)
	exchange(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
	exchange(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec","arguments":{"argv":["pwd"]}}}`,
		dir)
	exchange(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"exec","arguments":{"argv":["`+
		strings.Repeat("x", 65<<20)+`"]}}}`, "-32600")
	exchange(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"shell","arguments":{`+
		`"command":"echo still here"}}}`, "still here")
	// Each message that a client may wait for has a response with its id, if it has one.
	exchange(`[{"jsonrpc":"2.0","id":5,"method":"ping"}]`, `"id":null`)
	exchange(`5`, `"id":null`)
	exchange(`{"jsonrpc":"2.0","id":6,"method":6}`, `"id":6`)
	exchange(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":7}}`, `"id":7`)
	exchange(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":[]}`, `"id":8`)
	exchange(`{"jsonrpc":"2.0","id":9,"result":{}}`, "")
	exchange(`{"jsonrpc":"2.0","id":11,"method":"no/such"}`, `"code":-32601`)
	exchange(`{"jsonrpc":"2.0","id":12,"method":"tasks/get","params":{"taskId":"none","_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`,
		`"code":-32602`)
	// What the daemon says by itself arrives too, in any order with the response.
	disabled := d.dray(t.Context(), nil, "tools", "disable", "glob")
	if disabled.code != 0 {
		t.Fatalf("%+v", disabled)
	}
	exchange(`{"jsonrpc":"2.0","id":10,"method":"tools/list"}`, "")
	for got := ""; !strings.Contains(got, "tools/list_changed") || !strings.Contains(got, `"id":10`); {
		if !lines.Scan() {
			t.Fatalf("the output ended after %.400s", got)
		}
		got += lines.Text()
	}
	_ = input.Close()
	if lines.Scan() {
		t.Errorf("more output: %s", lines.Text())
	}
	if code := <-done; code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}
}

// An unknown method gets the error of JSON-RPC with the id of its request (MC-01).
func TestMCPUnknownMethod(t *testing.T) {
	d := startDaemon(t, "")
	for _, revision := range revisions {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","id":"a","method":"no/such","params":{"_meta":{`+
				`"io.modelcontextprotocol/protocolVersion":"`+revision+`"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": revision, "Mcp-Method": "no/such",
		} {
			req.Header.Set(name, value)
		}
		resp, err := d.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(text), `"code":-32601`) ||
			!strings.Contains(string(text), `"id":"a"`) {
			t.Errorf("%s: %s: %s %v", revision, resp.Status, text, err)
		}
	}
}

// A declared tool that MCP's own tool hides is logged, once.
func TestMCPHiddenTool(t *testing.T) {
	d := startDaemon(t, "tools: [{name: cancel_call, description: mine, argv: [\"true\"]}]\n")
	c := connectMCP(t, d, revisions[0], "")
	for range 2 {
		if _, err := c.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(d.log.text(), "tool hidden over MCP"); n != 1 {
		t.Errorf("%d warnings: %s", n, d.log.text())
	}
}
