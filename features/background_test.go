package features

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// inBackground starts a call that continues without its client, and returns its id.
func (d *daemon) inBackground(t *testing.T, root, session, command string) string {
	t.Helper()
	a, err := d.call(t.Context(), "?wait_ms=0", map[string]any{
		"tool": "shell", "input": map[string]any{"command": command}, "workspace": root,
		"environment": "host", "stdin_open": true, "context": map[string]any{"session_id": session},
	})
	if err != nil || a.status != http.StatusAccepted {
		t.Fatalf("%d %s, %v", a.status, a.raw, err)
	}
	return a.id()
}

// pollEvents returns the events after a number, and the number of the last one. It waits for the
// first one for at most wait.
func (d *daemon) pollEvents(t *testing.T, id string, after int64, wait time.Duration,
) (names []string, text string, last int64) {
	t.Helper()
	path := fmt.Sprintf("/v1/invocations/%s/events?after=%d&wait_ms=%d", id, after, wait.Milliseconds())
	resp, err := d.send(t.Context(), http.MethodGet, path, nil, "application/x-ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d", path, resp.StatusCode)
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	last = after
	for line := range bytes.Lines(body.Bytes()) {
		var ev struct {
			Seq         int64
			Event, Text string
		}
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if ev.Seq != last+1 && after > 0 {
			t.Errorf("event %d comes after %d", ev.Seq, last)
		}
		names, last = append(names, ev.Event), ev.Seq
		if ev.Event == "stdout" {
			text += ev.Text
		}
	}
	return names, text, last
}

// A call in the background is polled by the numbers of its events, with a wait, and written to; no
// event comes twice or is missing (SS-02).
func TestBackgroundCallIsPolled(t *testing.T) {
	root := newDir(t)
	d := startDaemon(t, "host: {roots: ["+root+"]}\n")
	id := d.inBackground(t, root, "s", "while read -r line; do echo got $line; done")
	var names []string
	var last int64
	for !strings.Contains(strings.Join(names, " "), "state state") { // it runs
		names, _, last = d.pollEvents(t, id, last, 20*time.Second)
		if len(names) == 0 {
			t.Fatal("a poll waits longer than the call takes to start")
		}
		names = append([]string{"state"}, names...)
	}
	if names, _, _ := d.pollEvents(t, id, last, 0); len(names) > 0 {
		t.Errorf("a poll of what there is not: %q", names)
	}
	for i := range 20 {
		line := fmt.Sprint("line ", i)
		if a, err := d.ask(t.Context(), http.MethodPost, "/v1/invocations/"+id+"/stdin",
			line+"\n"); err != nil || a.status != http.StatusOK {
			t.Fatalf("%s, %v", a.raw, err)
		}
		var text string
		for text == "" {
			names, text, last = d.pollEvents(t, id, last, 20*time.Second)
			if len(names) == 0 {
				t.Fatalf("%s: no event came", line)
			}
		}
		if text != "got "+line+"\n" {
			t.Errorf("%s: got %q", line, text)
		}
	}
	if a, err := d.ask(t.Context(), http.MethodPost, "/v1/invocations/"+id+"/stdin?eof=1",
		nil); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s, %v", a.raw, err)
	}
	for !strings.Contains(strings.Join(names, " "), "end") {
		if names, _, last = d.pollEvents(t, id, last, 20*time.Second); len(names) == 0 {
			t.Fatal("the end did not come")
		}
	}
	if names, _, _ := d.pollEvents(t, id, last, time.Minute); len(names) > 0 {
		t.Errorf("after the end: %q", names)
	}
}

