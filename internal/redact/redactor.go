package redact

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
)

// Redactor replaces the secrets of one call. It is safe for concurrent use. Nil changes nothing.
type Redactor struct {
	key     markKey
	finders []finder
	// fields are the JSON pointers of the input's values that are secrets as a whole.
	fields map[string]bool
}

var markPattern = regexp.MustCompile(`\[redacted:[0-9a-f]{16}\]`)

// Text returns a text with its secrets replaced. Marks that it contains stay as they are.
func (r *Redactor) Text(s string) string {
	if r == nil || len(r.finders) == 0 || s == "" {
		return s
	}
	if !strings.Contains(s, markPrefix) {
		return r.unmarked(s)
	}
	var b strings.Builder
	done := 0
	for _, at := range markPattern.FindAllStringIndex(s, -1) {
		b.WriteString(r.unmarked(s[done:at[0]]))
		b.WriteString(s[at[0]:at[1]])
		done = at[1]
	}
	b.WriteString(r.unmarked(s[done:]))
	return b.String()
}

func (r *Redactor) unmarked(s string) string {
	b := []byte(s)
	scanner := newScanner(r.finders)
	scanner.scan(text{bytes: b, before: '\n', final: true})
	if len(scanner.merged) == 0 {
		return s
	}
	var out []byte
	done := 0
	for _, secret := range scanner.merged {
		out = append(out, b[done:secret.start]...)
		out = append(out, r.key.mark(b[secret.start:secret.end])...)
		done = secret.end
	}
	return string(append(out, b[done:]...))
}

// Error returns an error with its texts redacted, nil for nil.
func (r *Redactor) Error(err error) error {
	if r == nil || err == nil {
		return err
	}
	return r.failure(dray.AsError(err))
}

func (r *Redactor) failure(e *dray.Error) *dray.Error {
	if e == nil {
		return nil
	}
	redacted := *e
	redacted.Message, redacted.Hint = r.Text(e.Message), r.Text(e.Hint)
	redacted.Details = slices.Clone(e.Details)
	for i, d := range redacted.Details {
		redacted.Details[i] = dray.Detail{Pointer: r.Text(d.Pointer), Message: r.Text(d.Message)}
	}
	return &redacted
}

// Invocation returns an invocation as it may be recorded: without the values of its variables, and
// with all secrets replaced. Its id, tool and principal stay.
func (r *Redactor) Invocation(inv dray.Invocation) dray.Invocation {
	if r == nil {
		return inv
	}
	inv.Input = r.input(inv.Input)
	inv.Workspace, inv.Cwd = r.Text(inv.Workspace), r.Text(inv.Cwd)
	inv.Container = r.Text(inv.Container)
	inv.Plan.Override, inv.Plan.Fallback = r.Text(inv.Plan.Override), r.Text(inv.Plan.Fallback)
	inv.Sync = r.texts(inv.Sync)
	c := &inv.Context
	c.PlanID, c.SessionID = r.Text(c.PlanID), r.Text(c.SessionID)
	c.SandboxID = r.Text(c.SandboxID)
	c.Labels = r.pairs(c.Labels, r.Text)
	inv.Env = r.pairs(inv.Env, func(string) string { return "" })
	inv.LocalEnv = nil
	return inv
}

// pairs returns a map with redacted keys and changed values.
func (r *Redactor) pairs(m map[string]string, change func(string) string) map[string]string {
	if m == nil {
		return nil
	}
	redacted := make(map[string]string, len(m))
	for key, value := range m {
		redacted[r.Text(key)] = change(value)
	}
	return redacted
}

func (r *Redactor) texts(all []string) []string {
	if all == nil {
		return nil
	}
	redacted := make([]string, len(all))
	for i, s := range all {
		redacted[i] = r.Text(s)
	}
	return redacted
}

// Route returns a route with its texts redacted.
func (r *Redactor) Route(route dray.Route) dray.Route {
	if r == nil {
		return route
	}
	route.Container, route.Workspace = r.Text(route.Container), r.Text(route.Workspace)
	candidates := make([]dray.Candidate, len(route.Candidates))
	for i, c := range route.Candidates {
		candidates[i] = dray.Candidate{
			Rule: c.Rule, Environment: r.Text(c.Environment), Reason: r.Text(c.Reason),
		}
	}
	route.Candidates = candidates
	return route
}

// Result returns a result with its texts redacted. Its streams were redacted when they were
// captured, except for what begins or ends at a cut of their text.
func (r *Redactor) Result(res dray.Result) dray.Result {
	if r == nil {
		return res
	}
	res.Output = r.JSON(res.Output)
	res.Error = r.failure(res.Error)
	res.Route = r.Route(res.Route)
	res.Metadata = r.metadata(res.Metadata)
	return res
}

// metadata returns metadata whose strings are redacted. Metadata that is no longer valid then, for
// instance because a pattern matches a time, is reduced to the report of the end of the processes.
func (r *Redactor) metadata(m dray.Metadata) dray.Metadata {
	b, err := json.Marshal(m)
	if err != nil {
		return m // it cannot be recorded, and the audit log says so
	}
	var redacted dray.Metadata
	if err := json.Unmarshal(r.walk(b, walkOptions{onlyStrings: true}), &redacted); err != nil {
		return dray.Metadata{Kill: m.Kill, Warnings: []string{
			"metadata is omitted: it could not be redacted",
		}}
	}
	return redacted
}
