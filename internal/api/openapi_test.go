package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract lists the operations of the contract that this version has.
var contract = []string{
	"GET /healthz", "GET /openapi.json", "GET /readyz",
	"GET /v1/invocations", "POST /v1/invocations", "GET /v1/invocations/{id}", "GET /v1/invocations/{id}/events",
	"GET /v1/invocations/{id}/output/{stream}", "POST /v1/invocations/{id}/stdin", "POST /v1/invocations/{id}/resize",
	"POST /v1/invocations/{id}/signal", "POST /v1/sessions/cancel", "POST /v1/invocations/{id}/cancel",
	"GET /v1/audit/export", "GET /v1/audit/files", "GET /v1/audit/checkpoint", "GET /v1/audit/receipt/{id}", "GET /v1/audit/verify", "GET /v1/audit/stats", "GET /v1/audit/events", "POST /v1/audit/prune", "GET /v1/approvals", "GET /v1/approvals/{id}", "POST /v1/approvals/{id}/decision", "POST /v1/route", "GET /v1/tools", "GET /v1/tools/{name}", "POST /v1/paths", "POST /v1/sync",
	"GET /v1/status", "POST /v1/reload",
	"POST /v1/tools/{name}/enable", "POST /v1/tools/{name}/disable",
	"GET /v1/workspaces", "POST /v1/workspaces/{id}/up", "POST /v1/workspaces/{id}/stop", "POST /v1/workspaces/{id}/rebuild", "DELETE /v1/workspaces/{id}", "GET /v1/containers", "POST /v1/containers/{name}", "DELETE /v1/containers/{name}", "POST /v1/workspaces/{id}/trust",
	"GET /v1/workspaces/{id}/trust", "DELETE /v1/workspaces/{id}/trust",
}

type document struct {
	OpenAPI string
	// Components has the schemas that the others refer to.
	Components struct{ Schemas map[string]any }
	Paths      map[string]map[string]struct {
		OperationID string
		Summary     string
		Parameters  []struct{ Name, In, Description string }
		RequestBody *struct{ Content map[string]any }
		Responses   map[string]any
	}
}

func openapi(t *testing.T, d *daemon) (document, []byte) {
	t.Helper()
	a := d.do("GET", "/openapi.json", "")
	var doc document
	if err := json.Unmarshal(a.body, &doc); err != nil || a.status != 200 {
		t.Fatalf("%d %v", a.status, err)
	}
	return doc, a.body
}

func TestDocumentListsEveryOperation(t *testing.T) {
	d := start(t, nil)
	doc, text := openapi(t, d)
	var all []string
	for path, item := range doc.Paths {
		for method, op := range item {
			name := strings.ToUpper(method) + " " + path
			all = append(all, name)
			if op.OperationID == "" || op.Summary == "" || op.Responses["default"] == nil {
				t.Errorf("%s is not documented", name)
			}
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s: %s is not documented", name, p.Name)
				}
			}
			for _, wild := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if !strings.Contains(fmt.Sprint(op.Parameters), "{"+wild[1]+" path") {
					t.Errorf("%s: {%s} is not documented", name, wild[1])
				}
			}
		}
	}
	slices.Sort(all)
	want := slices.Sorted(slices.Values(contract))
	if !slices.Equal(all, want) || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("%s has\n%s\nnot\n%s", doc.OpenAPI, strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
	for name := range doc.Components.Schemas {
		if !regexp.MustCompile(`^[a-zA-Z0-9._-]+$`).MatchString(name) {
			t.Errorf("%q is not the name of a schema", name) // OpenAPI 3.1, Components Object
		}
	}
	if bytes.Contains(text, []byte("Proven")) {
		t.Error("the document has the Go field Proven")
	}
}

// The schemas of the document accept the bodies of requests and responses.
func TestDocumentMatchesBodies(t *testing.T) {
	d := start(t, echoAction)
	_, text := openapi(t, d)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	check := func(schema string, body []byte) error {
		compiled, err := compiler.Compile("openapi.json#/components/schemas/" + schema)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return compiled.Validate(v)
	}
	const full = `{"tool":"exec","input":{"argv":["a"]},"workspace":"/w","container":"c","environment":"auto","cwd":"x","env":{"A":"b"},"stdin_open":true,
		"timeout_seconds":0.5,"idle_timeout_seconds":1,"context":{"plan_id":"p","labels":{"a":"b"}},"plan":{"override":"host"},"mapping":"none",
		"on_disconnect":"cancel","local_env":{"A":"b"},"tty":{"columns":80,"rows":24},"rewrite_text":false,"paths":"host","sync":["out"]}`
	good := map[string][]byte{"CallRequest": []byte(full)}
	good["Record"] = d.do("POST", "/v1/invocations?wait_ms=60000", full).body
	good["Problem"] = d.do("GET", "/nowhere", "").body
	good["Page"] = d.do("GET", "/v1/invocations", "").body
	good["ChangePage"] = d.do("GET", "/v1/audit/files", "").body
	good["RouteReply"] = d.do("POST", "/v1/route", full).body
	good["Tool"] = d.do("GET", "/v1/tools/exec", "").body
	good["ToolList"] = d.do("GET", "/v1/tools", "").body
	good["WorkspaceList"] = d.do("GET", "/v1/workspaces", "").body
	good["Workspace"] = d.do("POST", "/v1/workspaces/app/up", "").body
	good["Status"] = d.do("GET", "/v1/status", "").body
	good["Reload"] = d.do("POST", "/v1/reload", "").body
	good["StateReply"] = d.do("GET", "/healthz", "").body
	good["SyncRequest"] = []byte(`{"workspace":"/w","container":"c","paths":["/a"],"destination":"x","dry_run":true,"on_refused":"skip","direction":"to_host",
		"context":{"plan_id":"p"},"local_env":{"A":"b"}}`)
	good["SyncReply"] = startSync(t, withReport(&manifest, nil)).
		do("POST", "/v1/sync", string(good["SyncRequest"])).body
	const ndjson = "Accept: application/x-ndjson"
	stream := string(d.do("POST", "/v1/invocations", callBody, ndjson).body) +
		string(d.do("POST", "/v1/workspaces/app/up", "", ndjson).body)
	for i, line := range strings.Split(strings.TrimSpace(stream), "\n") {
		if err := check("Event", []byte(line)); err != nil || !strings.Contains(line, `"at":"20`) {
			t.Errorf("event %d: %v\n%s", i, err, line)
		}
	}
	for schema, body := range good {
		if err := check(schema, body); err != nil {
			t.Errorf("%s: %v\n%s", schema, err, body)
		}
	}
	if check("CallRequest", []byte(`{"tool":"exec","colour":"red"}`)) == nil || check("CallRequest", []byte(`{}`)) == nil {
		t.Error("the schema accepts an invalid request")
	}
}
