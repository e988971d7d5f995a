package api

import (
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/workspace"
)

// handler serves a request. The caller writes the response of an error.
type handler func(w http.ResponseWriter, r *http.Request) error

const (
	orStream = " With Accept: text/event-stream or application/x-ndjson the response is "
	waitDoc  = "Respond with 202 if the call still runs after this number of milliseconds. " +
		"Default: wait for its end."
)

// operations returns all endpoints with their documentation.
func (s *Server) operations(schemas huma.Registry) []*operation {
	op := func(route, id string, h handler, summary string) *operation {
		return newOperation(schemas, route, id, h, summary)
	}
	proofs := &proofs{prover: s.cfg.Prover, access: s.cfg.Access}
	approvals := &approvals{gate: s.cfg.Approvals, access: s.cfg.Access, bodies: s.bodies}
	return slices.Concat(s.callOperations(op), proofs.operations(op), approvals.operations(op),
		s.otherOperations(op))
}

type newOperationFunc func(route, id string, h handler, summary string) *operation

// callOperations returns the endpoints of calls.
func (s *Server) callOperations(op newOperationFunc) []*operation {
	find := finder{
		calls: s.cfg.Calls, audit: s.cfg.Audit, access: s.cfg.Access, record: s.cfg.Record,
	}
	calls := &invocations{finder: find, configured: &s.current, bodies: s.bodies}
	control := &control{finder: find, bodies: s.bodies}
	output := &outputs{finder: find, captures: s.cfg.Captures, fail: s.fail}
	lists := &lists{
		calls: s.cfg.Calls, audit: s.cfg.Audit, access: s.cfg.Access, log: s.cfg.Log,
		following: s.following,
	}
	onCall := func(method, path, id string, h handler, summary string) *operation {
		return op(method+" /v1/invocations/{id}"+path, id, h, summary).
			path("id", "The invocation's id.")
	}
	return []*operation{
		op("POST /v1/invocations", "start-invocation", calls.start,
			"Start a call."+orStream+"its events, from the first to the end event.").
			wait(waitDoc).shaped().accepts(call.Request{}).
			param("header", "Idempotency-Key", "Requests of a principal with the same key and body are "+
				"one call. A repeat gets its outcome, or joins it while it runs.", huma.TypeString).
			pattern("^[!-~]{1,255}$").
			returns(200, "The invocation, however it ended; or its events.", dray.Record{}).streams().
			header(200, replayedHeader, "true in the response to a repeat.").
			returns(202, "The invocation, which still runs.", dray.Record{}).
			header(202, replayedHeader, "true in the response to a repeat.").
			fails(422, "The key belongs to another body (idempotency_mismatch), or routing rules "+
				"contradict each other.").
			header(202, "Location", "The path of the invocation."),
		onCall("GET", "", "get-invocation", calls.get, "Get an invocation, running or ended.").
			wait("Wait this number of milliseconds for the end. Default: respond at once.").shaped().
			returns(200, "The invocation.", dray.Record{}),
		onCall("POST", "/cancel", "cancel-invocation", calls.cancel,
			"Cancel a call. A call that has ended does not change.").
			wait(waitDoc).shaped().
			returns(200, "The invocation, which has ended.", dray.Record{}).
			returns(202, "The invocation, which is ending.", dray.Record{}),
		op("POST /v1/sessions/cancel", "cancel-session", calls.cancelSession,
			"Cancel your own calls of a session that run or are queued, and wait for their end.").
			param("query", "session_id", "The session: context.session_id, or session of the input of "+
				"exec, shell and python.", huma.TypeString).required().
			returns(200, "The calls, which have ended.", cancelledReply{}),
		onCall("GET", "/events", "follow-invocation", calls.events,
			"Get the events of a call after a sequence number: "+eventlog.State+", "+eventlog.Progress+
				", "+eventlog.Stdout+", "+eventlog.Stderr+", "+eventlog.End+
				". Each has at, its time (RFC 3339). Some minutes after the end only the end event is left.").
			number("after", "The last sequence number that the client has.", 0, maxExact).
			wait("Respond with the events that there are, or wait this number of milliseconds for the "+
				"first one. Default: all events to the end of the call.").
			param("header", "Last-Event-ID", "As after; it takes precedence.", huma.TypeString).
			pattern("^[0-9]{1,15}$").
			returns(200, "The events.", nil).streams().
			returns(204, "There are no events after that one.", nil),
		onCall("GET", "/output/{stream}", "read-output", output.read,
			"Get the captured bytes of a stream, or a range of them.").
			path("stream", "stdout or stderr.", "stdout", "stderr").
			query("rewritten", "true: the stream with rewritten paths; auto: that stream if a path was "+
				"rewritten, else the raw one; false (default): the raw stream.",
				"true", "auto", "false").
			param("header", "Range", "Bytes, as in RFC 9110.", huma.TypeString).
			returns(200, "The bytes.", []byte{}).
			returns(206, "A range of them, or several.", []byte{}).also(206, "multipart/byteranges"),
		onCall("POST", "/stdin", "write-stdin", control.writeStdin,
			"Write to the stdin of a call that was started with stdin_open. A body of up to 256 KiB is "+
				"written completely or not at all. A larger one requires an offset and is written in "+
				"chunks. The status 429 means that the tool does not read.").
			number("offset", "The number of bytes of stdin before these. Bytes that were written before "+
				"are skipped. Default: the end.", 0, maxExact).
			number("eof", "1 closes stdin after these bytes.", 0, 1).accepts([]byte{}).
			returns(200, "The number of bytes written so far.", stdinReply{}),
		onCall("POST", "/resize", "resize-terminal", control.resize,
			"Change the size of the terminal of a call that was started with tty. The request waits "+
				"until the process has started.").
			accepts(call.TerminalSize{}).returns(200, "The new size.", call.TerminalSize{}),
		onCall("POST", "/signal", "signal-invocation", control.signal,
			"Send a signal to the process that the call started, and to no other. The request waits "+
				"until the process has started.").
			accepts(signalRequest{}).returns(200, "The signal that was sent.", signalReply{}),
		op("POST /v1/route", "explain-route", calls.explain,
			"Get the environment in which a call would run, and why. Nothing runs. The input is optional.").
			accepts(call.Request{}).returns(200, "The route, or why there is none.", routeReply{}),
		op("POST /v1/sync", "sync", calls.sync,
			"Copy files and directories of a container to the sandbox root, or to a container: all of "+
				"them or none. A sync is a call of the tool sync."+orStream+"its events.").
			accepts(call.SyncRequest{}).
			returns(200, "The report of the sync; or its events.", syncReply{}).streams().
			fails(422, "Nothing was written: sync_refused, limit_exceeded, disk_full or transfer_failed."),
		op("GET /v1/invocations", "list-invocations", lists.list,
			"List the invocations that the caller may see, newest first: its own; root and the daemon's "+
				"user may see all.").
			filters().
			query("sort", "started (default): newest first; duration: longest first, without calls that "+
				"have no duration.", "started", "duration").
			returnsPage(page{}),
		op("GET /v1/audit/stats", "audit-stats", lists.stats,
			"Get statistics of the calls that the caller may see, the key with the most calls first, of "+
				"at most 1000 keys. Durations are those of the calls that have one.").
			query("by", "The key of the groups.", "tool", "container", "workspace", "principal", "reason").
			required().filters().
			returns(200, "The statistics.", listReply[dray.Stat]{}),
		op("GET /v1/audit/export", "export-audit", lists.export,
			"Export the calls that the caller may see, complete, newest first. If an error ends the "+
				"export, the connection breaks before the end of the response.").
			query("format", "jsonl (default): JSON Lines; csv: CSV with a header.", "jsonl", "csv").
			number("limit", "At most this number of calls. Default: all.", 1, audit.MaxLimit).
			number("follow", "1: the calls that end from now on, as JSON Lines without an end. Each has "+
				"seq, the number of the event that ended it.", 0, 1).
			number("begun", "1, with follow: calls also when they begin.", 0, 1).
			number("after", "With follow: from the calls that ended after this event on.", 0, maxExact).
			filters().
			returns(200, "A call in each line.", nil).exports().
			header(200, seqHeader, "With follow: the event after which calls are followed."),
		op("GET /v1/audit/files", "list-changed-files", lists.changes,
			"List the files that dray itself changed, by file tools and syncs, in calls that the caller "+
				"may see, newest first.").
			query("plan_id", "The plan of the calls.").
			query("invocation", "The id of one call.").
			query("path", "The absolute path of one file, as it was recorded.").
			returnsPage(audit.ChangePage{}),
		op("GET /v1/audit/events", "list-events", lists.events,
			"List the events of the audit log that the caller may see, newest first: those of its calls "+
				"and of what it did; root and the daemon's user may see all.").
			query("kind", "The kind of the events.", enum(eventKinds())...).
			query("invocation", "The id of the call that the events belong to.").
			query("principal", "Who acted, or whose call the events belong to.").
			time("since", "Committed at this time or later (RFC 3339).").
			time("until", "Committed before this time (RFC 3339).").
			returnsPage(audit.EventPage{}),
	}
}

