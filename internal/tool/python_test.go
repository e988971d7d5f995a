package tool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// Code reads only files that say that they are beneath host.roots, when they are staged and by
// dray.read_text_file: a wrapper of files, or the root of the file system, fails closed (EX-06,
// PY-10).
func TestPythonFilesBeneathRoots(t *testing.T) {
	f := newFixture(t)
	outside := realDir(t)
	call := &pythonCall{Call: dray.Call{Environment: f.env}}
	e := &sessionEnvironment{Environment: f.env, call: call, files: call.workspace(nil, PythonOptions{})}
	services := func(dir string) func(context.Context) (dray.Files, error) {
		return e.request(dray.ProcessSpec{Dir: dir}).Services.Files
	}
	for dir, denied := range map[string]bool{f.folder: false, outside: true, "/": true} {
		staged, err := e.files.Open(t.Context(), dir)
		if denied != (dray.CodeOf(err) == dray.CodeDenied) || !denied && err != nil {
			t.Errorf("staged from %s: %v", dir, err)
		}
		if err == nil {
			_ = staged.Close()
		}
		read, err := services(dir)(t.Context())
		if denied != (dray.CodeOf(err) == dray.CodeDenied) || !denied && err != nil {
			t.Errorf("read_text_file in %s: %v", dir, err)
		}
		if err == nil {
			_ = read.Close()
		}
	}
	call.Environment = wrappedFiles{f.env}
	_, err := call.workspace(nil, PythonOptions{}).Open(t.Context(), f.folder)
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeDenied || e.Hint == "" {
		t.Errorf("files that do not say where they are: %v", err)
	}
}

// wrappedFiles is an environment whose files have no other methods than those of dray.Files.
type wrappedFiles struct{ dray.Environment }

func (w wrappedFiles) Files(ctx context.Context, dir string) (dray.Files, error) {
	files, err := w.Environment.Files(ctx, dir)
	return struct{ dray.Files }{files}, err
}

