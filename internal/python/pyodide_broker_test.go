package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
)

// caught returns code whose value is [errno name, code, class] of the error of an expression, or
// the value of the expression.
func caught(expression string) string {
	return "import dray, errno\ntry:\n  r = " + expression + "\nexcept OSError as e:\n" +
		"  r = [errno.errorcode[e.errno], e.code, \n" +
		"    next(c.__name__ for c in type(e).__mro__ if c.__name__ != 'DrayError')]\nr"
}

// brokered is a request with services.
func brokered(code string, services python.Services) python.Request {
	return python.Request{Code: code, Services: services}
}

// filesOf opens the directory of a harness, as the tool python does for the directory of a call.
func filesOf(h pythontest.Harness) python.Services {
	return python.Services{Files: func(ctx context.Context) (dray.Files, error) {
		return h.Environment.Files(ctx, h.Dir)
	}}
}

// TestPyodideBroker asks the daemon for files, hosts and tools (PY-11, PY-19, PY-27).
func TestPyodideBroker(t *testing.T) {
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(newPyodideConfig(t).Loopback())
	start := func(t *testing.T, p python.Permissions) pythontest.Worker {
		return h.Start(t, func(s *python.WorkerSpec) { s.Permissions = &p })
	}
	t.Run("files", func(t *testing.T) { testBrokerFiles(t, h, start) })
	t.Run("fetch", func(t *testing.T) { testBrokerFetch(t, start) })
	t.Run("tools", func(t *testing.T) { testBrokerTools(t, start) })
	t.Run("ends", func(t *testing.T) { testBrokerEnds(t, start) })
	t.Run("forged", func(t *testing.T) { testBrokerForged(t, start) })
}

type startFunc func(*testing.T, python.Permissions) pythontest.Worker

