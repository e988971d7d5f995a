package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call/eventlog"
)

// handler answers a request, or fails.
type handler func(w http.ResponseWriter, r *http.Request) error

// operation is one thing that can be asked, with what its description says.
type operation struct {
	method, path, id, summary string
	params                    []*huma.Param
	body                      reflect.Type // of a JSON body
	bytes                     bool         // the body is bytes
	replies                   []described
	handle                    handler
}

// described is one way to answer.
type described struct {
	status  int
	what    string
	json    reflect.Type // nil: no JSON
	streams bool         // as events too
	problem bool         // an error
	bytes   bool
	headers map[string]string
}

const invocationPath = "/v1/invocations/{id}"

// operations are all that there is.
func (s *Server) operations() []operation {
	all := s.callOperations()
	all = append(all, s.invocationOperations()...)
	all = append(all, s.workspaceOperations()...)
	return append(all, s.otherOperations()...)
}

func (s *Server) callOperations() []operation {
	invocation := typeOf[dray.Record]()
	return []operation{
		{
			method: http.MethodPost, path: "/v1/invocations", id: "start-invocation", handle: s.start,
			summary: "Start a call. With Accept: text/event-stream or application/x-ndjson the answer is its events, from the first to the end.",
			params:  []*huma.Param{waitParamDoc("Answer 202 if the call still runs after so many milliseconds. Default: wait until its end.")},
			body:    typeOf[callRequest](),
			replies: []described{
				{
					status: 200, what: "The invocation, however it ended; or its events.", json: invocation,
					streams: true,
				},
				{
					status: 202, what: "The invocation, which still runs.", json: invocation,
					headers: map[string]string{"Location": "The invocation's path."},
				},
			},
		},
		{
			method: http.MethodGet, path: "/v1/invocations", id: "list-invocations", summary: "The caller's invocations, newest first.", handle: s.list,
			params: listParams(), replies: []described{{status: 200, what: "A page.", json: typeOf[page]()}},
		},
		{
			method: http.MethodGet, path: "/v1/audit/files", id: "list-changed-files", handle: s.changes,
			summary: "The files that dray itself changed in the caller's calls, by file tools and syncs, newest first.",
			params:  changeParams(), replies: []described{{
				status: 200, what: "A page.",
				json: typeOf[audit.ChangePage](),
			}},
		},
		{
			method: http.MethodPost, path: "/v1/route", id: "explain-route", handle: s.route,
			summary: "Where a call would run, and why. Nothing runs. The input may be left out.",
			body:    typeOf[callRequest](), replies: []described{{
				status: 200,
				what:   "The decision, or why there is none.", json: typeOf[routeReply](),
			}},
		},
	}
}

func (s *Server) invocationOperations() []operation {
	invocation := typeOf[dray.Record]()
	id := pathParam("id", "The invocation's id.")
	return []operation{
		{
			method: http.MethodGet, path: invocationPath, id: "get-invocation", summary: "One invocation, running or ended.", handle: s.get,
			params: []*huma.Param{
				id,
				waitParamDoc("Wait so many milliseconds for the end. Default: answer at once."),
			},
			replies: []described{{status: 200, what: "The invocation.", json: invocation}},
		},
		{
			method: http.MethodGet, path: invocationPath +
				"/events", id: "follow-invocation", handle: s.events,
			summary: "The events of a call from a sequence number on: " + eventlog.State + ", " +
				eventlog.Progress + ", " + eventlog.Stdout + ", " + eventlog.Stderr +
				", " + eventlog.End + ". Some minutes after the end there is the end event alone.",
			params: []*huma.Param{
				id, queryParam("after", "The last sequence number that the client has.", "integer"),
				headerParam("Last-Event-ID", "The same; it goes before the parameter."),
			},
			replies: []described{
				{status: 200, what: "The events.", streams: true},
				{status: 204, what: "There are none after that one, and none will come."},
			},
		},
		{
			method: http.MethodGet, path: invocationPath +
				"/output/{stream}", id: "read-output", handle: s.output,
			summary: "The kept bytes of a stream, or a range of them.",
			params: []*huma.Param{
				id, streamParam(), queryParam("rewritten",
					"true: the bytes after the paths in them were rewritten; auto: those where there are any; "+
						"false (default): what the tool printed.", "string"),
				headerParam("Range", "Bytes, as in RFC 9110."),
			},
			replies: []described{
				{status: 200, what: "The bytes.", bytes: true},
				{status: 206, what: "A range of them.", bytes: true},
			},
		},
		{
			method: http.MethodPost, path: invocationPath +
				"/stdin", id: "write-stdin", bytes: true, handle: s.writeStdin,
			summary: "Write to the stdin of a call that was started with stdin_open. Up to 256 KiB are taken whole or not at all, more only with an offset, " +
				"piece by piece. 429 says that the tool does not read.",
			params: []*huma.Param{
				id, queryParam("offset",
					"How many bytes of stdin come before these. Bytes that were taken before are passed over. Default: the end.", "integer"),
				queryParam("eof", "1 closes stdin behind these bytes.", "integer"),
			},
			replies: []described{{
				status: 200, what: "How many bytes were taken in all.",
				json: typeOf[stdinReply](),
			}},
		},
		{
			method: http.MethodPost, path: invocationPath +
				"/resize", id: "resize-terminal", handle: s.resize,
			summary: "Change the size of the terminal of a call that was started with tty. A call whose process has not started is waited for.",
			params:  []*huma.Param{id}, body: typeOf[terminalBody](),
			replies: []described{{
				status: 200, what: "The size that it has now.",
				json: typeOf[dray.TerminalSize](),
			}},
		},
		{
			method: http.MethodPost, path: invocationPath +
				"/signal", id: "signal-invocation", handle: s.signal,
			summary: "Send a signal to the process that the call started, and to no other. A call whose process has not started is waited for.",
			params:  []*huma.Param{id}, body: typeOf[signalBody](),
			replies: []described{{
				status: 200, what: "The signal that was sent.",
				json: typeOf[signalReply](),
			}},
		},
		{
			method: http.MethodPost, path: invocationPath +
				"/cancel", id: "cancel-invocation", handle: s.cancel,
			summary: "End a call. One that has ended stays as it is.",
			params: []*huma.Param{
				id,
				waitParamDoc("Answer 202 if the call still runs after so many milliseconds. Default: wait until its end."),
			},
			replies: []described{
				{status: 200, what: "The invocation, which is over.", json: invocation},
				{status: 202, what: "The invocation, which is being ended.", json: invocation},
			},
		},
	}
}

