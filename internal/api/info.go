package api

import (
	"encoding/json"
	"net/http"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/validate"
)

// info serves what callers need to know about the daemon: its tools, its state and its interface.
type info struct{ server *Server }

// toolReply is a tool as callers see it.
type toolReply struct {
	Name         string           `json:"name"`
	Description  string           `json:"description"`
	InputSchema  json.RawMessage  `json:"input_schema"`
	OutputSchema json.RawMessage  `json:"output_schema,omitempty"`
	Environment  dray.Requirement `json:"environment"`
	Mapping      dray.MappingMode `json:"mapping,omitempty" enum:"schema,heuristic,none"`
	Results      []string         `json:"results,omitempty" doc:"Files and directories that are fetched when a call of the tool ends."`
	RewriteText  bool             `json:"rewrite_text,omitzero" doc:"Whether the paths in its text are rewritten in calls without rewrite_text."`
	Timeout      float64          `json:"timeout_seconds,omitzero" doc:"The tool's own timeout. Default: the configured one."`
	Stdin        bool             `json:"stdin" doc:"Whether a call may have a stdin."`
}

func newToolReply(t *dray.Tool) toolReply {
	return toolReply{
		Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
		OutputSchema: t.OutputSchema, Environment: t.Environment, Mapping: t.Mapping,
		Results: t.Results, RewriteText: t.RewriteText, Timeout: t.Timeout.Seconds(),
		Stdin: t.AcceptsStdin,
	}
}

// tools responds with all tools.
func (h *info) tools(w http.ResponseWriter, _ *http.Request) error {
	all := listReply[toolReply]{}
	for _, t := range h.server.cfg.Tools.List() {
		all.Items = append(all.Items, newToolReply(t))
	}
	return reply(w, all)
}

// tool responds with one tool.
func (h *info) tool(w http.ResponseWriter, r *http.Request) error {
	var v validate.Violations
	name := validate.ToolName(&v, "name", r.PathValue("name"))
	if err := v.ParamErr(); err != nil {
		return err
	}
	t, err := h.server.cfg.Tools.Get(name)
	if err != nil {
		return err
	}
	return reply(w, newToolReply(t))
}

// stateReply is the body of /healthz and /readyz.
type stateReply struct {
	Status string `json:"status"`
}

// health responds as long as the process runs.
func (h *info) health(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, stateReply{"ok"})
}

// ready reports whether the daemon accepts calls.
func (h *info) ready(w http.ResponseWriter, r *http.Request) error {
	if h.server.cfg.Calls.Draining() {
		return dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
			WithHint("wait until it runs again")
	}
	if check := h.server.cfg.Ready; check != nil {
		if err := check(r.Context()); err != nil {
			return &httpError{err: err, status: http.StatusServiceUnavailable}
		}
	}
	return reply(w, stateReply{"ready"})
}

// document responds with the OpenAPI document.
func (h *info) document(w http.ResponseWriter, _ *http.Request) error {
	respond(w, http.StatusOK, mediaJSON, h.server.openapi)
	return nil
}