func testBrokerFiles(t *testing.T, h pythontest.Harness, start startFunc) {
	secret := filepath.Join(t.TempDir(), "secret")
	for name, content := range map[string]string{
		filepath.Join(h.Dir, "a.txt"): "ä\n", filepath.Join(h.Dir, "bytes"): "\xff", secret: "secret",
		filepath.Join(h.Dir, "empty"): "", filepath.Join(h.Dir, "large"): strings.Repeat("x", 3_000_001),
		filepath.Join(h.Dir, "most"): strings.Repeat("x", 3_000_000),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"out": secret, "in": "a.txt", "up": ".."} {
		if err := os.Symlink(target, filepath.Join(h.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w := start(t, python.Permissions{FS: python.FSRead})
	denied := `["EACCES","path_invalid","PermissionError"]`
	for name, want := range map[string]string{
		"a.txt": `"ä\n"`, "./a.txt": `"ä\n"`, filepath.Join(h.Dir, "a.txt"): `"ä\n"`, "in": `"ä\n"`,
		"empty": `""`, "missing": `["ENOENT","not_found","FileNotFoundError"]`,
		"bytes": `["EILSEQ","invalid_input","OSError"]`, "large": `["EFBIG","limit_exceeded","OSError"]`,
		"out": denied, "up/x": denied, "../x": denied, "a/../../x": denied, secret: denied,
		"/": denied, "/etc/passwd": denied, h.Dir + "x/a.txt": denied, h.Dir + "/../x": denied,
		"\x00": denied, ".": `["EACCES","path_invalid","PermissionError"]`,
	} {
		got := w.RunWith(t, brokered(caught(fmt.Sprintf("dray.read_text_file(%q)", name)), filesOf(h)), nil)
		if string(got.Value) != want {
			t.Errorf("%q: %.300s, want %s", name, got.Describe(), want)
		}
	}
	got := w.RunWith(t, brokered("import dray\nlen(dray.read_text_file('most'))", filesOf(h)), nil)
	if string(got.Value) != "3000000" {
		t.Errorf("the largest file: %s", got.Describe())
	}
	w = start(t, python.Permissions{})
	got = w.RunWith(t, brokered(caught("dray.read_text_file('a.txt')"), filesOf(h)), nil)
	if string(got.Value) != `["EACCES","denied","PermissionError"]` {
		t.Errorf("without the permission: %s", got.Describe())
	}
}

func testBrokerFetch(t *testing.T, start startFunc) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request reached a host that is not permitted")
	}))
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 10)
		n, _ := r.Body.Read(body)
		w.Header().Set("X-Two", "a")
		w.Header().Add("X-Two", "b")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, body[:n], r.Header.Get("X-Own"), r.UserAgent())
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 3_000_001))
	})
	mux.HandleFunc("/most", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 3_000_000))
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 64<<10))
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/loop", http.StatusFound)
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("u"), http.StatusFound)
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := httptest.NewServer(mux)
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	local := "http://localhost:" + port
	w := start(t, python.Permissions{Network: []string{"localhost:" + port}})
	denied := `["EACCES","denied","PermissionError"]`
	invalid := `["EINVAL","invalid_input","OSError"]`
	for _, tt := range []struct{ call, want string }{
		{
			`(lambda r: [r.status, r.ok, r.text(), r.headers["x-two"]])(dray.fetch("` + local +
				`/echo", method="post", body="äb", headers={"x-own": "h"}))`,
			`[418,false,"POST äb h dray","a, b"]`,
		},
		{`dray.fetch("http://LOCALHOST.:` + port + `/echo").status`, "418"},
		{`len(dray.fetch("` + local + `/most").bytes)`, "3000000"},
		{`dray.fetch("` + local + `/large")`, `["EFBIG","limit_exceeded","OSError"]`},
		{`dray.fetch("` + local + `/headers")`, `["EIO","transfer_failed","OSError"]`},
		{`dray.fetch("` + local + `/loop")`, `["ELOOP","limit_exceeded","OSError"]`},
		{`dray.fetch("` + local + `/slow", timeout=0.05)`, `["ETIMEDOUT","transfer_failed","TimeoutError"]`},
		{`dray.fetch("` + local + `/to?u=/echo").text()`, `"GET   dray"`},
		{`dray.fetch("` + local + `/to?u=` + other.URL + `")`, denied},
		{`dray.fetch("` + local + `/to?u=//127.0.0.1:` + port + `/echo")`, denied},
		{`dray.fetch("` + local + `/to?u=file:///etc/passwd")`, invalid},
		{`dray.fetch("` + local + `/to?u=http://u@localhost:` + port + `/echo")`, invalid},
		{`dray.fetch("` + other.URL + `")`, denied},
		{`dray.fetch("http://localhost/")`, denied},
		{`dray.fetch("http://localhost:` + port + `.example.org/")`, invalid},
		{`dray.fetch("http://user:pass@localhost:` + port + `/")`, invalid},
		{`dray.fetch("ftp://localhost:` + port + `/")`, invalid},
		{`dray.fetch("localhost:` + port + `")`, invalid},
		{`dray.fetch("http:///x")`, invalid},
		{`dray.fetch("` + local + `", method="CONNECT")`, invalid},
		{`dray.fetch("` + local + `", headers={"Host": "x"})`, invalid},
		{`dray.fetch("` + local + `", headers={"A": "b\r\nC: d"})`, invalid},
		{`dray.fetch("` + local + `", timeout=1e9)`, invalid},
		{`dray.fetch("` + local + `", body=b"x" * (4 << 20))`, `["EMSGSIZE","ERR_PAYLOAD_TOO_LARGE","OSError"]`},
	} {
		if got := w.RunWith(t, brokered(caught(tt.call), python.Services{}), nil); string(got.Value) != tt.want {
			t.Errorf("%s: %.300s, want %s", tt.call, got.Describe(), tt.want)
		}
	}
	r := w.Begin(t, brokered("import dray\ndray.fetch('"+local+"/to?u=/echo')", python.Services{}))
	r.End(t)
	recorded, ok := r.Execution.(interface{ Fetches() ([]dray.Fetch, int) })
	if got, _ := recorded.Fetches(); !ok || len(got) != 2 || got[0].Status != 302 ||
		got[1].Status != 418 || got[1].Method != "GET" || got[1].Host != "localhost:"+port || got[1].Bytes == 0 {
		t.Errorf("recorded %+v", got)
	}
	w = start(t, python.Permissions{FS: python.FSWrite})
	if got := w.Code(t, caught(`dray.fetch("`+local+`/echo")`)); string(got.Value) != denied {
		t.Errorf("without the permission: %s", got.Describe())
	}
}

