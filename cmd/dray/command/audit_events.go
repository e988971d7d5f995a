package command

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditEvents(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List the events of the audit log, newest first",
		Long: `events lists what the audit log has in one order: the begin and end of each call, and
what happened beside calls, such as a start of the daemon, a reload, a decision about
trust, an action on a workspace or rejected requests. Root and the daemon's user see
all events, others those of their calls and of what they did.`,
		Example: "  dray audit events --since 1h\n  dray audit events --kind trust --json",
		Args:    noArgs,
	}
	return pagedList[client.AuditEvent]{
		flags: []filterFlag{
			{"kind", "kind", "only events of this `kind`: begun, ended, start, trust, ...", nil},
			{"call", "invocation", "only events of the call with this `id` or beginning", nil},
			{"principal", "principal", "only what this `principal` did, and its calls", nil},
			sinceFlag, untilFlag,
		},
		list:  client.AuditEvents,
		head:  []string{"TIME", "SEQ", "KIND", "WHO", "CALL", "WHAT"},
		spare: []string{"SEQ", "WHO"},
		row:   a.addEvent,
	}.complete(a, cmd)
}

func (a *app) addEvent(t *table, e client.AuditEvent) {
	var about struct{ Principal, Invocation string }
	_ = json.Unmarshal(e.Body, &about) // a body without one has none
	call := cmp.Or(e.Invocation, about.Invocation)
	t.add(a.timeCell(e.At), strconv.FormatInt(e.Seq, 10), e.Kind, cmp.Or(about.Principal, "-"),
		cmp.Or(a.idCell(call), "-"), eventSummary(e))
}

// eventSummary returns an event in one line, of a call that began with its command; the JSON of its
// body if another version of dray wrote it.
func eventSummary(e client.AuditEvent) string {
	if string(e.Body) == "null" {
		return "(no body)"
	}
	body, err := audit.DecodeBody(e.Kind, json.RawMessage(e.Body))
	if err != nil {
		return string(e.Body)
	}
	var begin struct{ Input json.RawMessage }
	if json.Unmarshal(e.Body, &begin) == nil && commandLine(begin.Input) != "-" {
		return body.Summary() + ": " + commandLine(begin.Input)
	}
	return body.Summary()
}
