package config_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/dray-dev/dray/config"
)

var update = flag.Bool("update", false, "write the golden parts of testdata")

const fileName = "/etc/dray/config.yaml"

// source is the input of Load. The environment has a HOME, so that the state directory is known.
type source struct {
	file string
	env  []string
	// state is the value of --state.
	state string
}

func (s source) load() (*config.Config, error) {
	return config.Load(config.Options{
		State: s.state, Environ: append([]string{"HOME=/home/me"}, s.env...),
		ReadFile: files{fileName: s.file}.read,
	})
}

func (s source) mustLoad(t *testing.T) *config.Config {
	t.Helper()
	c, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// diagnostics returns the problems that Load found, and fails the test if there are none.
func (s source) diagnostics(t *testing.T) []config.Diagnostic {
	t.Helper()
	_, err := s.load()
	var invalid *config.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("Load returns %v, want a *config.InvalidError", err)
	}
	return invalid.Diagnostics
}

// files is a fake file system. An empty file does not exist.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	if f[name] == "" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(f[name]), nil
}

// TestTestdata loads every archive of testdata: config.yaml, environ (a variable per line), and
// want, which is the configuration as JSON or the text of the error.
// Every error names the key, the value, the origin and a suggestion (CF-01).
func TestTestdata(t *testing.T) {
	names, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimPrefix(name, "testdata/"), func(t *testing.T) { testArchive(t, name) })
	}
}

func testArchive(t *testing.T, name string) {
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var s source
	want := -1
	for i, f := range archive.Files {
		switch f.Name {
		case "config.yaml":
			s.file = string(f.Data)
		case "environ":
			s.env = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		case "want":
			want = i
		}
	}
	got := outcome(t, s, filepath.Base(filepath.Dir(name)) == "bad")
	if *update {
		archive.Files[want].Data = []byte(got)
		if err := os.WriteFile(name, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(archive.Files[want].Data),
		"\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("want differs from line %d on; got:\n%s", i+1,
				strings.Join(gotLines[min(i, len(gotLines)):], "\n"))
		}
	}
}

