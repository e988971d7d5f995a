package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/validate"
)

// tools serves the tools of the daemon and of workspaces.
type tools struct{ server *Server }

// toolReply is a tool as callers see it.
type toolReply struct {
	Name         string           `json:"name"`
	State        tool.State       `json:"state" enum:"discovered,active,disabled" doc:"Only active tools run. A discovered one is declared by a workspace that is not trusted; it is shown without its texts and schemas."`
	Workspace    string           `json:"workspace,omitempty" doc:"The workspace that declares the tool, with symlinks resolved. A call must name it."`
	Reason       string           `json:"reason,omitempty" doc:"Why calls of the tool are refused, and what to do."`
	Description  string           `json:"description"`
	InputSchema  json.RawMessage  `json:"input_schema"`
	OutputSchema json.RawMessage  `json:"output_schema,omitempty"`
	Environment  dray.Requirement `json:"environment"`
	Mapping      dray.MappingMode `json:"mapping,omitempty" enum:"schema,heuristic,none"`
	Results      []string         `json:"results,omitempty" doc:"Files and directories that are fetched when a call of the tool ends."`
	RewriteText  bool             `json:"rewrite_text,omitzero" doc:"Whether the paths in its text are rewritten in calls without rewrite_text."`
	Timeout      float64          `json:"timeout_seconds,omitzero" doc:"The tool's own timeout. Default: the configured one."`
	Stdin        bool             `json:"stdin" doc:"Whether a call may have a stdin."`
	Capabilities json.RawMessage  `json:"capabilities" doc:"A list of read_only, network, unsafe, human_approval_required and {writes: [patterns]}."`
	InWorkspace  bool             `json:"in_workspace,omitzero" doc:"Whether every call works in the workspace folder, whatever its cwd."`
	Idempotent   bool             `json:"idempotent,omitzero" doc:"Whether repeating a call has no further effect."`
}

// newToolReply describes a tool. The texts of an untrusted workspace could instruct the model that
// reads them, so they are omitted.
func newToolReply(ctx context.Context, tools Tools, t *dray.Tool) toolReply {
	state, reason := tools.State(ctx, t.Name)
	reply := toolReply{Name: t.Name, Workspace: t.Workspace, Environment: t.Environment}
	if state != tool.Discovered {
		reply = describe(t)
	}
	reply.State = state
	if e := dray.AsError(reason); e != nil {
		reply.Reason = e.Message + ": " + e.Hint
	}
	return reply
}

func describe(t *dray.Tool) toolReply {
	capabilities, _ := json.Marshal(t.Capabilities) // words and texts always have a JSON form
	return toolReply{
		Name: t.Name, Workspace: t.Workspace, Description: t.Description, InputSchema: t.InputSchema,
		OutputSchema: t.OutputSchema, Environment: t.Environment, Mapping: t.Mapping,
		Results: t.Results, RewriteText: t.RewriteText, Timeout: t.Timeout.Seconds(),
		Stdin: t.AcceptsStdin, Capabilities: capabilities, InWorkspace: t.InWorkspace,
		Idempotent: t.Idempotent,
	}
}

// toolsReply is a list of tools.
type toolsReply struct {
	Items    []toolReply `json:"items"`
	Warnings []string    `json:"warnings,omitempty" doc:"Workspaces whose tools cannot be called and, for the daemon's user and root, MCP servers whose tools are not known, with the reason."`
}

func (l *toolsReply) add(ctx context.Context, from Tools, hidden func(*dray.Tool) bool) {
	for _, t := range from.List() {
		if hidden(t) {
			continue
		}
		l.Items = append(l.Items, newToolReply(ctx, from, t))
	}
}

// list responds with the tools of the daemon, and those of one workspace or of all known ones.
func (h *tools) list(w http.ResponseWriter, r *http.Request) error {
	folder, err := h.workspace(r)
	if err != nil {
		return err
	}
	folders := []string{folder}
	if folder == "" {
		if folders, err = h.folders(r); err != nil {
			return err
		}
	}
	if wait := h.server.cfg.AwaitTools; wait != nil {
		wait(r.Context())
	}
	configured := h.server.current.Load()
	all := toolsReply{Items: []toolReply{}}
	hidden := func(t *dray.Tool) bool { return configured.isHidden(principal(r), t) }
	all.add(r.Context(), configured.Tools, hidden)
	for _, folder := range folders {
		declared, err := configured.projectTools(r.Context(), folder)
		switch {
		case err != nil:
			all.Warnings = append(all.Warnings, dray.AsError(err).Message)
		case declared != nil && !all.has(declared):
			all.add(r.Context(), declared, hidden)
		}
	}
	seesAll := h.server.cfg.Access.Viewer(principal(r)) == ""
	if warn := h.server.cfg.ToolWarnings; warn != nil && seesAll {
		all.Warnings = append(all.Warnings, warn()...)
	}
	return reply(w, all)
}