// Invalid inputs of python are refused before anything starts, each with a pointer to what is wrong
// (PY-01, PY-03, PY-17).
func TestPythonInput(t *testing.T) {
	tool, err := registry(t).Get(t.Context(), "python")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 129)
	tests := []struct {
		input    string
		pointers string // of the violations, "" for a valid input
		says     string
	}{
		{`{"code":"1+1"}`, "", ""},
		{`{"operation":"exec","session":"a b","runtime":"container","file":"x.py","argv":["","-v"],
			"inputs":{"n":[1,null]},"globals":["n"],"state":"fresh","read_only":false}`, "", ""},
		{`{"module":"json.tool","permissions":{"fs":"none","network":[],"env":[]}}`, "", ""},
		{`{"operation":"status"}`, "", ""},
		{`{"operation":"reset","session":"a"}`, "", ""},
		{`{"operation":"interrupt","runtime":"pyodide"}`, "", ""},
		{`{"operation":"prepare"}`, "", ""},
		{`{"operation":"prepare","requirements":{"packages":["numpy>=2"],"action":"add"}}`, "", ""},
		{`{"operation":"prepare","python":{"venv":"/opt/venv"},"restart":"no"}`, "", ""},
		// nothing to run, or too much
		{`{}`, "/input", "set one of code, file and module"},
		{`{"session":"a"}`, "/input", "set one of code, file and module"},
		{`{"code":"1","file":"a.py"}`, "/input/code /input/file", "set only one of"},
		{`{"code":"1","module":"m"}`, "/input/code /input/module", "set only one of"},
		// what belongs to the call
		{`{"code":"1","cwd":"/"}`, "/input/cwd", "belongs to the call: set cwd beside"},
		{`{"code":"1","env":{}}`, "/input/env", "belongs to the call: set env beside"},
		{`{"code":"1","stdin":""}`, "/input/stdin", "belongs to the call: set stdin beside"},
		{`{"code":"1","timeout":1}`, "/input/timeout", "belongs to the call: set timeout_seconds beside"},
		{`{"code":"1","timeout_seconds":1}`, "/input/timeout_seconds", "set timeout_seconds beside"},
		{`{"operation":"reset","workspace":"/"}`, "/input/workspace", "set workspace beside"},
		// unknown names
		{`{"code":"1","language":"x"}`, "/input/language", "is not allowed here"},
		{`{"code":"1","runtime":"host"}`, "/input/runtime", "'container', 'pyodide'"},
		{`{"code":"1","runtime":null}`, "/input/runtime", "'container', 'pyodide'"},
		{`{"operation":"run","code":"1"}`, "/input/operation", "'interrupt'"},
		{`{"code":"1","state":"new"}`, "/input/state", "'fresh'"},
		{`{"code":"1","permissions":{"fs":"all"}}`, "/input/permissions/fs", "'none'"},
		{`{"code":"1","permissions":{"files":"read"}}`, "/input/permissions/files", "is not allowed here"},
		{`{"operation":"prepare","requirements":{"package":[]}}`, "/input/requirements/package", "is not allowed"},
		// empty and malformed texts
		{`{"session":"","code":"1"}`, "/input/session", "minLength"},
		{`{"code":""}`, "/input/code", "minLength"},
		{`{"file":""}`, "/input/file", "minLength"},
		{`{"module":""}`, "/input/module", "minLength"},
		{`{"runtime":"","code":"1"}`, "/input/runtime", "'container'"},
		{`{"code":"1","globals":[""]}`, "/input/globals/0", "minLength"},
		{`{"session":"` + long + `","code":"1"}`, "/input/session", "maxLength"},
		{`{"session":"a\nb","code":"1"}`, "/input/session", "pattern"},
		{`{"file":"a\u0000b"}`, "/input/file", "pattern"},
		{`{"code":"1","argv":["a\u0000b"]}`, "/input/argv/0", "pattern"},
		{`{"code":"1","argv":"a"}`, "/input/argv", "want array"},
		{`{"operation":"prepare","python":{"executable":"python3"}}`, "/input/python/executable", "absolute path"},
		{
			`{"operation":"prepare","requirements":{"packages":["numpy","-r x"]}}`, "/input/requirements/packages/1",
			"options are not packages",
		},
		{
			`{"operation":"prepare","requirements":{"packages":["x @ http://a/x.whl"]}}`,
			"/input/requirements/packages/0", "use https",
		},
		{`{"operation":"prepare","requirements":{},"python":{"venv":"/v"}}`, "/input/python", "exclude"},
		{`{"operation":"prepare","restart":""}`, "/input/restart", "if_needed"},
		{`{"operation":"prepare","python":{"venv":"venv"}}`, "/input/python/venv", "absolute path"},
		// members of another operation
		{`{"operation":"reset","code":"1"}`, "/input/code", "belongs to operation exec"},
		{`{"operation":"status","state":"fresh"}`, "/input/state", "belongs to operation exec"},
		{`{"code":"1","requirements":{}}`, "/input/requirements", "belongs to operation prepare"},
		{`{"code":"1","restart":"no"}`, "/input/restart", "belongs to operation prepare"},
		{`{"operation":"prepare","code":"1"}`, "/input/code", "belongs to operation exec"},
	}
	for _, tt := range tests {
		err := tool.CheckInput(json.RawMessage(tt.input))
		if tt.pointers == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.input, err)
			}
			continue
		}
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeInvalidInput {
			t.Errorf("%s: got %v, want invalid_input", tt.input, err)
			continue
		}
		var pointers []string
		for _, d := range e.Details {
			pointers = append(pointers, d.Pointer)
		}
		if got := strings.Join(pointers, " "); got != tt.pointers ||
			!strings.Contains(e.Details[0].Message, tt.says) {
			t.Errorf("%s: got %s: %s; want %s: %s", tt.input, got, e.Details[0].Message, tt.pointers,
				tt.says)
		}
	}
}

