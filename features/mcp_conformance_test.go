package features

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The suite of the protocol's maintainers finds nothing in either revision (MC-02). Its fixtures
// are in no other build. The suite sends no token, so a proxy adds it.
func TestMCPConformance(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("DRAY_TEST_MCP")
	if tools == "" {
		tools, _ = filepath.Abs("../.tools/mcp")
	}
	node, err := filepath.Glob(filepath.Join(tools, "node_modules", "node-linux-*", "bin", "node"))
	if err != nil || len(node) != 1 {
		t.Fatalf("the conformance suite is missing: run scripts/setup mcp (%v)", err)
	}
	suite := filepath.Join(tools, "node_modules", "@modelcontextprotocol", "conformance", "dist",
		"index.js")
	endpoint := serveFixtures(t)
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			results := t.TempDir()
			cmd := exec.CommandContext(t.Context(), node[0], suite, "server", "--url", endpoint,
				"--requirements", revision, "--output-dir", results)
			out, err := cmd.CombinedOutput()
			failed, checks := failedScenarios(t, results)
			if checks < 70 {
				t.Fatalf("only %d checks were made: %v: %s", checks, err, out)
			}
			tasks, _ := filepath.Glob(filepath.Join(results, "server-tasks-*"))
			if revision == revisions[1] && len(tasks) < 10 { // of the extension for long calls
				t.Errorf("only these scenarios of tasks were run: %v", tasks)
			}
			t.Logf("%d checks, %d scenarios of tasks", checks, len(tasks))
			for name, why := range failed {
				t.Errorf("%s: %s", name, why)
			}
		})
	}
}

// serveFixtures starts a daemon with the fixtures of the suite and returns the URL of its MCP.
func serveFixtures(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	program := filepath.Join(dir, "dray")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "mcpfixtures", "-o", program,
		"../cmd/dray")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the fixtures: %v: %s", err, out)
	}
	proxy := httptest.NewUnstartedServer(nil)
	own := "http://" + proxy.Listener.Addr().String()
	writeFiles(t, dir, map[string]string{"config.yaml": fmt.Sprintf(
		"server: {tcp: 0, allowed_origins: [%q, %q]}\n", own,
		strings.Replace(own, "127.0.0.1", "localhost", 1))})
	log := newLineLog()
	state := filepath.Join(dir, "state")
	serve := exec.CommandContext(t.Context(), program, "serve", "--state", state, "--config",
		filepath.Join(dir, "config.yaml"))
	serve.Stderr = log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(os.Interrupt)
		_ = serve.Wait()
	})
	ready, ok := log.await("ready")
	if !ok {
		t.Fatalf("the daemon does not start: %s", log.text())
	}
	token, err := os.ReadFile(filepath.Join(state, "token"))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse("http://" + fmt.Sprint(ready["tcp"]))
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
		},
	}
	// net/http closes the body of a request when its response begins. A connection whose request is
	// still being forwarded then would be closed, so the body is read first.
	proxy.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		forward.ServeHTTP(w, r)
	})
	proxy.Start()
	t.Cleanup(proxy.Close)
	return own + "/mcp"
}

// failedScenarios returns the failed checks in the results of the suite by scenario, and the number
// of all checks.
func failedScenarios(t *testing.T, dir string) (failed map[string]string, checks int) {
	t.Helper()
	failed = map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			ID           string `json:"id"`
			Status       string `json:"status"`
			ErrorMessage string `json:"errorMessage"`
		}
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		checks += len(all)
		name := strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "server-")
		for _, c := range all {
			if c.Status == "FAILURE" {
				failed[name] += c.ID + ": " + c.ErrorMessage + "; "
			}
		}
	}
	return failed, checks
}