// The real address check refuses what a permitted name leads to (PY-27).
func TestPyodideBroker_PrivateAddresses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request reached a private address")
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(newPyodideConfig(t))
	names := []string{
		"localhost", "127.0.0.1", "0", "0.0.0.0", "127.1", "2130706433", "0x7f000001", "017700000001",
		"10.0.0.1", "169.254.169.254", "192.168.0.1", "100.64.0.1", "LOCALHOST.",
	}
	network := make([]string, len(names))
	for i, name := range names {
		network[i] = name + ":" + port
	}
	w := h.Start(t, func(s *python.WorkerSpec) {
		s.Permissions = &python.Permissions{Network: network}
	})
	hosts := slices.Concat(names, []string{
		"[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "[64:ff9b::7f00:1]",
		"[fe80::1%25lo]", "①27.0.0.1", "127。0。0。1",
	})
	for _, host := range hosts {
		got := w.Code(t, caught(`dray.fetch("http://`+host+`:`+port+`/")`))
		if !strings.HasPrefix(string(got.Value), `["E`) {
			t.Errorf("%s: %s", host, got.Describe())
		}
	}
	for _, host := range []string{"localhost", "127.0.0.1", "0.0.0.0", "169.254.169.254", "LOCALHOST."} {
		got := w.Code(t, caught(`dray.fetch("http://`+host+`:`+port+`/")`))
		if string(got.Value) != `["EACCES","denied","PermissionError"]` {
			t.Errorf("%s: %s", host, got.Describe())
		}
	}
}

func testBrokerTools(t *testing.T, start startFunc) {
	w := start(t, python.Permissions{FS: python.FSRead, Network: []string{"a.example"}})
	if got := w.Code(t, caught("dray.call_tool('stat', {})")); string(got.Value) !=
		`["ENOSYS","unsupported","OSError"]` {
		t.Errorf("not wired: %s", got.Describe())
	}
	services := python.Services{CallTool: func(_ context.Context, name string, input json.RawMessage,
		may python.Permissions,
	) (json.RawMessage, error) {
		switch name {
		case "echo":
			return input, nil
		case "may":
			return json.Marshal(may)
		case "large":
			return json.Marshal(strings.Repeat("x", 4<<20))
		case "panic":
			panic("a fault")
		default:
			return nil, dray.Errorf(dray.CodeDenied, "no %s", name).WithHint("call echo")
		}
	}}
	for call, want := range map[string]string{
		`dray.call_tool("echo")`: "{}",
		`dray.call_tool("echo", {"a": [1, "ä", None], 1: 2, "1": 3})`: `{"a":[1,"ä",null],"1":3}`,
		`dray.call_tool("may")`:                          `{"fs":"read","network":["a.example"],"env":null}`,
		`dray.call_tool("other")`:                        `["EACCES","denied","PermissionError"]`,
		`dray.call_tool("panic")`:                        `["EIO","internal","OSError"]`,
		`dray.call_tool("large")`:                        `["EMSGSIZE","ERR_PAYLOAD_TOO_LARGE","OSError"]`,
		`dray.call_tool("echo", {"s": "x" * (4 << 20)})`: `["EMSGSIZE","ERR_PAYLOAD_TOO_LARGE","OSError"]`,
	} {
		if got := w.RunWith(t, brokered(caught(call), services), nil); string(got.Value) != want {
			t.Errorf("%s: %.300s, want %s", call, got.Describe(), want)
		}
	}
	got := w.RunWith(t, brokered("import dray\nfor i in range(300): dray.call_tool('echo')\ninput()",
		services), []byte("line\n"+strings.Repeat("x", 1<<20)))
	if string(got.Value) != `"line"` {
		t.Errorf("stdin that comes during calls: %s", got.Describe())
	}
	got = w.RunWith(t, brokered("import dray\ndray.call_tool('other')", services), nil)
	if got.Code != 1 || !strings.HasPrefix(got.Message(), "dray.DrayError: [Errno") ||
		!strings.Contains(got.Message(), "no other (call echo)") ||
		strings.Contains(got.Error.Traceback, "<dray") {
		t.Errorf("an error of a tool: %s", got.Describe())
	}
}