func outcome(t *testing.T, s source, bad bool) string {
	t.Helper()
	c, err := s.load()
	if bad != (err != nil) {
		t.Fatalf("Load returns error %v", err)
	}
	if err != nil {
		return err.Error() + "\n"
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// TestDefaults checks the defaults of the contract.
func TestDefaults(t *testing.T) {
	c := source{}.mustLoad(t)
	want := config.Limits{
		Timeout: 120 * time.Second, MaxTimeout: time.Hour, Grace: 2 * time.Second, Concurrent: 256,
		PerContainer: 64, Queue: 1024, Drain: 10 * time.Second, Capture: 50 << 20, View: 16 << 10,
		CapturesDisk: 10 << 30, CapturesKeep: 168 * time.Hour,
	}
	if c.Limits != want {
		t.Errorf("limits are %+v, want %+v", c.Limits, want)
	}
	if s := c.Sandbox; s.Root != "" || s.Sources != nil || s.Deny != nil || s.Executable {
		t.Errorf("the default sandbox is %+v", s) // no default root (SY-04)
	}
	if s := c.Sandbox; s.MaxFile != 64<<20 || s.MaxTotal != 512<<20 || s.MaxFiles != 10000 ||
		s.MaxDepth != 64 || s.Timeout != 5*time.Minute {
		t.Errorf("the sandbox's limits are %+v", s)
	}
	if !reflect.DeepEqual(c.Server, config.Server{
		Socket: "/home/me/.local/state/dray/dray.sock", MaxBody: 64 << 20,
		AllowedHosts: []string{"localhost", "127.0.0.1"},
	}) {
		t.Errorf("server is %+v", c.Server)
	}
	if c.Agent != (config.Agent{Lease: 30 * time.Second, Transport: config.TransportAuto}) {
		t.Errorf("agent is %+v", c.Agent)
	}
	if c.File != "" {
		t.Errorf("File is %q without a file", c.File)
	}
}

// Flags take precedence over variables, variables over the file, the file over defaults (CF-02).
// The state directory is no key of the file.
func TestPrecedence(t *testing.T) {
	file := source{file: "limits: {grace: 7s}\nhost: {roots: [/from/file]}\n"}
	env := file
	env.env = []string{"DRAY_LIMITS_GRACE=8s", "DRAY_HOST_ROOTS=/from/env", "DRAY_STATE=/env"}
	flags := env
	flags.state = "/flag"
	tests := []struct {
		name             string
		from             source
		grace            time.Duration
		roots, graceFrom string
		state            config.State
		stateFrom        string
	}{
		{"flags", flags, 8 * time.Second, "/from/env", "DRAY_LIMITS_GRACE", "/flag", "--state"},
		{"environment", env, 8 * time.Second, "/from/env", "DRAY_LIMITS_GRACE", "/env", "DRAY_STATE"},
		{
			"file", file, 7 * time.Second, "/from/file", "/etc/dray/config.yaml:1:17",
			"/home/me/.local/state/dray", "default",
		},
		{
			"defaults",
			source{},
			2 * time.Second, "", "default",
			"/home/me/.local/state/dray", "default",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.from.mustLoad(t)
			if c.Limits.Grace != tt.grace || strings.Join(c.Host.Roots, " ") != tt.roots ||
				c.State != tt.state {
				t.Errorf("got %v, %v and %s, want %+v", c.Limits.Grace, c.Host.Roots, c.State, tt)
			}
			for key, want := range map[string]string{"limits.grace": tt.graceFrom, "state": tt.stateFrom} {
				if got := c.Origin(key).String(); got != want {
					t.Errorf("origin of %s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

// A list of a source replaces that of a lower one, and an empty variable counts as unset.
func TestVariables(t *testing.T) {
	tests := []struct {
		name string
		s    source
		got  func(c *config.Config) any
		want any
	}{
		{
			"empty is unset",
			source{env: []string{"DRAY_LIMITS_GRACE="}},
			func(c *config.Config) any { return c.Limits.Grace }, 2 * time.Second,
		},
		{
			"list with commas",
			source{file: "host: {roots: [/a, /b]}", env: []string{"DRAY_HOST_ROOTS=/c, /d"}},
			func(c *config.Config) any { return strings.Join(c.Host.Roots, "|") }, "/c|/d",
		},
		{
			"list as YAML",
			source{env: []string{`DRAY_DEVCONTAINER_UP_ARGS=["--mount", "type=bind,source=/a"]`}},
			func(c *config.Config) any { return strings.Join(c.Devcontainer.UpArgs, "|") }, "--mount|type=bind,source=/a",
		},
		{
			"one named entry over the file's",
			source{
				file: "containers: {My-DB: {id: old, mappings: [{host: /a, container: /b}]}}", env: []string{"DRAY_CONTAINERS_MY_DB_ID=new"},
			},
			func(c *config.Config) any { return c.Containers["My-DB"].ID + c.Containers["My-DB"].Mappings[0].Host }, "new/a",
		},
		{
			"a new named entry",
			source{env: []string{
				"DRAY_CONTAINERS_WEB_WORKSPACE=/srv/web",
				"DRAY_CONTAINERS_WEB_SERVICE=app",
			}},
			func(c *config.Config) any { return c.Containers["web"].Workspace + c.Containers["web"].Service }, "/srv/webapp",
		},
		{
			"mappings of a named entry",
			source{env: []string{
				"DRAY_CONTAINERS_WEB_ID=web",
				"DRAY_CONTAINERS_WEB_MAPPINGS=[{host: /a, container: /b}]",
			}},
			func(c *config.Config) any { return c.Containers["web"].Mappings[0] },
			config.Mapping{Host: "/a", Container: "/b"},
		},
		{
			"a plan",
			source{env: []string{"DRAY_ROUTING_PLANS_P1_OVERRIDE=host"}},
			func(c *config.Config) any { return c.Routing.Plans["p1"].Override }, "host",
		},
		{
			"the budget of a plan, one key of it from the file",
			source{
				file: "routing: {plans: {p1: {budget: {calls: 7, wall: 1h}}}}",
				env: []string{
					"DRAY_ROUTING_PLANS_P1_BUDGET_WALL=8h", "DRAY_ROUTING_PLANS_P1_BUDGET_BYTES=2KiB",
				},
			},
			func(c *config.Config) any { return c.Routing.Plans["p1"].Budget },
			config.Budget{Calls: 7, Wall: 8 * time.Hour, Bytes: 2 << 10},
		},
		{
			"the budget of a new plan",
			source{env: []string{"DRAY_ROUTING_PLANS_P1_BUDGET_CALLS=3"}},
			func(c *config.Config) any { return c.Routing.Plans["p1"].Budget },
			config.Budget{Calls: 3},
		},
		{
			"a variable of local_env keeps its case",
			source{env: []string{"DRAY_DEVCONTAINER_LOCAL_ENV_GitHub_TOKEN=t"}},
			func(c *config.Config) any { return c.Devcontainer.LocalEnv["GitHub_TOKEN"] }, "t",
		},
		{
			"text is not read as YAML",
			source{env: []string{"DRAY_ENGINE_CONTEXT=123"}},
			func(c *config.Config) any { return c.Engine.Context }, "123",
		},
		{
			"reserved names",
			source{env: []string{"DRAY_TEST_ENGINE=1", "DRAY_STATE=/s", "DRAYX=1"}},
			func(c *config.Config) any { return c.State }, config.State("/s"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.got(tt.s.mustLoad(t)); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// A maximum below the default timeout lowers the default.
func TestMaxTimeoutLowersDefault(t *testing.T) {
	c := source{env: []string{"DRAY_LIMITS_MAX_TIMEOUT=5s"}}.mustLoad(t)
	if c.Limits.Timeout != 5*time.Second {
		t.Errorf("timeout is %v, want 5s", c.Limits.Timeout)
	}
}

// Names that an operator chose are case-sensitive.
func TestNamesKeepTheirCase(t *testing.T) {
	c := source{file: "containers:\n  DB: {id: one}\n  db: {id: two}\ndevcontainer: {local_env: " +
		"{Path: a, PATH: b}}\n"}.mustLoad(t)
	if c.Containers["DB"].ID != "one" || c.Containers["db"].ID != "two" {
		t.Errorf("containers are %v", c.Containers)
	}
	if env := c.Devcontainer.LocalEnv; env["Path"] != "a" || env["PATH"] != "b" {
		t.Errorf("local_env is %v", env)
	}
}

// Sessions of the runtime container may have less memory than one of pyodide needs (PY-23).
func TestMemoryOfContainerSessions(t *testing.T) {
	for _, value := range []string{"64MiB", "191MiB"} {
		c := source{file: "python: {memory: " + value + "}\n"}.mustLoad(t)
		if c.Python.Memory >= config.MinPyodideMemory {
			t.Errorf("%s is %d", value, c.Python.Memory)
		}
	}
	if m := (source{env: []string{
		"DRAY_PYTHON_MEMORY=191MiB", "DRAY_PYTHON_PYODIDE_RESIDENT=1",
	}}).diagnostics(t); len(m) != 1 || m[0].Key != "python.memory" || m[0].Suggestion == "" {
		t.Errorf("got %+v", m)
	}
}

// A lease must be long enough for a reply of the agent.
func TestMinimumLease(t *testing.T) {
	for _, lease := range []string{"1ms", "999ms"} {
		m := source{env: []string{"DRAY_AGENT_LEASE=" + lease}}.diagnostics(t)
		if len(m) != 1 || m[0].Key != "agent.lease" || m[0].Suggestion != "write 1s or more" {
			t.Errorf("%s: %+v", lease, m)
		}
	}
	if c := (source{env: []string{"DRAY_AGENT_LEASE=1s"}}).mustLoad(t); c.Agent.Lease != time.Second {
		t.Errorf("1s is %v", c.Agent.Lease)
	}
}
