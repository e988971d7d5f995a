package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dray-dev/dray"
)

// Body is the body of an event that is not the begin or end record of a call. Its JSON is stored.
type Body interface {
	// Kind returns the kind of the event.
	Kind() string
	// Summary returns the event in one line, without its principal.
	Summary() string
}

// aboutCall is a body of an event that belongs to a call.
type aboutCall interface{ call() string }

// Kind is the documentation of a kind of events.
type Kind struct {
	Name string
	// When says when such an event is recorded.
	When string
	// Body returns an empty body, for [json.Unmarshal] and for the names of its fields.
	Body func() Body
}

// newKind returns the documentation of the kind of a body.
func newKind(when string, body func() Body) Kind { return Kind{body().Kind(), when, body} }

// Kinds returns all kinds of events, in the order of their documentation.
func Kinds() []Kind {
	return []Kind{
		newKind("A call was accepted, before anything runs. The body has the members of the "+
			"call as well, as `GET /v1/invocations/{id}` shows them. `route` has the routing decision "+
			"with all candidates; no other event repeats it.", func() Body { return new(beginBody) }),
		newKind("A call has ended, before its result is returned. `metadata` has what became "+
			"of it: `sync` and `changes` (files that dray changed, with SHA-256 before and after), "+
			"`retries`, and `kill` with survivors and leftover processes.",
			func() Body { return new(endBody) }),
		newKind("The daemon started and found a call without an end record. The body is "+
			"that of `ended`, without a duration.", func() Body { return &endBody{kind: interrupted} }),
		newKind("The daemon has started and loaded its configuration, before it accepts connections.",
			func() Body { return new(DaemonStarted) }),
		newKind("The daemon is about to exit. A daemon that was killed has none.",
			func() Body { return new(DaemonStopped) }),
		newKind("A changed configuration was loaded, before it is applied.",
			func() Body { return new(ConfigReloaded) }),
		newKind("A tool was enabled or disabled, before that is applied.",
			func() Body { return new(ToolChanged) }),
		newKind("The container of a workspace changed its state, by dray or by another program.",
			func() Body { return new(ContainerChanged) }),
		newKind("Somebody asked to bring up, stop, rebuild or remove a workspace, before it is "+
			"done; and again with `error` if that failed. A call that needs a container brings it up "+
			"without this event: see `container`.", func() Body { return new(WorkspaceAction) }),
		newKind("Somebody gave or revoked trust in a workspace, before it is stored; and again with "+
			"`error` if it was refused.", func() Body { return new(TrustChanged) }),
		newKind("Somebody gave a container a name or removed one, before it is stored; and "+
			"again with `error` if that failed.", func() Body { return new(NameChanged) }),
		newKind("A call asked for an approval, and each step of it after that: a decision, its use by "+
			"one call, its expiry. It is recorded before the step takes effect.",
			func() Body { return new(ApprovalChanged) }),
		newKind("The circuit breaker of a container opened or closed. That it is half open follows "+
			"from the time.", func() Body { return new(BreakerChanged) }),
		newKind("Root or the daemon's user changed the call of another principal, before it takes "+
			"effect. The event belongs to that call.", func() Body { return new(OperatorAct) }),
		newKind("Requests were refused before they became calls: responses with a status from "+
			"400 to 499, and 503. One event counts those of a principal and a code in a minute; it is "+
			"recorded at the end of the minute, or when the daemon stops. A crash loses the counts of "+
			"the last minute.", func() Body { return new(RequestsRejected) }),
		newKind("A sync or the code of a call is about to change files of the host, before the first of "+
			"them is changed. If the daemon is killed then, the next start finds here which were.",
			func() Body { return new(SyncPlanned) }),
		newKind("The log can be written again after calls ran without committed records, with "+
			"`audit.on_failure: degrade`. Their records are before this event, with the time at which "+
			"they were committed as `at`; each has a warning in `metadata.warnings` of `ended`.",
			func() Body { return new(RecordsDelayed) }),
		newKind("The disk of the state directory became nearly full, or has space again.",
			func() Body { return new(DiskChanged) }),
		newKind("The daemon started and found interrupted syncs in the sandbox root.",
			func() Body { return new(SyncsRecovered) }),
		newKind("Retention removed the bodies of events and the rows of their calls, in the same "+
			"transaction.", func() Body { return new(Pruning) }),
	}
}

// DecodeBody returns the body of an event of a known kind.
func DecodeBody(kind string, text json.RawMessage) (Body, error) {
	for _, k := range Kinds() {
		if k.Name == kind {
			body := k.Body()
			return body, json.Unmarshal(text, body)
		}
	}
	return nil, fmt.Errorf("unknown kind of event %q", kind)
}

// Kind implements [Body].
func (*beginBody) Kind() string { return string(begun) }

