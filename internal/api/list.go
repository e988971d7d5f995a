package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/validate"
)

const (
	defaultLimit = 50
	maxLimit     = 1000

	maxIDParam   = 256  // bytes of plan_id
	maxTextParam = 1024 // bytes of q and cursor
)

// lists serves the pages of the audit log.
type lists struct {
	calls *call.Registry
	audit AuditReader
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

// list responds with a page of the caller's own calls, newest first.
func (h *lists) list(w http.ResponseWriter, r *http.Request) error {
	q, err := parseListQuery(r.URL.Query())
	if err != nil {
		return err
	}
	caller := principal(r)
	if q.Principal != "" && q.Principal != caller {
		return reply(w, page{}) // calls of other principals are never listed
	}
	q.Principal = caller
	queued := h.calls.Queued(caller)
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

// restrictToQueued replaces the status queued, which the audit log does not know: it has queued calls
// as running.
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
		Reason: validate.OneOf(&v, "reason", dray.Reason(values.Get("reason")),
			dray.ReasonExited, dray.ReasonSignalled, dray.ReasonTimeout, dray.ReasonIdleTimeout,
			dray.ReasonCancelled, dray.ReasonStartFailed, dray.ReasonDenied, dray.ReasonInvalid,
			dray.ReasonUnavailable, dray.ReasonInterrupted, dray.ReasonOutputLimit, dray.ReasonOOM),
		Environment: validate.OneOf(&v, "environment", dray.EnvironmentKind(values.Get("environment")),
			dray.KindHost, dray.KindContainer),
		Container: validate.ContainerName(&v, "container", values.Get("container")),
		PlanID:    values.Get("plan_id"),
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
	validate.Text(&v, "plan_id", q.PlanID, maxIDParam)
	validate.Text(&v, "q", q.Text, maxTextParam)
	validate.Text(&v, "cursor", q.Cursor, maxTextParam)
	return q, v.ParamErr()
}

func parseTimeParam(v *validate.Violations, name, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		v.Add(name, "invalid time %q: use RFC 3339, such as 2006-01-02T15:04:05Z, with a plus sign as %%2B",
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

// changes responds with a page of the files that dray changed for the caller, newest first.
func (h *lists) changes(w http.ResponseWriter, r *http.Request) error {
	q, err := parseChangeQuery(r.URL.Query())
	if err != nil {
		return err
	}
	q.Principal = principal(r)
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
