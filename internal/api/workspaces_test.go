package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/api"
)

// workspaceTold answers with what was asked.
func workspaceTold(p *fakeDeps) {
	p.workspaces = func(_ context.Context, verb api.WorkspaceAction, id string,
		progress func(string, string),
	) (api.Workspace, error) {
		progress("asked", string(verb))
		return api.Workspace{ID: "app", Folder: id, State: string(verb), Trusted: true}, nil
	}
}

func TestWorkspaces(t *testing.T) {
	d := start(t, workspaceTold)
	if a := d.do("GET", "/v1/workspaces", ""); string(a.body) != `{"items":[{"id":"app","folder":"/home/me/app","state":"stopped","trusted":false}]}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, verb := range []string{"up", "stop", "trust"} {
		a := d.do("POST", "/v1/workspaces/app/"+verb, "{}")
		if want := `{"id":"app","folder":"app","state":"` + verb + `","trusted":true}`; a.status != 200 || string(a.body) != want {
			t.Errorf("%s: %d %s", verb, a.status, a.body)
		}
	}
}

// RT-08: what is waited for is told meanwhile.
func TestWorkspaceProgress(t *testing.T) {
	more := make(chan struct{})
	d := start(t, func(p *fakeDeps) {
		p.workspaces = func(_ context.Context, _ api.WorkspaceAction, id string,
			progress func(string, string),
		) (api.Workspace, error) {
			progress("build", "step 1")
			<-more
			progress("build", "step 2")
			if id == "broken" {
				return api.Workspace{}, dray.Errorf(dray.CodeContainerFailed, "the build failed").
					WithHint("see its log")
			}
			return api.Workspace{ID: id, State: "running"}, nil
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

// An error before any progress has a status of its own, in whatever form the answer was asked for.
func TestWorkspaceRefusal(t *testing.T) {
	d := start(t, func(p *fakeDeps) {
		p.workspaces = func(context.Context, api.WorkspaceAction, string,
			func(string, string),
		) (api.Workspace, error) {
			return api.Workspace{}, dray.Errorf(dray.CodeWorkspaceUntrusted, "not trusted").
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
		p.paths = func(req api.PathsRequest) (api.PathsReply, error) {
			return api.PathsReply{Paths: append([]string{req.Workspace, string(req.Direction)},
				req.Paths...)}, nil
		}
	})
	a := d.do("POST", "/v1/paths", `{"workspace":"/w/","direction":"to_container","paths":["/b","/a"]}`)
	if string(a.body) != `{"paths":["/w","to_container","/b","/a"],"unmapped":[]}` {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestToolsAndHealth(t *testing.T) {
	d := start(t, nil)
	for path, want := range map[string]string{
		"/v1/tools/greet": `{"name":"greet","description":"greets","input_schema":{"type":"object"},"environment":"auto","stdin":false}`,
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
