package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/validate"
	"github.com/dray-dev/dray/internal/workspace"
	"github.com/dray-dev/dray/pathmapper"
)

// workspaces serves the requests about workspaces and their mounts.
type workspaces struct {
	manager Workspaces
	calls   *call.Registry
	access  call.Access
	bodies  *bodyReader
	record  recordFunc
}

// list responds with the known workspaces that the caller may use.
func (h *workspaces) list(w http.ResponseWriter, r *http.Request) error {
	all, err := h.manager.List(r.Context())
	if err != nil {
		return err
	}
	return replyUsable(w, r, h.access, all, func(ws workspace.Info) string { return ws.Folder })
}

// replyUsable responds with the elements of all whose workspace the caller may use.
func replyUsable[T any](w http.ResponseWriter, r *http.Request, access call.Access, all []T,
	folder func(T) string,
) error {
	usable := []T{}
	for _, element := range all {
		if access.CheckWorkspace(r.Context(), principal(r), folder(element)) == nil {
			usable = append(usable, element)
		}
	}
	return reply(w, listReply[T]{usable})
}

// check fails unless the caller may use a workspace, given by its id or directory.
func (h *workspaces) check(r *http.Request, id string) error {
	who, folder := principal(r), id
	if h.access.CheckWorkspace(r.Context(), who, "") == nil {
		return nil // it may use all
	}
	if !strings.HasPrefix(id, "/") {
		all, err := h.manager.List(r.Context())
		if err != nil {
			return err
		}
		folder = ""
		if i := slices.IndexFunc(all, func(ws workspace.Info) bool { return ws.ID == id }); i >= 0 {
			folder = all[i].Folder
		}
	}
	return h.access.CheckWorkspace(r.Context(), who, folder)
}

// listContainers responds with the containers that calls of the caller can name.
func (h *workspaces) listContainers(w http.ResponseWriter, r *http.Request) error {
	all, err := h.manager.Containers(r.Context())
	if err != nil {
		return err
	}
	return replyUsable(w, r, h.access, all,
		func(c workspace.ContainerState) string { return c.Workspace })
}

// register gives a container a name.
func (h *workspaces) register(w http.ResponseWriter, r *http.Request) error {
	var reg workspace.Registration
	if err := h.bodies.decode(w, r, &reg); err != nil {
		return err
	}
	name := r.PathValue("name")
	event := func(failure string) audit.Body {
		return &audit.NameChanged{
			Principal: principal(r), Name: recordedText(name), Action: "add", ID: recordedText(reg.ID),
			Label: recordedText(reg.Label), Error: failure,
		}
	}
	var state workspace.ContainerState
	err := h.record.do(r.Context(), event, func(ctx context.Context) (err error) {
		state, err = h.manager.Register(ctx, name, reg)
		return err
	})
	if err != nil {
		return err
	}
	return reply(w, state)
}

// unregister removes a name.
func (h *workspaces) unregister(w http.ResponseWriter, r *http.Request) error {
	if err := h.bodies.decodeOptional(w, r, &struct{}{}); err != nil {
		return err
	}
	name := r.PathValue("name")
	event := func(failure string) audit.Body {
		return &audit.NameChanged{
			Principal: principal(r), Name: recordedText(name), Action: "remove", Error: failure,
		}
	}
	err := h.record.do(r.Context(), event, func(context.Context) error {
		return h.manager.Unregister(name)
	})
	if err != nil {
		return err
	}
	return reply(w, struct{}{})
}

// run returns the handler of an action.
func (h *workspaces) run(action workspace.Action) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := h.parse(w, r)
		if err != nil {
			return err
		}
		if h.calls.Draining() {
			return dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").
				WithHint("repeat the request when the daemon runs again")
		}
		if format := responseFormat(r, mediaJSON); format != mediaJSON {
			return streamAction(w, r, format, func(progress progressFunc) (actionEnd, error) {
				info, err := h.act(r, action, id, progress)
				return actionEnd{Workspace: &info}, err
			})
		}
		info, err := h.act(r, action, id, func(string, string) {})
		if err != nil {
			return err
		}
		return reply(w, info)
	}
}

