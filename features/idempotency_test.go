package features

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// keyed is a daemon whose host calls append to files in a directory.
type keyed struct {
	*daemon
	t    *testing.T
	root string
	tcp  string // address
}

func startKeyed(t *testing.T) *keyed {
	t.Helper()
	root := newDir(t)
	writeFiles(t, root, map[string]string{
		"work/x": "", "ci.token": "a-secret-of-ci-0123456789\n",
		"config.yaml": fmt.Sprintf("host: {roots: [%s/work]}\nserver: {tcp: 0, tokens: {ci: %[1]s/ci.token}}\n",
			root),
	})
	if err := os.Chmod(root+"/ci.token", 0o600); err != nil {
		t.Fatal(err)
	}
	k := &keyed{t: t, root: root}
	k.start()
	t.Cleanup(func() { k.end(t) })
	return k
}

func (k *keyed) start() {
	k.t.Helper()
	k.daemon = launch(k.root+"/state", k.root+"/config.yaml")
	ready, ok := k.log.await("ready")
	if !ok {
		k.t.Fatalf("the daemon does not start: %s", k.log.text())
	}
	k.tcp = fmt.Sprint(ready["tcp"])
}

func (k *keyed) restart() {
	k.t.Helper()
	if code := k.end(k.t); code != 0 {
		k.t.Fatal(k.log.text())
	}
	k.start()
}