// containerSessions returns sessions of the runtime container alone.
func containerSessions(t *testing.T) *python.Sessions {
	t.Helper()
	sessions, err := python.New(python.Options{
		Runtimes: []python.Runtime{&python.Container{}},
		Resident: map[string]int{python.RuntimeContainer: 1}, Log: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sessions.Close)
	return sessions
}

// The description of the tool says what each runtime can do (PY-01).
func TestPythonDescribesRuntimes(t *testing.T) {
	sessions := containerSessions(t)
	r, err := NewRegistry(Options{Python: PythonOptions{
		Sessions: sessions, Runtime: python.RuntimeContainer,
	}})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := r.Get(t.Context(), "python")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Run Python code in a session.", "\n- container (default): supports module",
		"does not support read_only, permissions",
	} {
		if !strings.Contains(tool.Description, want) {
			t.Errorf("the description does not contain %q: %s", want, tool.Description)
		}
	}
}

// The runtime decides where a call runs, whatever its operation is. Pyodide runs on the host, and
// its code needs a directory there only if it may read files; the runtime container refuses the
// host (PY-02, RT-03).
func TestPythonNeeds(t *testing.T) {
	for _, tt := range []struct {
		configured, fs, input string
		kind                  dray.RequirementKind
		starts, refused       bool
	}{
		{"container", "", ``, dray.PreferContainer, true, true},
		{"container", "", `{"code":"1"}`, dray.PreferContainer, true, true},
		{"container", "", `{"operation":"status"}`, dray.PreferContainer, true, true},
		{"container", "", `{"code":"1","runtime":"pyodide"}`, dray.RequireHost, false, false},
		{"container", "", `{"operation":"reset","runtime":"pyodide"}`, dray.RequireHost, false, false},
		{"container", "", `{"operation":"status","runtime":"pyodide"}`, dray.RequireHost, false, false},
		{"pyodide", "", ``, dray.RequireHost, false, false},
		{"pyodide", "", `{"code":"1"}`, dray.RequireHost, false, false},
		{"pyodide", "", `{"operation":"interrupt"}`, dray.RequireHost, false, false},
		{"pyodide", "", `{"code":"1","runtime":"container"}`, dray.PreferContainer, true, true},
		{"pyodide", "write", ``, dray.RequireHost, true, false},
		{"pyodide", "write", `{"code":"1"}`, dray.RequireHost, true, false},
		{"pyodide", "read", `{"code":"1"}`, dray.RequireHost, true, false},
		{"pyodide", "none", `{"code":"1"}`, dray.RequireHost, false, false},
		{"pyodide", "write", `{"code":"1","permissions":{"fs":"none"}}`, dray.RequireHost, false, false},
		{"pyodide", "write", `{"code":"1","permissions":{"fs":"read"}}`, dray.RequireHost, true, false},
		{"pyodide", "none", `{"code":"1","permissions":{"fs":"read"}}`, dray.RequireHost, false, false},
		{"pyodide", "write", `{"operation":"reset"}`, dray.RequireHost, false, false},
	} {
		r, err := NewRegistry(Options{Python: PythonOptions{
			Runtime: tt.configured, Permissions: python.Permissions{FS: tt.fs},
		}})
		if err != nil {
			t.Fatal(err)
		}
		tool, err := r.Get(t.Context(), "python")
		if err != nil {
			t.Fatal(err)
		}
		needs := tool.Needs(json.RawMessage(tt.input))
		refused := needs.CheckRoute(dray.Route{Environment: dray.KindHost})
		if needs.Environment.Kind != tt.kind || needs.StartsProcess != tt.starts ||
			(dray.CodeOf(refused) == dray.CodeUnsupported) != tt.refused ||
			needs.CheckRoute(dray.Route{Environment: dray.KindContainer}) != nil {
			t.Errorf("with %s, %s needs %+v", tt.configured, tt.input, needs)
		}
		if tt.kind == dray.RequireHost && needs.Environment.Hint == "" {
			t.Errorf("with %s, the requirement of %s has no hint", tt.configured, tt.input)
		}
	}
}

