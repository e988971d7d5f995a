package server

import (
	"net/http"
	"net/url"

	"github.com/dray-dev/dray/audit"
)

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

// changeQueryOf checks the filters. A value that nothing can have is refused, so that a mistyped one does not look like no change.
func changeQueryOf(v url.Values) (audit.ChangeQuery, error) {
	var m violations
	q := audit.ChangeQuery{
		PlanID: v.Get("plan_id"), Invocation: v.Get("invocation"), Path: v.Get("path"), Limit: limit(&m, v.Get("limit")), Cursor: v.Get("cursor"),
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
