package features

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// rawMCP sends requests to /mcp as one of two principals: the user of the socket, or a token.
type rawMCP struct {
	*daemon
	t          *testing.T
	tcp, token string
	root       string // where tools may run
	elicits    bool   // requests say that the client can ask its user
}

func startRawMCP(t *testing.T) (user, ci rawMCP) {
	t.Helper()
	root := newDir(t)
	writeFiles(t, root, map[string]string{"ci.token": "a-secret-of-ci-0123456789\n"})
	if err := os.Chmod(root+"/ci.token", 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, "server: {tcp: 0, tokens: {ci: "+root+"/ci.token}}\nhost: {roots: ["+root+"]}\n")
	ready, _ := d.log.await("ready")
	return rawMCP{daemon: d, t: t, root: root}, rawMCP{
		daemon: d, t: t, root: root, tcp: fmt.Sprint(ready["tcp"]), token: "a-secret-of-ci-0123456789",
	}
}

// send sends a message in a session, or without one, and returns the status and the session.
func (c rawMCP) send(method, session, message string) (status int, newSession string) {
	c.t.Helper()
	client, host := c.http, "localhost"
	if c.token != "" {
		client, host = http.DefaultClient, c.tcp
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+host+"/mcp",
		strings.NewReader(message))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
}

func (c rawMCP) initialize() (session string) {
	c.t.Helper()
	status, session := c.send(http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"initialize",`+
		`"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if status != http.StatusOK || session == "" {
		c.t.Fatalf("initialize: %d, session %q", status, session)
	}
	return session
}

const listTools = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`

// Another principal finds no such session, and does not end it (SE-01).
func TestMCPSession_OtherPrincipal(t *testing.T) {
	user, ci := startRawMCP(t)
	session := user.initialize()
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		if status, _ := ci.send(method, session, listTools); status != http.StatusNotFound {
			t.Errorf("%s of another principal: %d", method, status)
		}
	}
	if status, _ := user.send(http.MethodPost, session, listTools); status != http.StatusOK {
		t.Errorf("after that its own request: %d", status)
	}
	if status, _ := user.send(http.MethodDelete, session, ""); status != http.StatusNoContent {
		t.Errorf("delete: %d", status)
	}
	if status, _ := user.send(http.MethodPost, session, listTools); status != http.StatusNotFound {
		t.Errorf("after the delete: %d", status)
	}
}

// A client with more sessions than there may be ends its own idle ones, whose clients go on, and
// keeps no other out (SS-07).
func TestMCPSession_Limit(t *testing.T) {
	user, ci := startRawMCP(t)
	before := user.initialize()
	first := ci.initialize()
	for range 300 {
		ci.initialize()
	}
	after := user.initialize()
	for name, tt := range map[string]struct {
		rawMCP
		session string
	}{
		"of before": {user, before}, "of after": {user, after}, "that has ended": {ci, first},
	} {
		if status, _ := tt.send(http.MethodPost, tt.session, listTools); status != http.StatusOK {
			t.Errorf("the session %s: %d", name, status)
		}
	}
}

// A call in a session that a restart has ended is cancelled by a notification in that session, and
// by no other (MC-01, MC-04).
func TestMCPSession_CancelAfterRestart(t *testing.T) {
	user, _ := startRawMCP(t)
	session, other := user.initialize(), user.initialize()
	user.daemon = user.relaunch(t)
	ended := make(chan int, 1)
	go func() {
		status, _ := user.send(http.MethodPost, session, `{"jsonrpc":"2.0","id":7,"method":"tools/call",`+
			`"params":{"name":"exec","arguments":{"argv":["sleep","600"],"cwd":"`+user.root+`"}}}`)
		ended <- status
	}()
	has := func(query string) bool {
		return getFrom(t, user.daemon, "/v1/invocations?"+query).at("/items/0/tool") == "exec"
	}
	await := func(query string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !has(query); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("there is no call with %s", query)
			}
		}
	}
	await("status=running")
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	for _, foreign := range []struct{ session, message string }{
		{other, cancel}, {session, strings.Replace(cancel, "7", "8", 1)},
	} {
		status, _ := user.send(http.MethodPost, foreign.session, foreign.message)
		if status != http.StatusAccepted {
			t.Errorf("a notification for nothing: %d", status)
		}
	}
	if !has("status=running") {
		t.Error("the notification of another session or request ends the call")
	}
	if status, _ := user.send(http.MethodPost, session, cancel); status != http.StatusAccepted {
		t.Errorf("the notification: %d", status)
	}
	await("reason=cancelled")
	<-ended
}

// A segment .. in a working directory is refused as over HTTP, also if it is relative to the
// client's (PM-05).
func TestMCPWorkingDirectory(t *testing.T) {
	forEachRevision(t, func(t *testing.T, _ *daemon, c *mcpClient, dir string) {
		writeFiles(t, dir, map[string]string{"sub/x": ""})
		c.call("exec", map[string]any{"argv": []string{"pwd"}, "cwd": "sub"}).has(t, dir+"/sub\n")
		c.call("exec", map[string]any{"argv": []string{"pwd"}, "cwd": "./sub/"}).has(t, dir+"/sub\n")
		r := c.call("exec", map[string]any{"argv": []string{"pwd"}, "cwd": "sub/.."})
		r.has(t, "'..' segment")
		if !r.isError {
			t.Error("it is not an error")
		}
	})
}