// Summary implements [Body].
func (b *beginBody) Summary() string {
	where := cmp.Or(b.Route.Container, b.Route.Workspace, string(b.Route.Environment))
	return b.Tool + " in " + cmp.Or(where, "no environment")
}

// Kind implements [Body].
func (b *endBody) Kind() string { return string(cmp.Or(b.kind, ended)) }

// Summary implements [Body].
func (b *endBody) Summary() string {
	text := string(b.Status) + ", " + string(b.Reason)
	if b.ExitCode != nil {
		text += fmt.Sprintf(" %d", *b.ExitCode)
	}
	if e := b.Error; e != nil && e.Code != "" && string(e.Code) != string(b.Reason) &&
		b.Reason != dray.ReasonInterrupted {
		text += ", " + string(e.Code)
	}
	if n := len(b.Metadata.Retries); n > 0 {
		text += fmt.Sprintf(", %d retries", n)
	}
	if k := b.Metadata.Kill; k != nil && k.Leftover > 0 {
		text += fmt.Sprintf(", %d processes left over", k.Leftover)
	}
	if n := len(b.Metadata.Changes) + b.Metadata.ChangesOmitted; n > 0 {
		text += fmt.Sprintf(", %d files changed", n)
	}
	return text
}

// DaemonStarted is the body of the kind start.
type DaemonStarted struct {
	Principal    string `json:"principal" doc:"the user of the daemon"`
	Version      string `json:"version" doc:"of dray"`
	PID          int    `json:"pid" doc:"process of the daemon"`
	ConfigFile   string `json:"config_file" doc:"the configuration file, empty if there is none"`
	ConfigDigest string `json:"config_digest" doc:"digest of all values, as in the header Dray-Config"`
	Interrupted  int    `json:"interrupted" doc:"calls of an earlier daemon that were marked as interrupted"`
}

// Kind implements [Body].
func (*DaemonStarted) Kind() string { return "start" }

// Summary implements [Body].
func (b *DaemonStarted) Summary() string {
	text := fmt.Sprintf("dray %s, pid %d, configuration %s from %s", b.Version, b.PID,
		b.ConfigDigest, cmp.Or(b.ConfigFile, "no file"))
	if b.Interrupted > 0 {
		text += fmt.Sprintf(", %d calls interrupted", b.Interrupted)
	}
	return text
}

// DaemonStopped is the body of the kind stop.
type DaemonStopped struct {
	PID   int    `json:"pid" doc:"process of the daemon"`
	Error string `json:"error,omitempty" doc:"what did not end in time"`
}

// Kind implements [Body].
func (*DaemonStopped) Kind() string { return "stop" }

// Summary implements [Body].
func (b *DaemonStopped) Summary() string {
	return withError(fmt.Sprintf("pid %d", b.PID), b.Error)
}

// ConfigReloaded is the body of the kind reload (CF-04).
type ConfigReloaded struct {
	Principal string   `json:"principal" doc:"who asked for it; the daemon's user for SIGHUP"`
	File      string   `json:"config_file" doc:"the configuration file, empty if there is none"`
	Changed   []string `json:"changed" doc:"the keys that have changed"`
	Before    string   `json:"digest_before" doc:"digest of the previous configuration"`
	After     string   `json:"digest_after" doc:"digest of the new configuration"`
}

// Kind implements [Body].
func (*ConfigReloaded) Kind() string { return "reload" }

// Summary implements [Body].
func (b *ConfigReloaded) Summary() string {
	return fmt.Sprintf("%s: %s", b.After, strings.Join(b.Changed, ", "))
}

// ToolChanged is the body of the kind tool (RT-06).
type ToolChanged struct {
	Principal string `json:"principal" doc:"who changed it"`
	Tool      string `json:"tool" doc:"name of the tool, and NAME@WORKSPACE for the tool of a workspace"`
	State     string `json:"state" doc:"the new state: active or disabled"`
}

// Kind implements [Body].
func (*ToolChanged) Kind() string { return "tool" }

// Summary implements [Body].
func (b *ToolChanged) Summary() string { return b.Tool + " is " + b.State }

// ContainerChanged is the body of the kind container (RT-07).
type ContainerChanged struct {
	Workspace string `json:"workspace" doc:"directory of the workspace on the host"`
	Config    string `json:"config" doc:"its devcontainer.json"`
	Container string `json:"container,omitempty" doc:"full id of the container, if there is one"`
	From      string `json:"from,omitempty" doc:"the previous state, if it is known"`
	To        string `json:"to" doc:"discovered, building, running, stopping, stopped or failed"`
	Error     string `json:"error,omitempty" doc:"why the last up failed"`
}

// Kind implements [Body].
func (*ContainerChanged) Kind() string { return "container" }

// Summary implements [Body].
func (b *ContainerChanged) Summary() string {
	return withError(b.Workspace+" is "+b.To, b.Error)
}

