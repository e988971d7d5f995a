package api

import (
	"context"
	"net/http"
	"net/url"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/validate"
)

// lists serves the pages of the audit log.
type lists struct {
	calls  *call.Registry
	audit  AuditReader
	access call.Access
	log    *zap.Logger
	// following bounds responses that have no end of their own.
	following context.Context //nolint:containedctx // of the server, not of a request
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

// list responds with a page of the calls that the caller may see.
func (h *lists) list(w http.ResponseWriter, r *http.Request) error {
	q, err := h.query(r)
	if err != nil {
		return err
	}
	p, err := h.audit.List(r.Context(), q.Query)
	if err != nil {
		return err
	}
	for i := range p.Items {
		q.markQueued(&p.Items[i])
	}
	return reply(w, page(p))
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

// parseChangeQuery checks the filters, as parseFilters does.
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
type info struct {
	server *Server
	bodies *bodyReader
}

// stateReply is the body of /healthz and /readyz.
type stateReply struct {
	Status string `json:"status"`
	// Problems are why Status is degraded.
	Problems []*dray.Error `json:"problems,omitempty" doc:"What is wrong: calls are refused, or soon will be."`
}

// health responds as long as the process runs. It says why calls are refused, or soon will be.
func (h *info) health(w http.ResponseWriter, r *http.Request) error {
	problems := h.server.cfg.Warnings(r.Context())
	if err := h.server.cfg.Ready(r.Context()); err != nil {
		problems = append(problems, dray.AsError(err))
	}
	if len(problems) > 0 {
		return reply(w, stateReply{Status: "degraded", Problems: problems})
	}
	return reply(w, stateReply{Status: "ok"})
}

// ready reports whether the daemon accepts calls.
func (h *info) ready(w http.ResponseWriter, r *http.Request) error {
	if h.server.cfg.Calls.Draining() {
		return dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
			WithHint("wait until it runs again")
	}
	if err := h.server.cfg.Ready(r.Context()); err != nil {
		return &httpError{err: err, status: http.StatusServiceUnavailable}
	}
	return reply(w, stateReply{Status: "ready"})
}

// document responds with the OpenAPI document.
func (h *info) document(w http.ResponseWriter, _ *http.Request) error {
	respond(w, http.StatusOK, mediaJSON, h.server.openapi)
	return nil
}