// The description and the pattern of the path parameter of a workspace.
const (
	workspaceID = "An id of the list, or the host directory with its slashes percent-encoded. For " +
		"trust also the name of a configured container, for its configuration."

	workspacePattern = "^([A-Za-z0-9][A-Za-z0-9._-]*|/.*)$"
)

const toolWorkspace = "The absolute host directory of the workspace that declares the tool."

// otherOperations returns the endpoints of workspaces, tools and the daemon itself.
func (s *Server) otherOperations(op newOperationFunc) []*operation {
	ws := &workspaces{
		manager: s.cfg.Workspaces, calls: s.cfg.Calls, access: s.cfg.Access, bodies: s.bodies,
		record: s.cfg.Record,
	}
	about, toolset := &info{server: s, bodies: s.bodies}, &tools{server: s}
	onWorkspace := func(route string, a workspace.Action, summary string) *operation {
		return op(route, string(a)+"-workspace", ws.run(a), summary+orStream+
			"its progress, and the workspace with the end event.").
			path("id", workspaceID).pattern(workspacePattern).
			returns(200, "The workspace afterwards; or progress.", workspace.Info{}).streams()
	}
	action := func(a workspace.Action, summary string) *operation {
		return onWorkspace("POST /v1/workspaces/{id}/"+string(a), a, summary)
	}
	toolState := func(action string, state tool.State, summary string) *operation {
		return op("POST /v1/tools/{name}/"+action, action+"-tool", toolset.setState(state),
			summary+" It outlives a restart, and is recorded in the audit log.").
			path("name", "The tool's name, compared exactly.").
			query("workspace", toolWorkspace).
			returns(200, "The tool.", toolReply{})
	}
	trusting := func(method, id string, h handler, summary string) *operation {
		return op(method+" /v1/workspaces/{id}/trust", id, h, summary).path("id", workspaceID).
			pattern(workspacePattern)
	}
	return []*operation{
		op("GET /v1/workspaces", "list-workspaces", ws.list, "List the known workspaces.").
			returns(200, "All of them.", listReply[workspace.Info]{}),
		action(workspace.ActionUp, "Start the container of a workspace."),
		action(workspace.ActionStop, "Stop the containers of a workspace. An up that runs is cancelled."),
		action(workspace.ActionRebuild, "Replace the container of a workspace by a new one."),
		onWorkspace("DELETE /v1/workspaces/{id}", workspace.ActionRemove,
			"Remove the containers of a workspace with their anonymous volumes. Its directory stays."),
		op("GET /v1/containers", "list-containers", ws.listContainers,
			"List the containers that calls can name.").
			returns(200, "All of them.", listReply[workspace.ContainerState]{}),
		op("POST /v1/containers/{name}", "register-container", ws.register,
			"Give a container that dray did not make a name, which stays after a restart.").
			path("name", "The name that calls use.").
			accepts(workspace.Registration{}).
			returns(200, "The container. It need not exist yet.", workspace.ContainerState{}),
		op("DELETE /v1/containers/{name}", "unregister-container", ws.unregister,
			"Remove a name that POST gave. The container stays.").
			path("name", "The name.").
			returns(200, "The name is removed.", struct{}{}),
		trusting("GET", "review-workspace", ws.reviewTrust,
			"Get what a trust in a workspace covers: what would act on the host, the files that decide "+
				"it, their hash, and the difference to what was trusted last.").
			returns(200, "What would be trusted.", trust.Review{}),
		trusting("POST", "trust-workspace", ws.trust,
			"Trust what a review shows. The body has its hash.").
			accepts(trustRequest{}).returns(200, "The workspace afterwards.", workspace.Info{}).
			fails(409, "The workspace has another hash now: nothing was trusted."),
		trusting("DELETE", "revoke-workspace", ws.revokeTrust,
			"End the trust in a workspace. Its containers go on.").
			returns(200, "The workspace afterwards.", workspace.Info{}).
			fails(409, "The configuration of the daemon trusts the workspace."),
		op("POST /v1/paths", "map-paths", ws.mapPaths, "Map paths between host and container.").
			accepts(pathsRequest{}).returns(200, "The paths, in order.", pathsReply{}),
		op("GET /v1/tools", "list-tools", toolset.list, "List the tools of the daemon with their "+
			"schemas, and those that workspaces declare: one, or all that are configured, trusted or "+
			"were used since the start.").
			query("workspace", toolWorkspace).
			returns(200, "The tools by name, those of workspaces last.", toolsReply{}),
		op("GET /v1/tools/{name}", "get-tool", toolset.get, "Get a tool.").
			path("name", "The tool's name, compared exactly.").pattern(namePattern).
			query("workspace", toolWorkspace).
			returns(200, "The tool.", toolReply{}),
		toolState("enable", tool.Active, "Allow calls of a tool again."),
		toolState("disable", tool.Disabled, "Deny calls of a tool. Running calls go on."),
		op("GET /v1/status", "status", about.status, "Get the state of the daemon.").
			returns(200, "The state.", Status{}),
		op("POST /v1/reload", "reload", about.reload, "Read the daemon's configuration again. It is "+
			"applied as a whole or refused as a whole; running calls keep the previous one.").
			returns(200, "The configuration that the daemon has now.", Reload{}),
		op("POST /v1/audit/prune", "prune-audit-log", about.prune, "Remove expired records of the audit "+
			"log. The hashes of their events stay. Only for root and the daemon's user.").
			accepts(pruneRequest{}).
			returns(200, "What was removed, or would be.", audit.PruneReport{}).streams(),
		op("GET /healthz", "health", about.health,
			"Check that the process runs, and what prevents calls.").
			returns(200, "It runs: ok or degraded.", stateReply{}),
		op("GET /readyz", "ready", about.ready, "Check whether calls are accepted.").
			returns(200, "They are.", stateReply{}),
		op("GET /openapi.json", "openapi", about.document, "Get this document.").
			returns(200, "An OpenAPI 3.1 document.", map[string]any{}),
	}
}