// act performs an action, with an event in the audit log.
func (h *workspaces) act(r *http.Request, action workspace.Action, id string,
	progress func(phase, message string),
) (info workspace.Info, err error) {
	event := func(failure string) audit.Body {
		return &audit.WorkspaceAction{
			Principal: principal(r), Workspace: id, Action: string(action), Error: failure,
		}
	}
	err = h.record.do(r.Context(), event, func(ctx context.Context) (err error) {
		info, err = h.manager.Run(ctx, action, id, progress)
		return err
	})
	return info, err
}

// parse returns the workspace of a request, which the caller may use. The body must be empty,
// because callers must not choose the variables of `up`.
func (h *workspaces) parse(w http.ResponseWriter, r *http.Request) (id string, err error) {
	if err := h.bodies.decodeOptional(w, r, &struct{}{}); err != nil {
		return "", err
	}
	return h.parseID(r)
}

// parseID returns the workspace of a request, which the caller may use: an id of the list, or an
// absolute directory.
func (h *workspaces) parseID(r *http.Request) (id string, err error) {
	var v validate.Violations
	id = r.PathValue("id")
	switch {
	case strings.HasPrefix(id, "/"):
		id = validate.AbsolutePath(&v, "id", id)
	case !lexical.IsName(id):
		v.Add("id", "invalid workspace id %q: use an id of the list, or an absolute directory with "+
			"its slashes as %%2F", validate.Quote(id))
	}
	if err := v.ParamErr(); err != nil {
		return "", err
	}
	return id, h.check(r, id)
}

// maxPaths bounds the paths of one request.
const maxPaths = 10000

// pathsRequest is a list of paths to map between host and container.
type pathsRequest struct {
	Workspace string         `json:"workspace,omitempty" doc:"An absolute host directory."`
	Container string         `json:"container,omitempty" doc:"A container's name or id."`
	Direction call.Direction `json:"direction" enum:"to_host,to_container"`
	Paths     []string       `json:"paths"`
}

// pathsReply has the mapped paths in order. A path under no mapping is unchanged, and also in
// Unmapped, as is one that a symlink on the host leads out of its mapping (PM-12).
type pathsReply struct {
	Paths    []string `json:"paths"`
	Unmapped []string `json:"unmapped"`
}

// mapPaths responds with mapped paths.
func (h *workspaces) mapPaths(w http.ResponseWriter, r *http.Request) error {
	var req pathsRequest
	if err := h.bodies.decode(w, r, &req); err != nil {
		return err
	}
	if err := req.validate(); err != nil {
		return err
	}
	if err := h.access.CheckWorkspace(r.Context(), principal(r), req.Workspace); err != nil {
		return err
	}
	mapped, err := h.mapRequest(r.Context(), req)
	if err != nil {
		return err
	}
	return reply(w, mapped)
}

func (h *workspaces) mapRequest(ctx context.Context, req pathsRequest) (reply pathsReply,
	err error,
) {
	mounts, err := h.manager.Mounts(ctx, req.Workspace, req.Container)
	if err != nil {
		return reply, err
	}
	mapper, _, err := pathmapper.FromMounts(mounts, nil)
	if err != nil {
		return reply, err
	}
	direction := pathmapper.ToContainer
	if req.Direction == call.ToHost {
		direction = pathmapper.ToHost
	}
	var guard tool.SymlinkGuard
	defer guard.Close()
	reply.Paths, reply.Unmapped, err = mapper.Paths(direction, req.Paths,
		func(root, name string) error { return guard.Check(ctx, root, name) })
	return reply, err
}

// validate checks the request and cleans its workspace and container.
func (p *pathsRequest) validate() error {
	var v validate.Violations
	p.Workspace = validate.AbsolutePath(&v, "/workspace", p.Workspace)
	p.Container = validate.ContainerName(&v, "/container", p.Container)
	if p.Workspace == "" && p.Container == "" {
		v.Add("/workspace", "a workspace or a container is required")
	}
	if p.Direction == "" {
		v.Add("/direction", "a direction is required: to_host or to_container")
	}
	validate.OneOf(&v, "/direction", p.Direction, call.ToHost, call.ToContainer)
	if p.Paths == nil || len(p.Paths) > maxPaths {
		v.Add("/paths", "a list of at most %d paths is required", maxPaths)
	}
	if err := v.Err(); err != nil {
		return err
	}
	for i, path := range p.Paths {
		if path == "" {
			v.Add("/paths/"+strconv.Itoa(i), "the path is empty")
		}
	}
	return v.ErrWithCode(dray.CodeInvalidInput) // the paths are the input of the mapping
}