// has reports whether the list has the tools of a workspace already, which was found by another
// path.
func (l *toolsReply) has(declared Tools) bool {
	return slices.ContainsFunc(declared.List(), func(t *dray.Tool) bool {
		return slices.ContainsFunc(l.Items, func(item toolReply) bool {
			return item.Workspace == t.Workspace
		})
	})
}

// folders returns the known workspaces that the caller may use.
func (h *tools) folders(r *http.Request) ([]string, error) {
	known, err := h.server.cfg.Workspaces.ToolFolders()
	var usable []string
	for _, folder := range known {
		if h.server.cfg.Access.CheckWorkspace(r.Context(), principal(r), folder) == nil {
			usable = append(usable, folder)
		}
	}
	return usable, err
}

// workspace returns the workspace of a request, which the caller may use, or "".
func (h *tools) workspace(r *http.Request) (string, error) {
	folder := r.URL.Query().Get("workspace")
	if folder == "" {
		return "", nil
	}
	var v validate.Violations
	folder = validate.AbsolutePath(&v, "workspace", folder)
	if err := v.ParamErr(); err != nil {
		return "", err
	}
	return folder, h.server.cfg.Access.CheckWorkspace(r.Context(), principal(r), folder)
}

// projectTools returns the tools that a workspace declares, or nil.
func (c *Configured) projectTools(ctx context.Context, folder string) (Tools, error) {
	if c.ProjectTools == nil || folder == "" {
		return nil, nil
	}
	return c.ProjectTools(ctx, folder)
}

// isHidden reports whether a tool is not listed for a principal (SE-04).
func (c *Configured) isHidden(principal string, t *dray.Tool) bool {
	return c.Denies != nil && c.Denies(principal, t)
}

// get responds with one tool.
func (h *tools) get(w http.ResponseWriter, r *http.Request) error {
	from, t, err := h.find(r)
	if err != nil {
		return err
	}
	if h.server.current.Load().isHidden(principal(r), t) {
		return dray.Errorf(dray.CodeUnknownTool, "no such tool: %q", t.Name).
			WithHint("list the tools with GET /v1/tools; policy hides those whose calls it denies")
	}
	return reply(w, newToolReply(r.Context(), from, t))
}

// find returns the tool of a request, and the tools that it is one of.
func (h *tools) find(r *http.Request) (from Tools, t *dray.Tool, err error) {
	var v validate.Violations
	name := validate.ToolName(&v, "name", r.PathValue("name"))
	if err := v.ParamErr(); err != nil {
		return nil, nil, err
	}
	folder, err := h.workspace(r)
	if err != nil {
		return nil, nil, err
	}
	configured := h.server.current.Load()
	from = configured.Tools
	if t, err = from.Find(name); dray.CodeOf(err) != dray.CodeUnknownTool {
		return from, t, err
	}
	declared, projectErr := configured.projectTools(r.Context(), folder)
	switch {
	case projectErr != nil:
		return nil, nil, projectErr
	case declared == nil:
		return nil, nil, err
	}
	t, err = declared.Find(name)
	return declared, t, err
}

// findUnlisted returns a tool of an MCP server that has not started yet, so that its state can be
// set before. It fails with unknown if the name is not one of such a server.
func (h *tools) findUnlisted(r *http.Request, unknown error) (Tools, *dray.Tool, error) {
	configured := h.server.current.Load()
	if find := configured.Intake.UpstreamTools; find != nil {
		t, ok, _ := find(r.Context(), r.PathValue("name")) // a disabled tool comes with an error
		if ok && t != nil {
			return configured.Tools, t, nil
		}
	}
	return nil, nil, unknown
}

// setState returns the handler that enables or disables a tool.
func (h *tools) setState(state tool.State) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		caller := principal(r)
		if err := h.server.cfg.Access.CheckOperator(caller, "change the state of a tool"); err != nil {
			return err
		}
		from, t, err := h.find(r)
		if dray.CodeOf(err) == dray.CodeUnknownTool {
			from, t, err = h.findUnlisted(r, err)
		}
		if err == nil {
			err = from.SetState(r.Context(), caller, t.Name, state)
		}
		if err != nil {
			return err
		}
		return reply(w, newToolReply(r.Context(), from, t))
	}
}
