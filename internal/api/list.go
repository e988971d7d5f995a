package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/validate"
)

const (
	defaultLimit = 50
	maxLimit     = 1000

	maxIDParam    = 256  // bytes of plan_id and session_id
	maxTextParam  = 1024 // bytes of q and cursor
	maxLabelParam = 1281 // bytes of label: a name of 256, a colon and a value of 1024
)

// allReasons are the reasons that a list can be filtered by.
var allReasons = []dray.Reason{
	dray.ReasonExited, dray.ReasonSignalled, dray.ReasonTimeout, dray.ReasonIdleTimeout,
	dray.ReasonCancelled, dray.ReasonStartFailed, dray.ReasonDenied, dray.ReasonInvalid,
	dray.ReasonUnavailable, dray.ReasonInterrupted, dray.ReasonOutputLimit, dray.ReasonOOM,
}

// lists serves the pages of the audit log.
type lists struct {
	calls  *call.Registry
	audit  AuditReader
	access call.Access
}

// page is one page of calls.
type page struct {
	Items      []dray.Record      `json:"items"`
	NextCursor string             `json:"next_cursor" doc:"The cursor of the next page; empty on the last one."`
	Unreadable []audit.Unreadable `json:"unreadable,omitempty" doc:"Damaged rows that cannot be read."`
}

// listReply is a list without pages.
type listReply[T any] struct {
	Items []T `json:"items"`
}

// list responds with a page of the calls that the caller may see, newest first.
func (h *lists) list(w http.ResponseWriter, r *http.Request) error {
	q, err := parseListQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if viewer := h.access.Viewer(principal(r)); viewer != "" {
		if q.Principal != "" && q.Principal != viewer {
			return reply(w, page{}) // calls of other principals are not listed
		}
		q.Principal = viewer
	}
	queued := h.calls.Queued(q.Principal)
	p, err := h.audit.List(r.Context(), restrictToQueued(q, queued))
	if err != nil {
		return err
	}
	for i := range p.Items {
		if rec := &p.Items[i]; rec.Status == dray.StatusRunning && slices.Contains(queued, rec.ID) {
			rec.Status = dray.StatusQueued
		}
	}
	return reply(w, page(p))
}

// restrictToQueued replaces the status queued, which the audit log does not know: it has queued
// calls as running.
func restrictToQueued(q audit.Query, queued []string) audit.Query {
	switch q.Status {
	case dray.StatusQueued:
		q.Status, q.Only = dray.StatusRunning, append([]string{}, queued...)
	case dray.StatusRunning:
		q.Except = queued
	}
	return q
}

// parseListQuery checks the filters. An invalid value is refused, because an empty page would hide
// the typing error.
func parseListQuery(values url.Values) (audit.Query, error) {
	var v validate.Violations
	q := audit.Query{
		Status: validate.OneOf(&v, "status", dray.Status(values.Get("status")),
			dray.StatusQueued, dray.StatusRunning, dray.StatusSucceeded, dray.StatusFailed),
		Reason: validate.OneOf(&v, "reason", dray.Reason(values.Get("reason")), allReasons...),
		Environment: validate.OneOf(&v, "environment", dray.EnvironmentKind(values.Get("environment")),
			dray.KindHost, dray.KindContainer),
		Container: validate.ContainerName(&v, "container", values.Get("container")),
		PlanID:    values.Get("plan_id"),
		SessionID: values.Get("session_id"),
		Principal: values.Get("principal"),
		Since:     parseTimeParam(&v, "since", values.Get("since")),
		Until:     parseTimeParam(&v, "until", values.Get("until")),
		Text:      values.Get("q"),
		Limit:     parseLimit(&v, values.Get("limit")),
		Cursor:    values.Get("cursor"),
	}
	if t := values.Get("tool"); t != "" {
		q.Tool = validate.ToolName(&v, "tool", t)
	}
	q.LabelName, q.LabelValue = parseLabel(&v, values.Get("label"))
	validate.Text(&v, "plan_id", q.PlanID, maxIDParam)
	validate.Text(&v, "session_id", q.SessionID, maxIDParam)
	validate.Text(&v, "q", q.Text, maxTextParam)
	validate.Text(&v, "cursor", q.Cursor, maxTextParam)
	return q, v.ParamErr()
}