// The calls of a session are listed and stopped together: over HTTP, MCP and the command line.
// Those of other sessions and of other principals go on (SS-02).
func TestSessionIsListedAndStopped(t *testing.T) {
	user, ci := startRawMCP(t)
	d := user.daemon
	for name, stop := range map[string]func(session string) string{
		"HTTP": func(session string) string {
			a, err := d.ask(t.Context(), http.MethodPost, "/v1/sessions/cancel?session_id="+session, nil)
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("%s, %v", a.raw, err)
			}
			return string(a.raw)
		},
		"command line": func(session string) string {
			return string(d.dray(t.Context(), strings.NewReader(""), "cancel", "--session", session).stdout)
		},
		"MCP": func(session string) string {
			c := connectMCP(t, d, revisions[1], "")
			return c.call("cancel_call", map[string]any{"session": session}).text
		},
	} {
		t.Run(name, func(t *testing.T) {
			session := "of-" + strings.ReplaceAll(name, " ", "-")
			marker := fmt.Sprint(700_000_000 + time.Now().UnixNano()%1_000_000)
			var ids []string
			for range 3 {
				ids = append(ids, d.inBackground(t, user.root, session, "sleep "+marker))
			}
			// A session of the shell is one too.
			a, err := d.call(t.Context(), "?wait_ms=0", map[string]any{
				"tool": "shell", "workspace": user.root, "environment": "host",
				"input": map[string]any{"command": "sleep " + marker, "session": session},
			})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, a.id())
			other := d.inBackground(t, user.root, "another", "sleep 1000")
			foreign := ci.startSleep(t, session)
			listed := d.dray(t.Context(), strings.NewReader(""), "ps", "--session", session, "--json").stdout
			said := stop(session)
			for _, id := range ids {
				if !strings.Contains(string(listed), id) || !strings.Contains(said, id) {
					t.Errorf("%s is not in the list or not in the reply: %s\n%s", id, listed, said)
				}
				if rec := getFrom(t, d, "/v1/invocations/"+id); rec.at("/reason") != "cancelled" {
					t.Errorf("%s", rec.raw)
				}
			}
			if strings.Contains(string(listed), other) || strings.Contains(said, foreign) {
				t.Errorf("a call of another session or principal: %s\n%s", listed, said)
			}
			for _, id := range []string{other, foreign} {
				if rec := getFrom(t, d, "/v1/invocations/"+id); rec.at("/ended_at") != nil {
					t.Errorf("it was stopped too: %s", rec.raw)
				}
				if _, err := d.ask(t.Context(), http.MethodPost, "/v1/invocations/"+id+"/cancel", nil); err != nil {
					t.Error(err)
				}
			}
			if left := commandLines(t, marker); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// startSleep starts a call in the background, as this principal.
func (c rawMCP) startSleep(t *testing.T, session string) string {
	t.Helper()
	body := fmt.Sprintf(`{"tool":"exec","input":{"argv":["sleep","1000"]},"workspace":%q,`+
		`"environment":"host","context":{"session_id":%q}}`, c.root, session)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+c.tcp+"/v1/invocations?wait_ms=0", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var rec struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&rec); err != nil || rec.ID == "" {
		t.Fatalf("%d, %v", resp.StatusCode, err)
	}
	return rec.ID
}

// Calls in the background are bounded in number and in time, without their client (SS-02).
func TestBackgroundCallsAreBounded(t *testing.T) {
	root := newDir(t)
	d := startDaemon(t, "host: {roots: ["+root+"]}\nlimits: {concurrent: 3, queue: 2, timeout: 1s}\n")
	var ids []string
	refused := 0
	for range 10 {
		a, err := d.call(t.Context(), "?wait_ms=0", map[string]any{
			"tool": "exec", "input": map[string]any{"argv": []string{"sleep", "1000"}}, "workspace": root,
			"environment": "host",
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case a.status == http.StatusTooManyRequests && a.at("/code") == "busy" &&
			a.header.Get("Retry-After") != "":
			refused++
		case a.status == http.StatusAccepted:
			ids = append(ids, a.id())
		default:
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
	if len(ids) > 5 || refused < 5 {
		t.Errorf("%d run or wait, %d were refused", len(ids), refused)
	}
	for _, id := range ids {
		rec := getFrom(t, d, "/v1/invocations/"+id+"?wait_ms=60000")
		if rec.at("/reason") != "timeout" {
			t.Errorf("its client never came back: %s", rec.raw)
		}
	}
}

// A model gets the output as a reader of a terminal sees it, and no more than it asks for; the
// bytes are kept (SS-06).
func TestViewsForModels(t *testing.T) {
	root := newDir(t)
	d := startDaemon(t, "host: {roots: ["+root+"]}\n")
	const progress = `i=0; while [ $i -lt 200 ]; do i=$((i+1)); printf '\r\033[K%d%%' $i; done; ` +
		`printf '\n\033[32mdone\033[0m\n'; seq 3000; printf '\033[31merr\033[0m' >&2`
	start := func(ctx context.Context, query string) answer {
		t.Helper()
		a, err := d.call(ctx, query, map[string]any{
			"tool": "shell", "input": map[string]any{"command": progress}, "workspace": root,
			"environment": "host",
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	raw := start(t.Context(), "")
	if text := fmt.Sprint(raw.at("/stdout/text")); !strings.Contains(text, "\r\x1b[K200%\n\x1b[32mdone") {
		t.Errorf("without a view the text is %.300q", text)
	}
	for name, a := range map[string]answer{
		"start": start(t.Context(), "?view=600"),
		"get":   getFrom(t, d, "/v1/invocations/"+raw.id()+"?view=600&brief=1"),
	} {
		text := fmt.Sprint(a.at("/stdout/text"))
		if len(text) > 800 || !strings.HasPrefix(text, "200%\ndone\n1\n2\n") ||
			!strings.HasSuffix(text, "\n3000\n") || !strings.Contains(text, "bytes omitted") {
			t.Errorf("%s: the view is %d bytes: %.300q", name, len(text), text)
		}
		if a.at("/stderr/text") != "err" {
			t.Errorf("%s: stderr is %q", name, a.at("/stderr/text"))
		}
		if a.at("/stdout/total_bytes") != raw.at("/stdout/total_bytes") ||
			a.at("/stdout/sha256") != raw.at("/stdout/sha256") {
			t.Errorf("%s: the members of the raw output changed: %s", name, a.raw)
		}
		for _, member := range []string{"/route", "/metadata", "/input"} {
			if _, found := a.find(member); found != (name == "start") {
				t.Errorf("%s: has %s: %v", name, member, found)
			}
		}
	}
	kept := getFrom(t, d, "/v1/invocations/"+raw.id()+"/output/stdout")
	if !bytes.Contains(kept.raw, []byte("\r\x1b[K199%\r\x1b[K200%\n\x1b[32mdone\x1b[0m\n1\n")) ||
		fmt.Sprint(len(kept.raw)) != fmt.Sprint(raw.at("/stdout/total_bytes")) {
		t.Errorf("of the bytes %d are kept: %.200q", len(kept.raw), kept.raw)
	}
	for _, query := range []string{"?view=0", "?view=-1", "?view=1e3", "?view=1048577", "?view=x", "?brief=2"} {
		if a := start(t.Context(), query); a.status != http.StatusBadRequest || a.at("/hint") == nil {
			t.Errorf("%s: %d %s", query, a.status, a.raw)
		}
	}
	forEachRevision(t, func(t *testing.T, _ *daemon, c *mcpClient, _ string) {
		small := c.call("shell", map[string]any{"command": progress, "view": 300})
		large := c.call("shell", map[string]any{"command": progress, "view": 30000})
		if len(small.text) > 800 || !strings.Contains(small.text, "read_output and id "+small.id()) ||
			!strings.Contains(large.text, "\n1500\n") || strings.Contains(large.text, "\x1b") {
			t.Errorf("%d bytes: %s\n%d bytes", len(small.text), small.text, len(large.text))
		}
		if r := c.call("shell", map[string]any{"command": "true", "view": 0}); !r.isError {
			t.Error("a view of 0 bytes")
		}
	})
}
