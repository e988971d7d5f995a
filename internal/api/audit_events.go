package api

import (
	"net/http"
	"net/url"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/validate"
)

// eventKinds returns the names of all kinds of events.
func eventKinds() []string {
	var names []string
	for _, k := range audit.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// events responds with a page of the events that the caller may see, newest first.
func (h *lists) events(w http.ResponseWriter, r *http.Request) error {
	q, err := parseEventQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if viewer := h.access.Viewer(principal(r)); viewer != "" {
		if q.Principal != "" && q.Principal != viewer {
			return reply(w, audit.EventPage{}) // events of other principals are not listed
		}
		q.Principal = viewer
	}
	p, err := h.audit.Events(r.Context(), q)
	if err != nil {
		return err
	}
	return reply(w, p)
}

// parseEventQuery checks the filters, as parseListQuery does.
func parseEventQuery(values url.Values) (audit.EventQuery, error) {
	var v validate.Violations
	q := audit.EventQuery{
		Kind:       validate.OneOf(&v, "kind", values.Get("kind"), eventKinds()...),
		Invocation: values.Get("invocation"),
		Principal:  values.Get("principal"),
		Since:      parseTimeParam(&v, "since", values.Get("since")),
		Until:      parseTimeParam(&v, "until", values.Get("until")),
		Limit:      parseLimit(&v, values.Get("limit")), Cursor: values.Get("cursor"),
	}
	if q.Invocation != "" && !isID(q.Invocation) {
		v.Add("invocation", "%q is not the id of an invocation", validate.Quote(q.Invocation))
	}
	validate.Text(&v, "cursor", q.Cursor, maxTextParam)
	return q, v.ParamErr()
}
