package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
)

// page is one page of the trail.
type page struct {
	Items      []dray.Record      `json:"items"`
	NextCursor string             `json:"next_cursor" doc:"What to give as cursor for the next page; empty on the last."`
	Unreadable []audit.Unreadable `json:"unreadable,omitempty" doc:"Rows that are damaged beyond use."`
}

// listReply is a list that has no pages.
type listReply[T any] struct {
	Items []T `json:"items"`
}

// filters are the parameters of the list of invocations.
var filters = []string{
	"tool", "status", "reason", "environment", "container", "plan_id", "principal", "since", "until", "q", "limit", "cursor",
}

// list answers with a page of the caller's own invocations, newest first.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, filters...)
	if err != nil {
		return err
	}
	q, err := parseListQuery(values)
	if err != nil {
		return err
	}
	who := principal(r)
	if q.Principal != "" && q.Principal != who {
		return reply(w, page{}) // another's are not shown
	}
	q.Principal = who
	queued := s.calls.Queued(who)
	p, err := s.cfg.Records.List(r.Context(), restrictToQueued(q, queued))
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

// restrictToQueued makes the question one that the trail can answer: to it, what was accepted and
// is not over is running. Who waits for their turn only this process knows.
func restrictToQueued(q audit.Query, queued []string) audit.Query {
	switch q.Status {
	case dray.StatusQueued:
		q.Status, q.Only = dray.StatusRunning, append([]string{}, queued...)
	case dray.StatusRunning:
		q.Except = queued
	}
	return q
}

// parseListQuery checks the filters. A value that nothing can have is refused, so that a mistyped
// one does not look like an empty trail.
func parseListQuery(v url.Values) (audit.Query, error) {
	var m violations
	q := audit.Query{
		Status: oneOf(&m, "status", dray.Status(v.Get("status")),
			dray.StatusQueued, dray.StatusRunning, dray.StatusSucceeded, dray.StatusFailed),
		Reason: oneOf(&m, "reason", dray.Reason(v.Get("reason")),
			dray.ReasonExited, dray.ReasonSignalled, dray.ReasonTimeout, dray.ReasonIdleTimeout, dray.ReasonCancelled, dray.ReasonStartFailed,
			dray.ReasonDenied, dray.ReasonInvalid, dray.ReasonUnavailable, dray.ReasonInterrupted, "output_limit", "oom"),
		Environment: oneOf(&m, "environment", dray.EnvironmentKind(v.Get("environment")), dray.KindHost,
			dray.KindContainer),
		Container: containerName(&m, "container", v.Get("container")),
		PlanID:    v.Get("plan_id"),
		Principal: v.Get("principal"),
		Since:     parseTimeParam(&m, "since", v.Get("since")),
		Until:     parseTimeParam(&m, "until", v.Get("until")),
		Text:      v.Get("q"),
		Limit:     limit(&m, v.Get("limit")),
		Cursor:    v.Get("cursor"),
	}
	if t := v.Get("tool"); t != "" {
		q.Tool = toolName(&m, "tool", t)
	}
	checkLength(&m, "plan_id", q.PlanID, maxID)
	checkLength(&m, "q", q.Text, maxLabel)
	checkLength(&m, "cursor", q.Cursor, maxLabel)
	return q, m.queryErr()
}

func parseTimeParam(m *violations, pointer, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		m.add(pointer,
			"%q is no time of the form 2006-01-02T15:04:05Z (RFC 3339; a plus sign is written %%2B)", truncate(text))
	}
	return t
}

func limit(m *violations, text string) int {
	if text == "" {
		return defaultLimit
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		m.add("limit", "%q is no number from 1 to %d", truncate(text), maxLimit)
	}
	return n
}

// isID says whether a text has the form of an invocation's id, so that nothing else reaches the
// trail's files or queries.
func isID(id string) bool {
	u, err := uuid.Parse(id)
	return err == nil && u.String() == id
}

// changeFilters are the parameters of the list of changed files.
var changeFilters = []string{"plan_id", "invocation", "path", "limit", "cursor"}

// changes answers with a page of the files that dray changed for the caller, newest first.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, changeFilters...)
	if err != nil {
		return err
	}
	q, err := changeQueryOf(values)
	if err != nil {
		return err
	}
	q.Principal = principal(r)
	p, err := s.cfg.Records.Changes(r.Context(), q)
	if err != nil {
		return err
	}
	return reply(w, p)
}

// changeQueryOf checks the filters. A value that nothing can have is refused, so that a mistyped
// one does not look like no change.
func changeQueryOf(v url.Values) (audit.ChangeQuery, error) {
	var m violations
	q := audit.ChangeQuery{
		PlanID: v.Get("plan_id"), Invocation: v.Get("invocation"), Path: v.Get("path"), Limit: limit(&m,
			v.Get("limit")), Cursor: v.Get("cursor"),
	}
	checkLength(&m, "plan_id", q.PlanID, maxID)
	checkLength(&m, "cursor", q.Cursor, maxLabel)
	if q.Invocation != "" && !isID(q.Invocation) {
		m.add("invocation", "%q is no invocation's id", truncate(q.Invocation))
	}
	if q.Path != "" {
		absolutePath(&m, "path", q.Path) // it is compared as it stands in the trail
	}
	return q, m.queryErr()
}