// WorkspaceAction is the body of the kind workspace.
type WorkspaceAction struct {
	Principal string `json:"principal" doc:"who asked for it"`
	Workspace string `json:"workspace" doc:"id or directory of the workspace, as in the request"`
	Action    string `json:"action" doc:"up, stop, rebuild or rm"`
	Error     string `json:"error,omitempty" doc:"why it failed, with its code"`
}

// Kind implements [Body].
func (*WorkspaceAction) Kind() string { return "workspace" }

// Summary implements [Body].
func (b *WorkspaceAction) Summary() string { return withError(b.Action+" "+b.Workspace, b.Error) }

// TrustChanged is the body of the kind trust (RT-16).
type TrustChanged struct {
	Principal string `json:"principal" doc:"who decided"`
	Workspace string `json:"workspace" doc:"id or directory of the workspace, as in the request"`
	Action    string `json:"action" doc:"give or revoke"`
	Hash      string `json:"hash,omitempty" doc:"what is trusted"`
	Error     string `json:"error,omitempty" doc:"why it was refused, with its code"`
}

// Kind implements [Body].
func (*TrustChanged) Kind() string { return "trust" }

// Summary implements [Body].
func (b *TrustChanged) Summary() string {
	text := b.Action + " trust in " + b.Workspace
	if b.Hash != "" {
		text += " with hash " + b.Hash
	}
	return withError(text, b.Error)
}

// NameChanged is the body of the kind registration (RT-12).
type NameChanged struct {
	Principal string `json:"principal" doc:"who asked for it"`
	Name      string `json:"name" doc:"the name that calls use"`
	Action    string `json:"action" doc:"add or remove"`
	ID        string `json:"id,omitempty" doc:"id or name of the container at its engine"`
	Label     string `json:"label,omitempty" doc:"label of the container"`
	Error     string `json:"error,omitempty" doc:"why it failed, with its code"`
}

// Kind implements [Body].
func (*NameChanged) Kind() string { return "registration" }

// Summary implements [Body].
func (b *NameChanged) Summary() string {
	text := b.Action + " " + b.Name
	if target := cmp.Or(b.ID, b.Label); target != "" {
		text += " for " + target
	}
	return withError(text, b.Error)
}

// BreakerChanged is the body of the kind breaker (RE-03).
type BreakerChanged struct {
	Container string `json:"container" doc:"name of the container, or its workspace"`
	State     string `json:"state" doc:"open or closed"`
	Failures  int    `json:"failures,omitempty" doc:"calls in a row that failed"`
	Error     string `json:"error,omitempty" doc:"message of the last failure"`
}

// Kind implements [Body].
func (*BreakerChanged) Kind() string { return "breaker" }

// Summary implements [Body].
func (b *BreakerChanged) Summary() string {
	return withError(b.Container+" is "+b.State, b.Error)
}

// OperatorAct is the body of the kind operator (SE-06).
type OperatorAct struct {
	Principal  string `json:"principal" doc:"who did it"`
	Owner      string `json:"owner" doc:"whose call it is"`
	Action     string `json:"action" doc:"cancel, signal, stdin or resize"`
	Invocation string `json:"-"`
}

// Kind implements [Body].
func (*OperatorAct) Kind() string { return "operator" }

// Summary implements [Body].
func (b *OperatorAct) Summary() string { return b.Action + " a call of " + b.Owner }

func (b *OperatorAct) call() string { return b.Invocation }

// SyncPlanned is the body of the kind sync (AU-11).
type SyncPlanned struct {
	Changes        []dray.FileChange `json:"changes" doc:"the files, with SHA-256 before and after"`
	ChangesOmitted int               `json:"changes_omitted,omitzero" doc:"number of files that are not listed"`
	ListsFile      *blobRef          `json:"lists_file,omitempty" doc:"the file in captures/ with the complete list; retention may remove it when the call has ended"`
	Invocation     string            `json:"-"`
}

// Kind implements [Body].
func (*SyncPlanned) Kind() string { return string(syncing) }

// Summary implements [Body].
func (b *SyncPlanned) Summary() string {
	return fmt.Sprintf("%d files to change", len(b.Changes)+b.ChangesOmitted)
}

func (b *SyncPlanned) call() string { return b.Invocation }

// SyncsRecovered is the body of the kind recovery (SY-06).
type SyncsRecovered struct {
	Completed int    `json:"completed" doc:"syncs and commits of Python runs that were completed"`
	Error     string `json:"error,omitempty" doc:"why others were not"`
}

// Kind implements [Body].
func (*SyncsRecovered) Kind() string { return "recovery" }

// Summary implements [Body].
func (b *SyncsRecovered) Summary() string {
	return withError(fmt.Sprintf("%d interrupted syncs completed", b.Completed), b.Error)
}

func withError(text, err string) string {
	if err == "" {
		return text
	}
	return text + ": " + err
}
