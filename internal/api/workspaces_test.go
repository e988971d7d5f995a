package api_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/workspace"
)

// echoAction returns the action and the id as the state of a workspace.
func echoAction(p *fakeDeps) {
	p.workspaces = func(_ context.Context, action workspace.Action, id string,
		progress func(string, string),
	) (workspace.Info, error) {
		progress("asked", string(action))
		return workspace.Info{
			ID: "app", Folder: id, State: workspace.State(action), Trusted: true,
		}, nil
	}
}

func TestWorkspaces(t *testing.T) {
	d := start(t, echoAction)
	if a := d.do("GET", "/v1/workspaces", ""); string(a.body) != `{"items":[{"id":"app","folder":"/home/me/app","state":"stopped","trusted":false}]}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, action := range []string{"up", "stop", "rebuild", "rm"} {
		a := d.do("POST", "/v1/workspaces/app/"+action, "{}")
		if action == "rm" {
			a = d.do("DELETE", "/v1/workspaces/app", "")
		}
		if want := `{"id":"app","folder":"app","state":"` + action + `","trusted":true}`; a.status != 200 || string(a.body) != want {
			t.Errorf("%s: %d %s", action, a.status, a.body)
		}
	}
}

// Trust is given for a hash only (RT-16).
func TestWorkspaceTrust(t *testing.T) {
	d := start(t, nil)
	const path = "/v1/workspaces/app/trust"
	for _, c := range []struct {
		method, body string
		status       int
		want         string
	}{
		{"GET", "", 200, `"hash":"sha256:1"`},
		{"POST", `{"hash":"sha256:1"}`, 200, `"trusted":true`},
		{"POST", `{"hash":"sha256:2"}`, 409, `"code":"conflict"`},
		{"POST", `{"hash":""}`, 400, `"pointer":"/hash"`},
		{"POST", `{"hash":null}`, 400, `"pointer":"/hash"`},
		{"POST", "{}", 400, `"pointer":"/hash"`},
		{"DELETE", "", 200, `"trusted":false`},
		{"DELETE", `{"hash":"sha256:1"}`, 400, `"code":"invalid_request"`},
	} {
		if a := d.do(c.method, path, c.body); a.status != c.status ||
			!strings.Contains(string(a.body), c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.body, a.status, a.body)
		}
	}
}

// The stream of an action has its progress and its end (RT-08).
func TestWorkspaceProgress(t *testing.T) {
	more := make(chan struct{})
	d := start(t, func(p *fakeDeps) {
		p.workspaces = func(_ context.Context, _ workspace.Action, id string,
			progress func(string, string),
		) (workspace.Info, error) {
			progress("build", "step 1")
			<-more
			progress("build", "step 2")
			if id == "broken" {
				return workspace.Info{}, dray.Errorf(dray.CodeContainerFailed, "the build failed").
					WithHint("see the build log")
			}
			return workspace.Info{ID: id, State: "running"}, nil
		}
	})
	good, bad := d.follow("POST", "/v1/workspaces/app/up", ""), d.follow("POST",
		"/v1/workspaces/broken/up", "{}")
	for _, f := range []*follower{good, bad} {
		if l, _ := f.next(); l.Event != "progress" || l.Phase != "build" || l.Message != "step 1" {
			t.Errorf("%+v", l)
		}
	}
	close(more)
	if all := good.all(); len(all) != 2 || all[1].Event != "end" || !strings.Contains(string(all[1].Workspace), `"state":"running"`) || all[1].Error != nil {
		t.Errorf("%+v", all)
	}
	if all := bad.all(); len(all) != 2 || all[1].Event != "end" || all[1].Error == nil ||
		all[1].Error.Code != dray.CodeContainerFailed {
		t.Errorf("%+v", all)
	}
}

// The stream of a prune has its progress and what was removed (AU-08).
func TestPruneProgress(t *testing.T) {
	d := start(t, nil)
	all := d.follow("POST", "/v1/audit/prune", `{"dry_run":true}`).all()
	if len(all) != 2 || all[0].Event != "progress" || all[0].Message != "2 calls, 5 events" ||
		all[1].Event != "end" || !strings.Contains(string(all[1].Pruned), `"calls":0`) {
		t.Errorf("%+v", all)
	}
	if a := d.do("POST", "/v1/audit/prune", "{}"); a.status != 200 ||
		!strings.Contains(string(a.body), `"calls":0`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An error before any progress is an error response, also for a stream.
func TestWorkspaceErrorBeforeProgress(t *testing.T) {
	d := start(t, func(p *fakeDeps) {
		p.workspaces = func(context.Context, workspace.Action, string,
			func(string, string),
		) (workspace.Info, error) {
			return workspace.Info{}, dray.Errorf(dray.CodeWorkspaceUntrusted, "not trusted").
				WithHint("dray workspace trust")
		}
	})
	for _, accept := range []string{"application/json", "text/event-stream"} {
		if a := d.do("POST", "/v1/workspaces/app/up", "", "Accept: "+accept); a.status != 403 ||
			a.problem(t).Code != dray.CodeWorkspaceUntrusted {
			t.Errorf("%s: %d %s", accept, a.status, a.body)
		}
	}
}

func TestPaths(t *testing.T) {
	d := start(t, func(p *fakeDeps) {
		p.mounts = []dray.Mount{{Host: "/home/me/app", Container: "/workspace"}}
	})
	for body, want := range map[string]string{
		`{"workspace":"/w/","direction":"to_container","paths":["/home/me/app/b","/a"]}`: `{"paths":["/workspace/b","/a"],"unmapped":["/a"]}`,
		`{"workspace":"/w","direction":"to_host","paths":["/workspace"]}`:                `{"paths":["/home/me/app"],"unmapped":[]}`,
	} {
		if a := d.do("POST", "/v1/paths", body); a.status != 200 || string(a.body) != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	a := d.do("POST", "/v1/paths", `{"workspace":"/x","direction":"to_host","paths":["/a"]}`)
	if a.status != 404 || a.problem(t).Code != dray.CodeWorkspaceNotFound {
		t.Errorf("unknown workspace: %d %s", a.status, a.body)
	}
}

// A path that a symlink on the host leads out of its mount is unmapped, as in a result (PM-12).
func TestPaths_EscapingSymlinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := top + "/app"
	if err := errors.Join(os.MkdirAll(root+"/build", 0o700), os.Mkdir(top+"/outside", 0o700),
		os.WriteFile(root+"/build/out.txt", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"stays": "build/out.txt", "own": root + "/build", "around": "../app/build",
		"passwd": "/etc/passwd", "up": "../outside", "two": "up/x", "gone": "../no-such",
		"circle": "circle", "container": "/workspace/build",
	} {
		if err := os.Symlink(target, root+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, func(p *fakeDeps) {
		p.mounts = []dray.Mount{{Host: root, Container: "/workspace"}}
	})
	for name, mapped := range map[string]bool{
		"": true, "/build/out.txt": true, "/no/such": true, "/stays": true, "/own/out.txt": true,
		"/around/out.txt": true, "/passwd": false, "/up": false, "/up/no-such": false, "/two": false,
		"/gone": false, "/circle": false, "/container/out.txt": false,
		"/" + strings.Repeat("x", 256): false, // it cannot be checked
	} {
		from := "/workspace" + name
		want := fmt.Sprintf(`{"paths":[%q],"unmapped":[]}`, root+name)
		if !mapped {
			want = fmt.Sprintf(`{"paths":[%q],"unmapped":[%[1]q]}`, from)
		}
		a := d.do("POST", "/v1/paths",
			fmt.Sprintf(`{"workspace":"/w","direction":"to_host","paths":[%q]}`, from))
		if a.status != 200 || string(a.body) != want {
			t.Errorf("%s: %d %s, want %s", from, a.status, a.body, want)
		}
		// A caller's own path is not checked, as in an input.
		a = d.do("POST", "/v1/paths",
			fmt.Sprintf(`{"workspace":"/w","direction":"to_container","paths":[%q]}`, root+name))
		if want := fmt.Sprintf(`{"paths":[%q],"unmapped":[]}`, from); string(a.body) != want {
			t.Errorf("%s to the container: %s", root+name, a.body)
		}
	}
}

func TestToolsAndHealth(t *testing.T) {
	d := start(t, nil)
	for path, want := range map[string]string{
		"/v1/tools/greet": `{"name":"greet","state":"active","description":"greets","input_schema":{"type":"object"},"environment":"auto","stdin":false,"capabilities":[]}`,
		"/healthz":        `{"status":"ok"}`,
		"/readyz":         `{"status":"ready"}`,
	} {
		if a := d.do("GET", path, ""); a.status != 200 || string(a.body) != want ||
			a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := d.do("GET", "/v1/tools", ""); a.status != 200 || !strings.HasPrefix(string(a.body), `{"items":[{"name":`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := d.do("HEAD", "/v1/tools", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

func TestNotReady(t *testing.T) {
	d := start(t, func(p *fakeDeps) {
		p.ready = func(context.Context) error {
			return dray.Errorf(dray.CodeEngineUnavailable, "no engine").WithHint("start it")
		}
	})
	if a := d.do("GET", "/readyz", ""); a.status != 503 || a.problem(t).
		Code != dray.CodeEngineUnavailable {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := d.do("GET", "/healthz", ""); a.status != 200 || a.header.Get("Dray-Version") != "test" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}
