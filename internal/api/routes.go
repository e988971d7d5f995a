package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/workspace"
)

// handler serves a request. The caller writes the response of an error.
type handler func(w http.ResponseWriter, r *http.Request) error

// operation is an endpoint with its documentation.
type operation struct {
	method, path, id, summary string
	params                    []*huma.Param
	body                      reflect.Type // of a JSON body
	bytes                     bool         // the body is bytes
	replies                   []response
	handle                    handler
}

// response is the documentation of one status.
type response struct {
	status  int
	what    string
	json    reflect.Type // nil: no JSON
	streams bool         // also as a stream of events
	problem bool         // an error
	bytes   bool
	headers map[string]string
}

const (
	invocationPath = "/v1/invocations/{id}"
	orStream       = " With Accept: text/event-stream or application/x-ndjson the response is "
	waitDoc        = "Respond with 202 if the call still runs after this number of milliseconds. " +
		"Default: wait for its end."
)

// operations returns all endpoints.
func (s *Server) operations() []operation {
	bodies := &bodyReader{max: s.cfg.MaxBody}
	find := finder{calls: s.cfg.Calls, audit: s.cfg.Audit}
	calls := &invocations{finder: find, intake: s.cfg.Intake, bodies: bodies}
	ws := &workspaces{manager: s.cfg.Workspaces, calls: s.cfg.Calls, bodies: bodies}
	all := calls.operations()
	all = append(all, (&control{finder: find, bodies: bodies}).operations()...)
	all = append(all, (&outputs{finder: find, captures: s.cfg.Captures, fail: s.fail}).operations()...)
	all = append(all, (&lists{calls: s.cfg.Calls, audit: s.cfg.Audit}).operations()...)
	all = append(all, ws.operations()...)
	about := &info{
		registry: s.cfg.Tools, calls: s.cfg.Calls, check: s.cfg.Ready,
		openapi: func() []byte { return s.openapi },
	}
	return append(all, about.operations()...)
}

func idParam() *huma.Param { return pathParam("id", "The invocation's id.") }

func (h *invocations) operations() []operation {
	invocation := typeOf[dray.Record]()
	return []operation{
		{
			method: http.MethodPost, path: "/v1/invocations", id: "start-invocation", handle: h.start,
			summary: "Start a call." + orStream + "its events, from the first to the end event.",
			params:  []*huma.Param{waitParamDoc(waitDoc)},
			body:    typeOf[call.Request](),
			replies: []response{
				{
					status: 200, what: "The invocation, however it ended; or its events.",
					json: invocation, streams: true,
				},
				{
					status: 202, what: "The invocation, which still runs.", json: invocation,
					headers: map[string]string{"Location": "The path of the invocation."},
				},
			},
		},
		{
			method: http.MethodGet, path: invocationPath, id: "get-invocation", handle: h.get,
			summary: "Get an invocation, running or ended.",
			params: []*huma.Param{
				idParam(),
				waitParamDoc("Wait this number of milliseconds for the end. Default: respond at once."),
			},
			replies: []response{{status: 200, what: "The invocation.", json: invocation}},
		},
		{
			method: http.MethodPost, path: invocationPath + "/cancel", id: "cancel-invocation",
			handle:  h.cancel,
			summary: "Cancel a call. A call that has ended does not change.",
			params:  []*huma.Param{idParam(), waitParamDoc(waitDoc)},
			replies: []response{
				{status: 200, what: "The invocation, which has ended.", json: invocation},
				{status: 202, what: "The invocation, which is ending.", json: invocation},
			},
		},
		{
			method: http.MethodGet, path: invocationPath + "/events", id: "follow-invocation",
			handle: h.events,
			summary: "Get the events of a call after a sequence number: " + eventlog.State + ", " +
				eventlog.Progress + ", " + eventlog.Stdout + ", " + eventlog.Stderr + ", " +
				eventlog.End + ". Some minutes after the end only the end event is left.",
			params: []*huma.Param{
				idParam(),
				queryParam("after", "The last sequence number that the client has.", "integer"),
				headerParam("Last-Event-ID", "As after; it takes precedence."),
			},
			replies: []response{
				{status: 200, what: "The events.", streams: true},
				{status: 204, what: "There are no events after that one."},
			},
		},
		{
			method: http.MethodPost, path: "/v1/route", id: "explain-route", handle: h.explain,
			summary: "Get the environment in which a call would run, and why. Nothing runs. " +
				"The input is optional.",
			body: typeOf[call.Request](),
			replies: []response{{
				status: 200, what: "The route, or why there is none.", json: typeOf[routeReply](),
			}},
		},
		{
			method: http.MethodPost, path: "/v1/sync", id: "sync", handle: h.sync,
			summary: "Copy files and directories of a container to the sandbox root, or to a container: " +
				"all of them or none. A sync is a call of the tool sync." + orStream + "its events.",
			body: typeOf[call.SyncRequest](),
			replies: []response{
				{
					status: 200, what: "The report of the sync; or its events.",
					json: typeOf[syncReply](), streams: true,
				},
				{
					status: 422, problem: true,
					what: "Nothing was written: " + string(dray.CodeSyncRefused) + ", " +
						string(dray.CodeLimitExceeded) + ", " + string(dray.CodeDiskFull) + " or " +
						string(dray.CodeTransferFailed) + ".",
				},
			},
		},
	}
}