func (s *Server) workspaceOperations() []operation {
	all := []operation{{
		method: http.MethodGet, path: "/v1/workspaces", id: "list-workspaces", summary: "The known workspaces.", handle: s.workspaces,
		replies: []described{{status: 200, what: "All of them.", json: typeOf[listReply[Workspace]]()}},
	}}
	for _, verb := range []struct {
		name    WorkspaceAction
		summary string
	}{
		{WorkspaceUp, "Bring up a workspace's container."},
		{WorkspaceStop, "Stop a workspace's container."},
		{WorkspaceTrust, "Trust a workspace's devcontainer configuration as it is now."},
	} {
		all = append(all, operation{
			method: http.MethodPost, path: "/v1/workspaces/{id}/" +
				string(verb.name), id: string(verb.name) + "-workspace", handle: s.workspace(verb.name),
			summary: verb.summary +
				" With Accept: text/event-stream or application/x-ndjson the answer is its progress, and the workspace with the end event.",
			params: []*huma.Param{pathParam("id",
				"An id of the list, or the host folder with its slashes percent-encoded.")},
			replies: []described{{
				status: 200, what: "The workspace as it is then; or progress.",
				json: typeOf[Workspace](), streams: true,
			}},
		})
	}
	return all
}

func (s *Server) otherOperations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/tools", id: "list-tools", summary: "All tools with their schemas.", handle: s.tools,
			replies: []described{{status: 200, what: "The tools by name.", json: typeOf[listReply[Tool]]()}},
		},
		{
			method: http.MethodGet, path: "/v1/tools/{name}", id: "get-tool", summary: "One tool.", handle: s.tool,
			params: []*huma.Param{pathParam("name",
				"The tool's name, compared exactly.")}, replies: []described{{status: 200, what: "The tool.", json: typeOf[Tool]()}},
		},
		{
			method: http.MethodPost, path: "/v1/paths", id: "map-paths", summary: "Map paths between host and container.", handle: s.paths,
			body: typeOf[PathsRequest](), replies: []described{{
				status: 200, what: "The paths, in order.",
				json: typeOf[PathsReply](),
			}},
		},
		{
			method: http.MethodPost, path: "/v1/sync", id: "sync", handle: s.sync,
			summary: "Bring files and folders of a container home into the sandbox root, or take some there: all of them or none. It is a call of the tool sync. " +
				"With Accept: text/event-stream or application/x-ndjson the answer is the call's events.",
			body: typeOf[syncBody](),
			replies: []described{
				{status: 200, what: "What was done; or its events.", json: typeOf[syncReply](), streams: true},
				{status: 422, what: "Nothing was written: " + string(dray.CodeSyncRefused) + ", " +
					string(dray.CodeLimitExceeded) + ", " +
					string(dray.CodeDiskFull) + " or " + string(dray.CodeTransferFailed) + ".", problem: true},
			},
		},
		{
			method: http.MethodGet, path: "/healthz", id: "health", summary: "Whether the process lives.", handle: s.health,
			replies: []described{{status: 200, what: "It does.", json: typeOf[stateReply]()}},
		},
		{
			method: http.MethodGet, path: "/readyz", id: "ready", summary: "Whether calls are taken.", handle: s.ready,
			replies: []described{{status: 200, what: "They are.", json: typeOf[stateReply]()}},
		},
		{
			method: http.MethodGet, path: "/openapi.json", id: "openapi", summary: "This document.", handle: s.document,
			replies: []described{{
				status: 200, what: "An OpenAPI 3.1 document.",
				json: typeOf[map[string]any](),
			}},
		},
	}
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