// script returns the body of a call that runs a shell script in the directory.
func (k *keyed) script(text string) string {
	body, err := json.Marshal(map[string]any{
		"tool": "shell", "environment": "host", "cwd": k.root + "/work",
		"input": map[string]any{"command": text},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return string(body)
}

// send sends a body with a key; a token is sent over TCP.
func (k *keyed) send(query, body, key, token, accept string) (answer, error) {
	client, host := k.http, "localhost"
	if token != "" {
		client, host = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, k.tcp
	}
	req, err := http.NewRequestWithContext(k.t.Context(), http.MethodPost,
		"http://"+host+"/v1/invocations"+query, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	req.Header.Set("Idempotency-Key", key)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.raw, err = io.ReadAll(resp.Body); err == nil && accept == "application/json" {
		a.value, err = decode(a.raw)
	}
	return a, err
}

func (k *keyed) post(query, body, key string) answer {
	k.t.Helper()
	a, err := k.send(query, body, key, "", "application/json")
	if err != nil {
		k.t.Fatal(err)
	}
	return a
}

// lines returns the number of lines of a file in the directory.
func (k *keyed) lines(name string) int {
	text, _ := os.ReadFile(k.root + "/work/" + name)
	return strings.Count(string(text), "\n")
}

func replayed(a answer) bool { return a.header.Get("Idempotency-Replayed") == "true" }

// A hundred requests at once with one key are one execution, and all get its outcome. The same
// holds for repeats after a restart; another body and an unusable key are refused, and the key of
// another principal is another call (RE-01).
func TestOneKeyIsOneExecution(t *testing.T) {
	k := startKeyed(t)
	body := k.script("echo $DRAY_CALL_ID >>ran; seq 20000; echo oops >&2; exit 3")
	answers := make([]answer, 100)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			var err error
			if answers[i], err = k.send("", body, "build-1", "", "application/json"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	firsts := 0
	for _, a := range answers {
		if a.status != http.StatusOK || !same(a.value, answers[0].value) {
			t.Fatalf("%s\nwant: %s", a.raw, answers[0].raw)
		}
		if !replayed(a) {
			firsts++
		}
	}
	if n := k.lines("ran"); n != 1 || firsts != 1 {
		t.Errorf("%d executions, %d first responses", n, firsts)
	}
	if answers[0].at("/exit_code") != json.Number("3") {
		t.Errorf("the call ended with %s", answers[0].raw)
	}
	k.checkRepeats(body, answers[0])
	k.restart()
	k.checkRepeats(body, answers[0])
	if n := k.lines("ran"); n != 3 {
		t.Errorf("%d executions for three principals", n)
	}
}

// checkRepeats checks what can be repeated of a call with the key build-1, and what is refused.
func (k *keyed) checkRepeats(body string, first answer) {
	k.t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		k.t.Fatal(err)
	}
	spaced, err := json.MarshalIndent(members, " ", "\t") // other white space and order
	if err != nil {
		k.t.Fatal(err)
	}
	for _, body := range []string{body, string(spaced)} {
		if a := k.post("", body, "build-1"); !replayed(a) || !same(a.value, first.value) {
			k.t.Errorf("the repeat says %d %s", a.status, a.raw)
		}
	}
	members["timeout_seconds"] = 7
	other, err := json.Marshal(members)
	if err != nil {
		k.t.Fatal(err)
	}
	if a := k.post("", string(other), "build-1"); a.status != http.StatusUnprocessableEntity ||
		a.at("/code") != "idempotency_mismatch" || replayed(a) {
		k.t.Errorf("another body: %d %s", a.status, a.raw)
	}
	for _, key := range []string{"", "two words", "a\tb", "ü", strings.Repeat("k", 256)} {
		if a := k.post("", body, key); a.status != http.StatusBadRequest {
			k.t.Errorf("key %q: %d %s", key, a.status, a.raw)
		}
	}
	k.checkOutput(body, first)
	for _, file := range []string{k.root + "/ci.token", k.state + "/token"} {
		token, err := os.ReadFile(file)
		if err != nil {
			k.t.Fatal(err)
		}
		a, err := k.send("", body, "build-1", strings.TrimSpace(string(token)), "application/json")
		if err != nil || a.status != http.StatusOK || a.id() == first.id() {
			k.t.Errorf("another principal: %v, %d %s", err, a.status, a.raw)
		}
	}
}

// checkOutput checks that the captured output is read back whole, from a stream of events too.
func (k *keyed) checkOutput(body string, first answer) {
	k.t.Helper()
	out, err := k.ask(k.t.Context(), http.MethodGet, "/v1/invocations/"+first.id()+"/output/stdout", nil)
	if err != nil || strings.Count(string(out.raw), "\n") != 20000 {
		k.t.Errorf("the output has %d bytes: %v", len(out.raw), err)
	}
	a, err := k.send("", body, "build-1", "", "application/x-ndjson")
	if err != nil || !replayed(a) {
		k.t.Fatalf("%d %v %.300s", a.status, err, a.raw)
	}
	streamed := map[string]string{}
	for line := range strings.Lines(string(a.raw)) {
		var ev struct{ Event, Text string }
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			k.t.Fatal(err)
		}
		streamed[ev.Event] += ev.Text
	}
	if streamed["stdout"] != string(out.raw) || streamed["stderr"] != "oops\n" {
		k.t.Errorf("the stream has %d bytes of stdout, and %q", len(streamed["stdout"]), streamed["stderr"])
	}
}

// A repeat joins the call while it runs, with wait_ms and as a stream, and the call goes on when
// the first client has left (RE-01, EX-09).
func TestRepeatJoinsARunningCall(t *testing.T) {
	k := startKeyed(t)
	if err := syscall.Mkfifo(k.root+"/work/gate", 0o600); err != nil {
		t.Fatal(err)
	}
	body := k.script("echo run >>ran; cat gate; echo end")
	first := k.post("?wait_ms=1", body, "k")
	repeat := k.post("?wait_ms=1", body, "k")
	if first.status != http.StatusAccepted || repeat.status != http.StatusAccepted ||
		first.id() != repeat.id() || !replayed(repeat) || replayed(first) {
		t.Fatalf("%d %s\n%d %s", first.status, first.raw, repeat.status, repeat.raw)
	}
	if a := k.post("", k.script("true"), "k"); a.status != http.StatusUnprocessableEntity {
		t.Errorf("another body while the call runs: %d %s", a.status, a.raw)
	}
	stream := make(chan answer, 1)
	go func() {
		a, _ := k.send("", body, "k", "", "application/x-ndjson")
		stream <- a
	}()
	gate, err := os.OpenFile(k.root+"/work/gate", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = gate.Close()
	if a := <-stream; !strings.Contains(string(a.raw), `"end\n"`) || !replayed(a) {
		t.Errorf("the stream: %s", a.raw)
	}
	if a := k.post("", body, "k"); a.at("/status") != "succeeded" || a.id() != first.id() {
		t.Errorf("the outcome: %s", a.raw)
	}
	if n := k.lines("ran"); n != 1 {
		t.Errorf("%d executions", n)
	}
}

// With on_disconnect: cancel a call with a key is cancelled when its last client has left, and a
// repeat gets that outcome (RE-01, EX-09).
func TestLastClientCancels(t *testing.T) {
	k := startKeyed(t)
	if err := syscall.Mkfifo(k.root+"/work/gate", 0o600); err != nil {
		t.Fatal(err)
	}
	body := strings.Replace(k.script("echo run >>ran; cat gate"), "{", `{"on_disconnect":"cancel",`, 1)
	first := k.dial("k", body, 1)
	awaitLine(t, k.root+"/work/ran")
	second := k.dial("k", body, 1)
	_ = first.Close()
	_ = second.Close()
	list, err := k.ask(t.Context(), http.MethodGet, "/v1/invocations", nil)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/v1/invocations/%v?wait_ms=30000", list.at("/items/0/id"))
	if a, err := k.ask(t.Context(), http.MethodGet, path, nil); err != nil || a.at("/reason") != "cancelled" {
		t.Fatalf("the call: %v, %s", err, a.raw)
	}
	a := k.post("", body, "k")
	if n := k.lines("ran"); n != 1 || a.at("/reason") != "cancelled" || !replayed(a) {
		t.Errorf("%d executions: %s", n, a.raw)
	}
}

// dial sends a part of a request on a connection of its own.
func (k *keyed) dial(key, body string, part float64) net.Conn {
	k.t.Helper()
	request := fmt.Sprintf("POST /v1/invocations HTTP/1.1\r\nHost: localhost\r\n"+
		"Idempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		key, len(body), body)
	conn, err := net.Dial("unix", k.state+"/dray.sock")
	if err == nil {
		_, err = io.WriteString(conn, request[:int(part*float64(len(request)))])
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return conn
}

// A client that was cut off at twenty points of its request repeats it with the same key and gets
// the one outcome of one execution (RE-01).
func TestLostClientRepeatsItsRequest(t *testing.T) {
	k := startKeyed(t)
	const points = 20
	for point := range points {
		key := fmt.Sprintf("lost-%d", point)
		body := k.script(fmt.Sprintf("echo run >>%s; [ %d -lt 10 ] || cat %[1]s.gate; echo done", key, point))
		gate := k.root + "/work/" + key + ".gate"
		if err := syscall.Mkfifo(gate, 0o600); err != nil {
			t.Fatal(err)
		}
		part := 1.0
		if point < 5 { // before the body ends
			part = float64(point+1) / 6
		}
		conn := k.dial(key, body, part)
		if point >= 10 { // while the tool runs
			awaitLine(t, k.root+"/work/"+key)
		}
		if point >= 15 { // the tool ends, and the response is not read
			openGate(t, gate)
		}
		_ = conn.Close() // points 5 to 9: after the body, at any moment
		if point >= 10 && point < 15 {
			openGate(t, gate)
		}
		a := k.post("", body, key)
		if a.at("/status") != "succeeded" || a.at("/stdout/text") != "done\n" {
			t.Errorf("point %d: %s", point, a.raw)
		}
		if again := k.post("", body, key); again.id() != a.id() || !same(again.value, a.value) {
			t.Errorf("point %d: two outcomes: %s\n%s", point, a.raw, again.raw)
		}
		if n := k.lines(key); n != 1 {
			t.Errorf("point %d: %d executions", point, n)
		}
	}
}

func openGate(t *testing.T, path string) {
	t.Helper()
	gate, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = gate.Close()
}

// awaitLine waits until a file has a line.
func awaitLine(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if text, _ := os.ReadFile(path); strings.HasSuffix(string(text), "\n") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s has no line", path)
		}
	}
}
