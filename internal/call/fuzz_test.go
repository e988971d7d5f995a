package call

import (
	"encoding/json"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/strictjson"
	"github.com/dray-dev/dray/internal/validate"
)

// FuzzRequest checks that the invocation of every valid request is as the layers below expect it.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"tool":"exec","input":{"argv":["a"]},"workspace":"/w/./x//","cwd":"a/./b/","env":{"A":"b"},"timeout_seconds":0.5}`,
		`{"tool":"exec","container":"c","environment":"auto","stdin_base64":"AA==","context":{"plan_id":"p","labels":{"a":"b"}}}`,
		`{"tool":"exec","plan":{"override":"host","fallback":"/w"},"mapping":"schema","on_disconnect":"continue","stdin_open":true}`,
		`{"tool":"exec","workspace":"/a/../b"}`, `{"tool":"exec","tty":{}}`, `{"tool":"exec","idle_timeout_seconds":3600}`,
		`{"tool":"exec","workspace":" ","cwd":".","container":"\u0000"}`, `{"tool":"exec","timeout_seconds":1e-300}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var req Request
		if strictjson.Decode(text, &req) != nil {
			return
		}
		var v validate.Violations
		inv := req.invocation(&v, time.Hour)
		if err := v.Err(); err != nil {
			if e := dray.AsError(err); e.Code != dray.CodeInvalidRequest || len(e.Details) == 0 ||
				!strings.HasPrefix(e.Details[0].Pointer, "/") {
				t.Errorf("%q: %+v", text, e)
			}
			return
		}
		checkInvocation(t, inv)
		if req.hasStdin() != (req.stdin() != nil || req.StdinOpen) {
			t.Errorf("%q: the stdin is missing", text)
		}
		checkIdempotent(t, inv)
	})
}

func checkInvocation(t *testing.T, inv dray.Invocation) {
	t.Helper()
	if !lexical.IsName(inv.Tool) || !json.Valid(inv.Input) || inv.Input[0] != '{' {
		t.Errorf("%+v", inv)
	}
	for _, p := range []string{inv.Workspace, inv.Cwd, inv.Plan.Override, inv.Plan.Fallback} {
		if p != "" && (path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../") ||
			strings.Contains(p, "/../") || strings.ContainsRune(p, 0)) {
			t.Errorf("path %q", p)
		}
	}
	if inv.Workspace != "" && !path.IsAbs(inv.Workspace) {
		t.Errorf("workspace %q", inv.Workspace)
	}
	for _, d := range []time.Duration{inv.Timeout, inv.IdleTimeout} {
		if d < 0 || d > time.Hour {
			t.Errorf("timeout %v", d)
		}
	}
	for _, env := range []map[string]string{inv.Env, inv.LocalEnv} {
		for k, v := range env {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
				t.Errorf("variable %q=%q", k, v)
			}
		}
	}
}

// checkIdempotent checks that validating an invocation again does not change it, so all layers see
// the same values (PM-05).
func checkIdempotent(t *testing.T, inv dray.Invocation) {
	t.Helper()
	var v validate.Violations
	req := Request{
		Tool: inv.Tool, Input: inv.Input, Workspace: inv.Workspace, Container: inv.Container,
		Environment: inv.Environment, Cwd: inv.Cwd, Env: inv.Env,
		LocalEnv: inv.LocalEnv, Context: inv.Context, Plan: inv.Plan, Mapping: inv.Mapping,
	}
	got := req.invocation(&v, time.Hour)
	got.Timeout, got.IdleTimeout = inv.Timeout, inv.IdleTimeout
	if err := v.Err(); err != nil || !reflect.DeepEqual(got, inv) {
		t.Errorf("%v: %+v became %+v", err, inv, got)
	}
}