// testBrokerEnds interrupts and ends code while the daemon works for it (PY-06, PY-27).
func testBrokerEnds(t *testing.T, start startFunc) {
	began, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	services := python.Services{CallTool: func(ctx context.Context, name string, _ json.RawMessage,
		_ python.Permissions,
	) (json.RawMessage, error) {
		if name == "quick" {
			return json.RawMessage("1"), nil
		}
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, context.Cause(ctx)
	}}
	const code = "import dray\nx = 1\ntry:\n  dray.call_tool('wait')\nexcept KeyboardInterrupt:\n  x = 'interrupted'\nx"
	w := start(t, python.Permissions{})
	r := w.Begin(t, brokered(code, services))
	<-began
	r.Interrupt()
	if got := r.End(t); string(got.Value) != `"interrupted"` {
		t.Errorf("an interrupt: %s", got.Describe())
	}
	<-ended
	got := w.RunWith(t, brokered("dray.call_tool('quick'), x", services), nil)
	if string(got.Value) != `[1,"interrupted"]` {
		t.Errorf("after an interrupt: %s", got.Describe())
	}
	r = w.Begin(t, brokered(code, services))
	<-began
	w.Kill()
	if got := r.End(t); got.Err == nil {
		t.Errorf("a kill: %s", got.Describe())
	}
	select {
	case <-ended: // Reply waits for it
	case <-time.After(30 * time.Second):
		t.Error("the work goes on")
	}
}

// testBrokerForged sends calls that no honest worker sends: the worker is killed (PY-08).
func testBrokerForged(t *testing.T, start startFunc) {
	calls := 0
	services := python.Services{CallTool: func(context.Context, string, json.RawMessage,
		python.Permissions,
	) (json.RawMessage, error) {
		calls++
		return json.RawMessage("1"), nil
	}}
	for _, call := range []string{
		`{"call_tool":{"name":"a","input":{}}`, `{}`, `{"exec":{}}`, `{"call_tool":{"name":1,"input":{}}}`,
		`{"call_tool":{"name":"a","input":{}},"fetch":{}}`, `{"call_tool":{"name":"a","input":{},"x":1}}`,
		`{"id":2,"call_tool":{"name":"a","input":{}}}`, `{"call_tool":{"name":"a","input":{"a":1,"a":2}}}`,
		`{"fetch":{"url":"http://a","body":"!"}}`, `{"read_text_file":{"path":["a"]}}`,
	} {
		w := start(t, python.Permissions{FS: python.FSWrite})
		got := w.RunWith(t, brokered(fmt.Sprintf("import dray\ndray._send(%q)", call), services), nil)
		if dray.CodeOf(got.Err) != dray.CodeAgentLost {
			t.Errorf("%s: %s", call, got.Describe())
		}
	}
	if calls > 0 {
		t.Errorf("%d forged calls had an effect", calls)
	}
}
