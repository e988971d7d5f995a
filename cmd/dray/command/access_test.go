package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// accessDaemon is a daemon with a socket for uid 4711, a listener on TCP, and a directory in which
// host tools may run. Tokens are in files, as users have them.
type accessDaemon struct {
	t                   *testing.T
	state, socket, work string
	tcp                 string // address
	pid                 int
	token, other        string
}

func startAccessDaemon(t *testing.T, prepare ...func(top string)) *accessDaemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	top, err := os.MkdirTemp("", "dray-access") //nolint:usetesting // others cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	for _, do := range prepare {
		do(top)
	}
	d := &accessDaemon{
		t: t, state: top + "/state", socket: top + "/dray.sock", work: top + "/work", other: "another-secret-token",
	}
	settings := fmt.Sprintf(`server: {socket: %s, users: [4711], tcp: 0, tokens: {ci: %s/ci.token},
  allowed_hosts: [localhost, dray.test], allowed_origins: [https://console.test]}
host: {roots: [%s]}
tools: [{name: keep, argv: [tee, %s/input], environment: host}]
`, d.socket, top, d.work, d.work)
	for _, err := range []error{
		os.Chmod(top, 0o755), os.Mkdir(d.work, 0o700), os.Chown(d.work, 4711, 4711),
		os.Mkdir(top+"/foreign", 0o755),
		os.WriteFile(top+"/ci.token", []byte(d.other+"\n"), 0o600),
		os.WriteFile(top+"/config.yaml", []byte(settings), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Args = []string{"dray", "serve", "--state", d.state, "--config", top + "/config.yaml"}
	cmd.Env = append(os.Environ(), wholeDaemon+"=1")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	d.pid, d.tcp = cmd.Process.Pid, readyTCP(t, log)
	text, err := os.ReadFile(d.state + "/token")
	if err != nil {
		t.Fatal(err)
	}
	d.token = strings.TrimSpace(string(text))
	return d
}

// readyTCP returns the address in the line "ready" of a daemon's log, and discards the rest.
func readyTCP(t *testing.T, log io.Reader) string {
	t.Helper()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Event, TCP string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "ready" {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return line.TCP
		}
		t.Log(lines.Text())
	}
	t.Fatal("the daemon ended")
	return ""
}