// parseLabel returns the parts of a label K:V. The name ends at the first colon.
func parseLabel(v *validate.Violations, text string) (name, value string) {
	if text == "" {
		return "", ""
	}
	validate.Text(v, "label", text, maxLabelParam)
	name, value, ok := strings.Cut(text, ":")
	if !ok || name == "" {
		v.Add("label", "%q is not a name and a value, such as team:ci", validate.Quote(text))
	}
	return name, value
}

func parseTimeParam(v *validate.Violations, name, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		v.Add(name, "invalid time %q: use RFC 3339, such as 2006-01-02T15:04:05Z, with a plus sign "+
			"as %%2B",
			validate.Quote(text))
	}
	return t
}

func parseLimit(v *validate.Violations, text string) int {
	if text == "" {
		return defaultLimit
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		v.Add("limit", "%q is not a number from 1 to %d", validate.Quote(text), maxLimit)
	}
	return n
}

// changes responds with a page of the files that dray changed in calls that the caller may see.
func (h *lists) changes(w http.ResponseWriter, r *http.Request) error {
	q, err := parseChangeQuery(r.URL.Query())
	if err != nil {
		return err
	}
	q.Principal = h.access.Viewer(principal(r))
	p, err := h.audit.Changes(r.Context(), q)
	if err != nil {
		return err
	}
	return reply(w, p)
}

// parseChangeQuery checks the filters, as parseListQuery does.
func parseChangeQuery(values url.Values) (audit.ChangeQuery, error) {
	var v validate.Violations
	q := audit.ChangeQuery{
		PlanID: values.Get("plan_id"), Invocation: values.Get("invocation"), Path: values.Get("path"),
		Limit: parseLimit(&v, values.Get("limit")), Cursor: values.Get("cursor"),
	}
	validate.Text(&v, "plan_id", q.PlanID, maxIDParam)
	validate.Text(&v, "cursor", q.Cursor, maxTextParam)
	if q.Invocation != "" && !isID(q.Invocation) {
		v.Add("invocation", "%q is not the id of an invocation", validate.Quote(q.Invocation))
	}
	if q.Path != "" {
		validate.AbsolutePath(&v, "path", q.Path) // compared unchanged with the recorded paths
	}
	return q, v.ParamErr()
}

// info serves what callers need to know about the daemon: its tools, its state and its interface.
type info struct{ server *Server }

// toolReply is a tool as callers see it.
type toolReply struct {
	Name         string           `json:"name"`
	State        tool.State       `json:"state" enum:"active,disabled" doc:"Calls of a disabled tool are denied."`
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

func newToolReply(t *dray.Tool, state tool.State) toolReply {
	capabilities, _ := json.Marshal(t.Capabilities) // words and texts always have a JSON form
	return toolReply{
		Name: t.Name, State: state, Description: t.Description, InputSchema: t.InputSchema,
		OutputSchema: t.OutputSchema, Environment: t.Environment, Mapping: t.Mapping,
		Results: t.Results, RewriteText: t.RewriteText, Timeout: t.Timeout.Seconds(),
		Stdin: t.AcceptsStdin, Capabilities: capabilities, InWorkspace: t.InWorkspace,
		Idempotent: t.Idempotent,
	}
}

// tools responds with all tools.
func (h *info) tools(w http.ResponseWriter, _ *http.Request) error {
	tools := h.server.current.Load().Tools
	all := listReply[toolReply]{}
	for _, t := range tools.List() {
		all.Items = append(all.Items, newToolReply(t, tools.State(t.Name)))
	}
	return reply(w, all)
}

// tool responds with one tool.
func (h *info) tool(w http.ResponseWriter, r *http.Request) error {
	t, err := h.findTool(r)
	if err != nil {
		return err
	}
	return reply(w, newToolReply(t, h.server.current.Load().Tools.State(t.Name)))
}

func (h *info) findTool(r *http.Request) (*dray.Tool, error) {
	var v validate.Violations
	name := validate.ToolName(&v, "name", r.PathValue("name"))
	if err := v.ParamErr(); err != nil {
		return nil, err
	}
	return h.server.current.Load().Tools.Find(name)
}

// setToolState returns the handler that enables or disables a tool.
func (h *info) setToolState(state tool.State) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		caller := principal(r)
		if err := h.server.cfg.Access.CheckOperator(caller, "change the state of a tool"); err != nil {
			return err
		}
		t, err := h.findTool(r)
		if err == nil {
			err = h.server.current.Load().Tools.SetState(r.Context(), caller, t.Name, state)
		}
		if err != nil {
			return err
		}
		return reply(w, newToolReply(t, state))
	}
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