// idEnvironment is an environment of which only the container is known.
type idEnvironment struct {
	dray.Environment
	container *dray.ContainerMetadata
}

func (e idEnvironment) Capabilities() dray.Capabilities {
	return dray.Capabilities{Container: e.container}
}

// startingRuntime is a runtime whose workers never become ready.
type startingRuntime struct {
	python.Runtime
	starting chan struct{}
}

func (r startingRuntime) Start(ctx context.Context, _ python.WorkerSpec) (python.Worker, error) {
	r.starting <- struct{}{}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A reset while a worker starts ends the call as a reset while code runs does (PY-25).
func TestPythonResetWhileStarting(t *testing.T) {
	starting := make(chan struct{})
	sessions, err := python.New(python.Options{
		Runtimes: []python.Runtime{startingRuntime{&python.Container{}, starting}},
		Resident: map[string]int{python.RuntimeContainer: 1}, Log: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sessions.Close()
	f := newFixture(t)
	f.tools.Python = PythonOptions{Sessions: sessions, Runtime: python.RuntimeContainer}
	ended := make(chan dray.Result)
	go func() { ended <- f.call(t, "python", `{"code":"1"}`) }()
	<-starting
	for _, st := range sessions.List("") {
		if _, err := sessions.Reset(t.Context(), st.Key); err != nil {
			t.Error(err)
		}
	}
	res := <-ended
	failedWith(t, res, dray.CodeConflict)
	if res.Reason != dray.ReasonCancelled {
		t.Errorf("the reason is %s", res.Reason)
	}
}

// What no runtime does is refused, not ignored (PY-01).
func TestPythonRefusesLeftovers(t *testing.T) {
	sessions := containerSessions(t)
	f := newFixture(t)
	f.tools.Python = PythonOptions{Sessions: sessions, Runtime: python.RuntimeContainer}
	res := f.call(t, "python", `{"code":"1"}`, func(c *dray.Call) {
		c.Invocation.Leftovers = dray.KeepLeftovers
	})
	failedWith(t, res, dray.CodeUnsupported)
}

// A session of the runtime container belongs to the container. One of pyodide belongs to the
// workspace on the host, whatever the working directory is (PY-17).
func TestSessionEnvironmentID(t *testing.T) {
	in := idEnvironment{container: &dray.ContainerMetadata{ID: "c1"}}
	for _, tt := range []struct {
		env            dray.Environment
		runtime        string
		workspace, cwd string
		want           string
	}{
		{in, "container", "/w", "", "c1"},
		{in, "pyodide", "/w", "", "host:/w"}, // as operation status asks in a container
		{idEnvironment{}, "pyodide", "/w", "/w/sub", "host:/w"},
		{idEnvironment{}, "pyodide", "", "/w/sub", "host:"},
	} {
		call := dray.Call{Environment: tt.env, Invocation: dray.Invocation{
			Workspace: tt.workspace, Cwd: tt.cwd,
		}}
		if got := sessionEnvironmentID(call, tt.runtime); got != tt.want {
			t.Errorf("%s in %q: got %q, want %q", tt.runtime, tt.workspace, got, tt.want)
		}
	}
}

// A configuration without a runtime has no tool python. With one its timeout is that of runs, and
// the tool prefers a container (PY-17).
func TestPythonIsListed(t *testing.T) {
	with, err := NewRegistry(Options{Python: PythonOptions{Wall: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := with.Get(t.Context(), "python")
	if err != nil || tool.Timeout != time.Minute || !tool.AcceptsStdin ||
		tool.Environment.Kind != dray.PreferContainer || !tool.Capabilities.Unsafe {
		t.Errorf("got %+v, %v", tool, err)
	}
	without, err := NewRegistry(Options{Python: PythonOptions{Disabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := without.Get(t.Context(), "python"); dray.CodeOf(err) != dray.CodeUnknownTool {
		t.Errorf("got %v, want unknown_tool", err)
	}
}
