package api

import (
	"context"
	"net/http"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/validate"
)

// statsTimeout bounds how long statistics may take.
const statsTimeout = 30 * time.Second

var statsKeys = []audit.StatsKey{
	audit.ByTool, audit.ByContainer, audit.ByWorkspace, audit.ByPrincipal, audit.ByReason,
}

// stats responds with statistics of the calls that the caller may see.
func (h *lists) stats(w http.ResponseWriter, r *http.Request) error {
	q, err := h.query(r)
	if err != nil {
		return err
	}
	var v validate.Violations
	by := validate.OneOf(&v, "by", audit.StatsKey(r.URL.Query().Get("by")), statsKeys...)
	if by == "" {
		v.Add("by", "the key of the groups is missing: use one of %v", statsKeys)
	}
	if err := v.ParamErr(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), statsTimeout)
	defer cancel()
	items, err := h.audit.Stats(ctx, by, q.Query)
	if err != nil {
		return err
	}
	return reply(w, listReply[dray.Stat]{items})
}
