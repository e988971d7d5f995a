package features

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A plain call of a revision without sessions is served by the daemon, others by the SDK.
const (
	servedDirectly = "application/json"
	servedBySDK    = "text/event-stream"
)

// plainMeta is what a request of revision 2026-07-28 has at least.
const plainMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{},` +
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}`

// plainCall returns the body of a call.
func plainCall(id, tool, arguments, meta string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool +
		`","arguments":` + arguments + `,"_meta":{` + meta + `}}}`
}

// postMCP sends a request of revision 2026-07-28. The caller closes the body of the response.
func postMCP(ctx context.Context, t *testing.T, d *daemon, query, tool, body string,
	header ...string,
) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp?"+query,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	header = append([]string{
		"Content-Type", "application/json", "Accept", "application/json, text/event-stream",
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool,
	}, header...)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := d.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// mcpReply is a response of JSON-RPC, with what differs from call to call left out.
type mcpReply struct {
	status      int
	contentType string
	message     map[string]any
}

var changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[0-9.]+m?s\b|("duration_ms":)[0-9.]+`)

func readReply(t *testing.T, resp *http.Response) mcpReply {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := mcpReply{status: resp.StatusCode, contentType: resp.Header.Get("Content-Type")}
	if strings.HasPrefix(r.contentType, servedBySDK) {
		for line := range bytes.Lines(text) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				text = data
			}
		}
	}
	if err := json.Unmarshal(changing.ReplaceAll(text, []byte("${1}0")), &r.message); err != nil {
		r.message = map[string]any{"text": string(text)}
	}
	return r
}

// A plain call has the same reply whether the daemon serves it or the SDK does, which it does when
// the request has anything more (MC-01, MC-03).
func TestMCPDirect_SameReply(t *testing.T) {
	dir := newDir(t)
	d := startDaemon(t, "host: {roots: ["+dir+"]}\nlimits: {max_timeout: 60s}\n")
	writeFiles(t, dir, map[string]string{"a.txt": "one\ntwo\n"})
	for name, tt := range map[string]struct{ tool, arguments string }{
		"output":         {"exec", `{"argv":["sh","-c","echo out; echo err >&2; exit 3"]}`},
		"bytes":          {"exec", `{"argv":["printf","\\377\\000<&>\\033[1mx"]}`},
		"long output":    {"exec", `{"argv":["seq","100000"]}`},
		"structured":     {"read_file", `{"path":"` + dir + `/a.txt"}`},
		"stdin":          {"exec", `{"argv":["cat"],"stdin":"in"}`},
		"killed":         {"shell", `{"command":"kill -9 $$"}`},
		"timed out":      {"exec", `{"argv":["sleep","60"],"timeout_seconds":0.2}`},
		"not found":      {"exec", `{"argv":["no-such-program"]}`},
		"denied":         {"exec", `{"argv":["ls"],"cwd":"/"}`},
		"invalid input":  {"exec", `{"argv":"ls"}`},
		"unknown member": {"exec", `{"argv":["ls"],"x":1}`},
		"invalid option": {"exec", `{"argv":["ls"],"wait_ms":-1}`},
		"repeated key":   {"exec", `{"argv":["echo","1"],"idempotency_key":"k"}`},
		"arguments null": {"exec", `null`},
		"not an object":  {"exec", `[1]`},
		"a text":         {"exec", `"ls"`},
	} {
		t.Run(name, func(t *testing.T) {
			replies := map[string]mcpReply{}
			for path, meta := range map[string]string{
				servedDirectly: plainMeta, servedBySDK: plainMeta + `,"other":1`,
			} {
				resp := postMCP(t.Context(), t, d, "cwd="+dir, tt.tool,
					plainCall("7", tt.tool, tt.arguments, meta))
				r := readReply(t, resp)
				_ = resp.Body.Close()
				replies[path] = r
				if name == "arguments null" {
					continue // null is left to the SDK
				}
				if r.message["error"] == nil && !strings.HasPrefix(r.contentType, path) {
					t.Errorf("it was not served as %s but %s", path, r.contentType)
				}
			}
			a, b := replies[servedDirectly], replies[servedBySDK]
			if a.status != b.status || !reflect.DeepEqual(a.message, b.message) {
				one, _ := json.Marshal(a.message)
				two, _ := json.Marshal(b.message)
				t.Errorf("the replies differ: %d %.2000s\n%d %.2000s", a.status, one, b.status, two)
			}
		})
	}
}

// A request that is not a plain call has the SDK's reply, and one that does not agree with its
// headers does not run (MC-02).
func TestMCPDirect_LeftToTheSDK(t *testing.T) {
	dir := newDir(t)
	d := startDaemon(t, "host: {roots: ["+dir+"]}\n")
	touch := `{"argv":["touch","` + dir + `/ran"]}`
	plain := plainCall("1", "exec", touch, plainMeta)
	for name, tt := range map[string]struct {
		body   string
		header []string
	}{
		"another name in the header":   {plain, []string{"Mcp-Name", "shell"}},
		"another method in the header": {plain, []string{"Mcp-Method", "tools/list"}},
		"another revision in the body": {strings.Replace(plain, "2026-07-28", "2025-11-25", 1), nil},
		"no revision in the body": {plainCall("1", "exec", touch,
			`"io.modelcontextprotocol/clientCapabilities":{}`), nil},
		"no JSON":            {plain[:len(plain)-1], nil},
		"a batch":            {"[" + plain + "]", nil},
		"an id that is null": {strings.Replace(plain, `"id":1`, `"id":null`, 1), nil},
		"an unknown tool":    {strings.Replace(plain, `"exec"`, `"nothing"`, 1), []string{"Mcp-Name", "nothing"}},
		"arguments twice": {
			strings.Replace(plain, `"_meta":`, `"arguments":`+touch+`,"_meta":`, 1), nil,
		},
		"another message":    {plain + plain, nil},
		"another media type": {plain, []string{"Content-Type", "text/plain"}},
	} {
		t.Run(name, func(t *testing.T) {
			resp := postMCP(t.Context(), t, d, "cwd="+dir, "exec", tt.body, tt.header...)
			defer resp.Body.Close()
			r := readReply(t, resp)
			if r.status == http.StatusOK && r.message["error"] == nil {
				t.Errorf("it was served: %.1000v", r.message)
			}
			if _, err := os.Stat(dir + "/ran"); err == nil {
				t.Error("the call ran")
			}
		})
	}
}

// A client that closes its request ends the call, and one that waits gets white space meanwhile
// (MC-04).
func TestMCPDirect_KeepAliveAndCancel(t *testing.T) {
	t.Parallel() // it waits for most of its time
	dir := newDir(t)
	d := startDaemon(t, "host: {roots: ["+dir+"]}\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := postMCP(ctx, t, d, "cwd="+dir, "exec",
		plainCall("1", "exec", `{"argv":["sh","-c","echo $$ > pid; sleep 600"]}`, plainMeta))
	defer resp.Body.Close()
	// The status comes with the first white space, while the call runs.
	first := make([]byte, 1)
	if _, err := io.ReadFull(bufio.NewReader(resp.Body), first); err != nil || first[0] != '\n' {
		t.Fatalf("instead of white space: %q, %v", first, err)
	}
	pid, err := os.ReadFile(dir + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	proc := "/proc/" + strings.TrimSpace(string(pid))
	if _, err := os.Stat(proc); err != nil {
		t.Fatalf("the tool does not run: %v", err)
	}
	cancel()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(proc); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the tool still runs after its client closed the request")
		}
	}
}
