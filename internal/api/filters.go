package api

import (
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/validate"
)

const (
	maxIDParam    = 256  // bytes of plan_id and session_id
	maxTextParam  = 1024 // bytes of q, argv, image and cursor
	maxPathParam  = 4096 // bytes of workspace
	maxLabelParam = 1281 // bytes of label: a name of 256, a colon and a value of 1024
)

// allReasons are the reasons that a list can be filtered by.
var allReasons = []dray.Reason{
	dray.ReasonExited, dray.ReasonSignalled, dray.ReasonTimeout, dray.ReasonIdleTimeout,
	dray.ReasonCancelled, dray.ReasonStartFailed, dray.ReasonDenied, dray.ReasonInvalid,
	dray.ReasonUnavailable, dray.ReasonInterrupted, dray.ReasonOutputLimit, dray.ReasonOOM,
}

// callQuery selects the calls that a request asks for and that its caller may see.
type callQuery struct {
	audit.Query
	// queued has the ids of calls that the audit log has as running, and the approvals that they
	// wait for.
	queued map[string]string
}

// query returns the query of a request. A caller that may not see the calls of all gets its own
// ones: of another principal there are none.
func (h *lists) query(r *http.Request) (callQuery, error) {
	q, err := parseFilters(r.URL.Query())
	if err != nil {
		return callQuery{}, err
	}
	viewer := h.access.Viewer(principal(r))
	if viewer != "" && q.Principal != "" && q.Principal != viewer {
		q.Only = []string{}
	}
	if viewer != "" {
		q.Principal = viewer
	}
	queued := h.calls.Queued(q.Principal)
	// The audit log does not know the status queued.
	switch q.Status {
	case dray.StatusQueued:
		q.Status = dray.StatusRunning
		if q.Only == nil {
			q.Only = slices.AppendSeq([]string{}, maps.Keys(queued))
		}
	case dray.StatusRunning:
		q.Except = slices.Collect(maps.Keys(queued))
	}
	return callQuery{q, queued}, nil
}

// markQueued sets the status of a call that the audit log has as running.
func (q callQuery) markQueued(rec *dray.Record) {
	if approval, ok := q.queued[rec.ID]; ok && rec.Status == dray.StatusRunning {
		rec.Status, rec.Approval = dray.StatusQueued, approval
	}
}

// filters adds the parameters that select calls.
func (o *operation) filters() *operation {
	return o.query("id", "The beginning of the id, at least 8 characters.").pattern(idPattern).
		query("tool", "A tool's name.").pattern(namePattern).
		query("status", "The status.", "queued", "running", "succeeded", "failed").
		query("reason", "Why the call ended.", enum(allReasons)...).
		query("environment", "Where it ran.", "host", "container").
		query("container", "A container's name or id.").pattern(namePattern).
		query("image", "The name of the container's image.").
		query("workspace", "The host directory that the call was routed to, else the one it named.").
		pattern("^/").
		query("plan_id", "The plan of the call's context.").
		query("session_id", "The session of the call's context.").
		query("label", "A label of the call's context, as NAME:VALUE.").
		query("principal", "Who started the call.").
		query("code", "The code of the error.", enum(dray.Codes())...).
		number("min_duration_ms", "At least this long. Running calls have no duration.", 0,
			math.MaxInt32).
		time("since", "Started at this time or later (RFC 3339).").
		time("until", "Started before this time (RFC 3339).").
		query("argv", "Text in the command line: in input.argv, joined by spaces, or input.command.").
		query("q", "Text in the tool's name, the input, the labels, the output or the error.")
}

// idPattern matches the beginning of an id. The calls of a minute have the same 8 characters; fewer
// would select too many calls.
const idPattern = "^[0-9a-f]{8}[0-9a-f-]{0,28}$"

var isIDPrefix = regexp.MustCompile(idPattern).MatchString

// parseFilters checks the filters. An invalid value is refused, because an empty page would hide
// the typing error.
func parseFilters(values url.Values) (audit.Query, error) {
	var v validate.Violations
	q := audit.Query{
		IDPrefix: values.Get("id"),
		Status: validate.OneOf(&v, "status", dray.Status(values.Get("status")),
			dray.StatusQueued, dray.StatusRunning, dray.StatusSucceeded, dray.StatusFailed),
		Reason: validate.OneOf(&v, "reason", dray.Reason(values.Get("reason")), allReasons...),
		Environment: validate.OneOf(&v, "environment", dray.EnvironmentKind(values.Get("environment")),
			dray.KindHost, dray.KindContainer),
		Container: validate.ContainerName(&v, "container", values.Get("container")),
		Image:     values.Get("image"),
		Workspace: values.Get("workspace"),
		PlanID:    values.Get("plan_id"),
		SessionID: values.Get("session_id"),
		Principal: values.Get("principal"),
		Since:     parseTimeParam(&v, "since", values.Get("since")),
		Until:     parseTimeParam(&v, "until", values.Get("until")),
		Code:      validate.OneOf(&v, "code", dray.Code(values.Get("code")), dray.Codes()...),
		Argv:      values.Get("argv"),
		Text:      values.Get("q"),
		Sort: validate.OneOf(&v, "sort", audit.Sort(values.Get("sort")), audit.SortStarted,
			audit.SortDuration),
		MinDuration: parseMillis(&v, "min_duration_ms", values.Get("min_duration_ms")),
		Limit:       parseLimit(&v, values.Get("limit")),
		Cursor:      values.Get("cursor"),
	}
	if t := values.Get("tool"); t != "" {
		q.Tool = validate.ToolName(&v, "tool", t)
	}
	q.LabelName, q.LabelValue = parseLabel(&v, values.Get("label"))
	validate.Text(&v, "plan_id", q.PlanID, maxIDParam)
	validate.Text(&v, "session_id", q.SessionID, maxIDParam)
	if q.IDPrefix != "" && !isIDPrefix(q.IDPrefix) {
		v.Add("id", "%q is not the beginning of an id: at least 8 lower-case hexadecimal digits",
			validate.Quote(q.IDPrefix))
	}
	validate.Text(&v, "image", q.Image, maxTextParam)
	validate.Text(&v, "argv", q.Argv, maxTextParam)
	validate.Text(&v, "q", q.Text, maxTextParam)
	if q.Workspace != "" {
		validate.AbsolutePath(&v, "workspace", q.Workspace)
	}
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
		return audit.DefaultLimit
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > audit.MaxLimit {
		v.Add("limit", "%q is not a number from 1 to %d", validate.Quote(text), audit.MaxLimit)
	}
	return n
}

func parseMillis(v *validate.Violations, name, text string) time.Duration {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		v.Add(name, "%q is not a number of milliseconds from 0 to %d", validate.Quote(text),
			math.MaxInt32)
	}
	return time.Duration(n) * time.Millisecond
}