func (h *control) operations() []operation {
	return []operation{
		{
			method: http.MethodPost, path: invocationPath + "/stdin", id: "write-stdin", bytes: true,
			handle: h.writeStdin,
			summary: "Write to the stdin of a call that was started with stdin_open. " +
				"A body of up to 256 KiB is written completely or not at all. " +
				"A larger one requires an offset and is written in chunks. " +
				"The status 429 means that the tool does not read.",
			params: []*huma.Param{
				idParam(),
				queryParam("offset", "The number of bytes of stdin before these. Bytes that were written "+
					"before are skipped. Default: the end.", "integer"),
				queryParam("eof", "1 closes stdin after these bytes.", "integer"),
			},
			replies: []response{{
				status: 200, what: "The number of bytes written so far.", json: typeOf[stdinReply](),
			}},
		},
		{
			method: http.MethodPost, path: invocationPath + "/resize", id: "resize-terminal",
			handle: h.resize,
			summary: "Change the size of the terminal of a call that was started with tty. " +
				"The request waits until the process has started.",
			params: []*huma.Param{idParam()}, body: typeOf[call.TerminalSize](),
			replies: []response{{
				status: 200, what: "The new size.", json: typeOf[call.TerminalSize](),
			}},
		},
		{
			method: http.MethodPost, path: invocationPath + "/signal", id: "signal-invocation",
			handle: h.signal,
			summary: "Send a signal to the process that the call started, and to no other. " +
				"The request waits until the process has started.",
			params: []*huma.Param{idParam()}, body: typeOf[signalRequest](),
			replies: []response{{
				status: 200, what: "The signal that was sent.", json: typeOf[signalReply](),
			}},
		},
	}
}

func (h *outputs) operations() []operation {
	return []operation{{
		method: http.MethodGet, path: invocationPath + "/output/{stream}", id: "read-output",
		handle:  h.read,
		summary: "Get the captured bytes of a stream, or a range of them.",
		params: []*huma.Param{
			idParam(), streamParam(),
			queryParam("rewritten", "true: the stream with rewritten paths; auto: that stream if a path "+
				"was rewritten, else the raw one; false (default): the raw stream.", "string"),
			headerParam("Range", "Bytes, as in RFC 9110."),
		},
		replies: []response{
			{status: 200, what: "The bytes.", bytes: true},
			{status: 206, what: "A range of them.", bytes: true},
		},
	}}
}

func (h *lists) operations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/invocations", id: "list-invocations", handle: h.list,
			summary: "List the caller's invocations, newest first.", params: listParams(),
			replies: []response{{status: 200, what: "A page.", json: typeOf[page]()}},
		},
		{
			method: http.MethodGet, path: "/v1/audit/files", id: "list-changed-files",
			handle: h.changes,
			summary: "List the files that dray itself changed in the caller's calls, " +
				"by file tools and syncs, newest first.",
			params:  changeParams(),
			replies: []response{{status: 200, what: "A page.", json: typeOf[audit.ChangePage]()}},
		},
	}
}

func (h *workspaces) operations() []operation {
	all := []operation{
		{
			method: http.MethodGet, path: "/v1/workspaces", id: "list-workspaces", handle: h.list,
			summary: "List the known workspaces.",
			replies: []response{{
				status: 200, what: "All of them.", json: typeOf[listReply[workspace.Info]](),
			}},
		},
		{
			method: http.MethodPost, path: "/v1/paths", id: "map-paths", handle: h.mapPaths,
			summary: "Map paths between host and container.", body: typeOf[pathsRequest](),
			replies: []response{{status: 200, what: "The paths, in order.", json: typeOf[pathsReply]()}},
		},
	}
	for _, a := range []struct {
		action  workspace.Action
		summary string
	}{
		{workspace.ActionUp, "Start the container of a workspace."},
		{workspace.ActionStop, "Stop the container of a workspace."},
		{workspace.ActionTrust, "Trust the current devcontainer configuration of a workspace."},
	} {
		all = append(all, operation{
			method: http.MethodPost, path: "/v1/workspaces/{id}/" + string(a.action),
			id: string(a.action) + "-workspace", handle: h.run(a.action),
			summary: a.summary + orStream + "its progress, and the workspace with the end event.",
			params: []*huma.Param{pathParam("id",
				"An id of the list, or the host directory with its slashes percent-encoded.")},
			replies: []response{{
				status: 200, what: "The workspace afterwards; or progress.",
				json: typeOf[workspace.Info](), streams: true,
			}},
		})
	}
	return all
}

func (h *info) operations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/tools", id: "list-tools", handle: h.tools,
			summary: "List all tools with their schemas.",
			replies: []response{{
				status: 200, what: "The tools by name.", json: typeOf[listReply[toolReply]](),
			}},
		},
		{
			method: http.MethodGet, path: "/v1/tools/{name}", id: "get-tool", handle: h.tool,
			summary: "Get a tool.",
			params:  []*huma.Param{pathParam("name", "The tool's name, compared exactly.")},
			replies: []response{{status: 200, what: "The tool.", json: typeOf[toolReply]()}},
		},
		{
			method: http.MethodGet, path: "/healthz", id: "health", handle: h.health,
			summary: "Check that the process runs.",
			replies: []response{{status: 200, what: "It runs.", json: typeOf[stateReply]()}},
		},
		{
			method: http.MethodGet, path: "/readyz", id: "ready", handle: h.ready,
			summary: "Check whether calls are accepted.",
			replies: []response{{status: 200, what: "They are.", json: typeOf[stateReply]()}},
		},
		{
			method: http.MethodGet, path: "/openapi.json", id: "openapi", handle: h.document,
			summary: "Get this document.",
			replies: []response{{
				status: 200, what: "An OpenAPI 3.1 document.", json: typeOf[map[string]any](),
			}},
		},
	}
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
