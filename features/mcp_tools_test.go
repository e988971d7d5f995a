package features

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func (c *mcpClient) toolNames() []string {
	c.t.Helper()
	list, err := c.ListTools(c.t.Context(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// A client lists and calls the tools that its own workspace declares, once the workspace is trusted
// with them. They run in its container only (RT-15, RT-06, MC-01).
func TestMCPProjectTools(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{
		"app/.devcontainer.json": withImages(`{"image": "BUSYBOX"}`), "app/sub/x": "",
		"other/.devcontainer.json": withImages(`{"image": "BUSYBOX"}`),
	})
	d := startDaemon(t, fmt.Sprintf("host: {roots: [%s]}", root))
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	p := project{d, t, root + "/app"}
	p.declare(strings.ReplaceAll(ownTool, "argv:", "input_schema: {type: object}\n  argv:"))
	clients := map[string]string{
		"workspace": "workspace=" + url.QueryEscape(p.folder), "cwd": "cwd=" + url.QueryEscape(p.folder+"/sub"),
	}
	without := map[string]string{
		"none": "", "another": "workspace=" + url.QueryEscape(root+"/other"), "container": "container=x",
	}
	for _, revision := range revisions {
		for name, query := range clients {
			c := connectMCP(t, d, revision, query)
			if slices.Contains(c.toolNames(), "where") {
				t.Errorf("%s %s: listed before the trust", revision, name)
			}
		}
	}
	p.trust()
	for _, revision := range revisions {
		for name, query := range clients {
			t.Run(revision+" "+name, func(t *testing.T) {
				c := connectMCP(t, d, revision, query)
				if names := c.toolNames(); !slices.Contains(names, "where") || slices.Contains(names, "_project") {
					t.Errorf("listed: %s", names)
				}
				r := c.call("where", nil)
				if r.isError || r.value["exit_code"] != 0.0 {
					t.Errorf("the call: %s", r.text)
				}
				record := getFrom(t, d, "/v1/invocations?tool=where&limit=1")
				if record.at("/items/0/route/environment") != "container" {
					t.Errorf("it ran elsewhere: %s", record.raw)
				}
			})
		}
		for name, query := range without {
			t.Run(revision+" "+name, func(t *testing.T) {
				c := connectMCP(t, d, revision, query)
				if slices.Contains(c.toolNames(), "where") {
					t.Error("it is listed")
				}
				for _, tool := range []string{"where", "_project"} {
					res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool})
					if err == nil && !res.IsError {
						t.Errorf("%s was called: %+v", tool, res)
					}
				}
			})
		}
	}
}

// The output that a call kept is read over HTTP and on the command line as over MCP: a built-in
// tool, whose calls are recorded. Another principal's call is not found (CA-04, SE-06).
func TestReadOutputTool(t *testing.T) {
	user, ci := startRawMCP(t)
	long, err := user.call(t.Context(), "", map[string]any{
		"tool": "shell", "cwd": user.root, "input": map[string]any{"command": "seq 50000; echo no >&2"},
	})
	if err != nil || long.at("/reason") != "exited" {
		t.Fatalf("%v: %s", err, long.raw)
	}
	read := func(input map[string]any) answer {
		t.Helper()
		input["id"] = long.id()
		a, err := user.call(t.Context(), "", map[string]any{"tool": "read_output", "input": input})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var text strings.Builder
	for {
		part := read(map[string]any{"offset": text.Len(), "limit": 200_000})
		next, ok := part.at("/output/text").(string)
		if !ok || next == "" {
			t.Fatalf("read_output: %.500s", part.raw)
		}
		text.WriteString(next)
		if part.at("/output/next_offset") == part.at("/output/size") {
			break
		}
	}
	if lines := strings.Fields(text.String()); len(lines) != 50_000 || lines[49_999] != "50000" {
		t.Errorf("%d lines", len(lines))
	}
	if got := read(map[string]any{"stream": "stderr"}); got.at("/output/text") != "no\n" {
		t.Errorf("stderr: %s", got.raw)
	}
	ran := user.dray(t.Context(), nil, "call", "read_output", "--input",
		`{"id": "`+long.id()+`", "offset": 2, "limit": 4}`)
	if ran.code != 0 || !strings.Contains(string(ran.stdout), `"text":"2\n3\n"`) {
		t.Errorf("dray call: %d %s %s", ran.code, ran.stdout, ran.stderr)
	}
	listed := getFrom(t, user.daemon, "/v1/tools/read_output")
	if listed.at("/state") != "active" || listed.at("/input_schema/required/0") != "id" {
		t.Errorf("/v1/tools: %s", listed.raw)
	}
	if res, code := ci.request("tools/call", "read_output", "", map[string]any{
		"name": "read_output", "arguments": map[string]any{"id": long.id()},
	}); code != 0 || res["isError"] != true {
		t.Errorf("another principal reads it: %v %v", res, code)
	}
	if log := user.log.text(); strings.Contains(log, "tool hidden over MCP") {
		t.Errorf("the daemon warns about its own tool: %s", log)
	}
}