// writes returns the body of a call that creates a file in a directory, and the file.
func (d *accessDaemon) writes(dir, name string) (body, file string) {
	file = filepath.Join(d.work, name)
	b, err := json.Marshal(map[string]any{
		"tool": "exec", "environment": "host", "workspace": dir, "input": map[string]any{"argv": []string{"touch", file}},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b), file
}

// raw sends bytes over TCP and returns status and body.
func (d *accessDaemon) raw(request string) (int, string) {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.tcp)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		d.t.Fatalf("%q: %v", request, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// Over TCP only requests with a token, an allowed Host, no foreign Origin and a JSON body run
// something; judged by the file that a run makes (SE-01, SE-02).
func TestAccess_TCP(t *testing.T) {
	d := startAccessDaemon(t)
	if info, err := os.Stat(d.state + "/token"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	if host, _, _ := net.SplitHostPort(d.tcp); host != "127.0.0.1" {
		t.Errorf("listens on %s", d.tcp)
	}
	const post, bearer, jsonBody = "POST /v1/invocations HTTP/1.1", "Authorization: Bearer ", "Content-Type: application/json"
	good := []string{post, "Host: localhost", bearer + d.token, jsonBody}
	with := func(i int, lines ...string) []string {
		all := append([]string{}, good[:i]...)
		return append(append(all, lines...), good[i+1:]...)
	}
	tests := []struct {
		name  string
		lines []string
		want  int
		code  string // "" if the call runs
	}{
		{"token of the state directory", good, 200, ""},
		{"named token", with(2, bearer+d.other), 200, ""},
		{"host with the port", with(1, "Host: "+strings.Replace(d.tcp, "127.0.0.1", "LOCALHOST", 1)), 200, ""},
		{"allowed origin", append(with(1, "Host: dray.test"), "Origin: https://console.test"), 200, ""},
		{"no token", with(2), 401, "unauthorized"},
		{"wrong token", with(2, bearer+d.token+"x"), 401, "unauthorized"},
		{"a part of the token", with(2, bearer+d.token[:8]), 401, "unauthorized"},
		{"empty token", with(2, bearer), 401, "unauthorized"},
		{"token as Basic", with(2, "Authorization: Basic "+d.token), 401, "unauthorized"},
		{"two tokens", with(2, bearer+d.token, bearer+d.token), 401, "unauthorized"},
		{"token in the query", with(0, "POST /v1/invocations?access_token="+d.token+" HTTP/1.1"), 400, "invalid_request"},
		{"token only in the query", append([]string{"POST /v1/invocations?token=" + d.token + " HTTP/1.1"}, with(2)[1:]...), 401, "unauthorized"},
		{"foreign host", with(1, "Host: evil.test"), 403, "forbidden_host"},
		{"foreign host, no token", append([]string{post, "Host: evil.test"}, jsonBody), 403, "forbidden_host"},
		{"host with a dot", with(1, "Host: localhost."), 403, "forbidden_host"},
		{"host with a suffix", with(1, "Host: localhost.evil.test"), 403, "forbidden_host"},
		{"host with user", with(1, "Host: localhost@evil.test"), 400, "invalid_request"},
		{"address of all interfaces", with(1, "Host: 0.0.0.0"), 403, "forbidden_host"},
		{"no host", with(1, "X: y"), 400, "invalid_request"},
		{"empty host", with(1, "Host:"), 403, "forbidden_host"},
		{"two hosts", with(1, "Host: localhost", "Host: evil.test"), 400, "invalid_request"},
		{"HTTP/1.0 without host", append([]string{"POST /v1/invocations HTTP/1.0"}, good[2:]...), 403, "forbidden_host"},
		{"absolute form, foreign", with(0, "POST http://evil.test/v1/invocations HTTP/1.1"), 403, "forbidden_host"},
		{"absolute form", with(0, "POST http://localhost/v1/invocations HTTP/1.1"), 400, "invalid_request"},
		{"foreign origin", append(with(1, "Host: localhost"), "Origin: https://evil.test"), 403, "forbidden_origin"},
		{"own origin", append(with(1, "Host: localhost"), "Origin: http://"+d.tcp), 403, "forbidden_origin"},
		{"no origin of a sandboxed page", append(with(1, "Host: localhost"), "Origin: null"), 403, "forbidden_origin"},
		{"two origins", append(with(1, "Host: localhost"), "Origin: https://console.test", "Origin: https://evil.test"), 403, "forbidden_origin"},
		{"text", with(3, "Content-Type: text/plain"), 415, "unsupported_media_type"},
		{"form", with(3, "Content-Type: application/x-www-form-urlencoded"), 415, "unsupported_media_type"},
		{"no content type", with(3, "X: y"), 415, "unsupported_media_type"},
		{"GET", with(0, "GET /v1/invocations HTTP/1.1"), 200, "nothing"},
		{"method override", append(with(0, "GET /v1/invocations HTTP/1.1"), "X-HTTP-Method-Override: POST"), 200, "nothing"},
		{"PUT", with(0, "PUT /v1/invocations HTTP/1.1"), 405, "method_not_allowed"},
		{"preflight of a foreign page", with(0, "OPTIONS /v1/invocations HTTP/1.1", "Origin: https://evil.test", "Access-Control-Request-Method: POST"), 403, "forbidden_origin"},
	}
	for i, tt := range tests {
		body, file := d.writes(d.work, fmt.Sprint("ran", i))
		request := strings.Join(append(tt.lines, fmt.Sprint("Content-Length: ", len(body)), "Connection: close"), "\r\n")
		status, got := d.raw(request + "\r\n\r\n" + body)
		_, err := os.Stat(file)
		if status != tt.want || (err == nil) != (tt.code == "") ||
			tt.want > 200 && !strings.Contains(got, `"code":"`+tt.code+`"`) {
			t.Errorf("%s: status %d, file %v, %s", tt.name, status, err, got)
		}
	}
	for _, path := range []string{"/healthz", "/openapi.json", "/none", "/"} {
		for host, want := range map[string]int{"evil.test": 403, "localhost": 401} {
			if got, _ := d.raw("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); got != want {
				t.Errorf("%s of %s: %d", path, host, got)
			}
		}
	}
	preflight := "OPTIONS /v1/invocations HTTP/1.1\r\nHost: localhost\r\nOrigin: https://console.test\r\n" +
		"Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
	if got, body := d.raw(preflight); got != 204 {
		t.Errorf("preflight of an allowed page: %d %s", got, body)
	}
}

// as sends a request of another user over the socket.
func (d *accessDaemon) as(uid uint32, body, url string) (status, response string) {
	d.t.Helper()
	args := []string{"--silent", "--show-error", "--max-time", "30", "--unix-socket", d.socket, "--write-out", "\n%{http_code}"}
	if body != "" {
		args = append(args, "--header", "Content-Type: application/json", "--data", body)
	}
	cmd := exec.CommandContext(d.t.Context(), "curl", append(args, "http://dray"+url)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, _ := cmd.CombinedOutput()
	i := strings.LastIndex(string(out), "\n")
	return string(out[i+1:]), string(out[:max(i, 0)])
}

// Users of server.users have calls and workspaces of their own. Other users are not let in, and the
// daemon's user sees all (SE-01, SE-06).
func TestAccess_Users(t *testing.T) {
	d := startAccessDaemon(t)
	foreign := filepath.Dir(d.work) + "/foreign"
	id := func(response string) string {
		var rec struct{ ID, Principal string }
		_ = json.Unmarshal([]byte(response), &rec)
		return rec.ID
	}
	body, file := d.writes(d.work, "mine")
	status, response := d.as(4711, body, "/v1/invocations")
	if _, err := os.Stat(file); status != "200" || err != nil || !strings.Contains(response, `"principal":"uid:4711"`) {
		t.Fatalf("%s %s, %v", status, response, err)
	}
	mine := id(response)
	body, _ = d.writes(d.work, "of-root")
	_, response = d.as(0, body, "/v1/invocations")
	ofRoot := id(response)
	tests := []struct {
		name       string
		uid        uint32
		body, path string
		want       string
	}{
		{"own call", 4711, "", "/v1/invocations/" + mine, "200"},
		{"call of root", 4711, "", "/v1/invocations/" + ofRoot, "404"},
		{"output of root", 4711, "", "/v1/invocations/" + ofRoot + "/output/stdout", "404"},
		{"cancel a call of root", 4711, "{}", "/v1/invocations/" + ofRoot + "/cancel", "404"},
		{"root sees all", 0, "", "/v1/invocations/" + mine, "200"},
		{"trust", 4711, "{}", "/v1/workspaces/" + strings.ReplaceAll(d.work, "/", "%2F") + "/trust", "403"},
		{"up of a foreign workspace", 4711, "{}", "/v1/workspaces/" + strings.ReplaceAll(foreign, "/", "%2F") + "/up", "404"},
		{"paths of a foreign workspace", 4711, `{"workspace":"` + foreign + `","direction":"to_host","paths":["/a"]}`, "/v1/paths", "404"},
		{"container without a workspace", 4711, `{"tool":"exec","container":"any","input":{"argv":["true"]}}`, "/v1/invocations", "404"},
		{"sync of a container", 4711, `{"container":"any","paths":["/etc/passwd"]}`, "/v1/sync", "404"},
		{"route of a foreign workspace", 4711, `{"tool":"exec","workspace":"` + foreign + `"}`, "/v1/route", "404"},
		{"remove records", 4711, `{"before":"2026-01-01T00:00:00Z"}`, "/v1/audit/prune", "403"},
		{"count records to remove", 4711, `{"dry_run":true}`, "/v1/audit/prune", "403"},
		{"root removes records", 0, `{"before":"2026-01-01T00:00:00Z"}`, "/v1/audit/prune", "200"},
		{"not a user", 4712, "", "/healthz", "000"},
	}
	for _, tt := range tests {
		if got, response := d.as(tt.uid, tt.body, tt.path); got != tt.want {
			t.Errorf("%s: %s %s", tt.name, got, response)
		}
	}
	for name, call := range map[string]func(name string) (uint32, string, string){
		"another user":      func(n string) (uint32, string, string) { b, f := d.writes(d.work, n); return 4712, b, f },
		"foreign workspace": func(n string) (uint32, string, string) { b, f := d.writes(foreign, n); return 4711, b, f },
		"no workspace":      func(n string) (uint32, string, string) { b, f := d.writes("", n); return 4711, b, f },
		"foreign cwd": func(n string) (uint32, string, string) {
			b, f := d.writes(d.work, n)
			return 4711, strings.Replace(b, "{", `{"cwd":"`+foreign+`",`, 1), f
		},
	} {
		uid, body, file := call(strings.ReplaceAll(name, " ", "-"))
		status, response := d.as(uid, body, "/v1/invocations")
		if _, err := os.Stat(file); err == nil || status == "200" {
			t.Errorf("%s: %s %s", name, status, response)
		}
	}
	if _, list := d.as(4711, "", "/v1/invocations"); strings.Contains(list, ofRoot) || !strings.Contains(list, mine) {
		t.Errorf("the user's list: %s", list)
	}
	if _, list := d.as(0, "", "/v1/invocations"); !strings.Contains(list, ofRoot) || !strings.Contains(list, mine) {
		t.Errorf("root's list: %s", list)
	}
}
