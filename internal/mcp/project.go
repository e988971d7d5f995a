package mcp

import (
	"context"
	"maps"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
)

// projectTool is the tool of the SDK's server that calls the tools of workspaces: all clients share
// the server, and their workspaces differ. No tool of dray can have this name.
const projectTool = "_project"

// projectKey is the key of the tool of a workspace in the context of a call of projectTool.
type projectKey struct{}

// addProjectTool registers projectTool. A client that names it gets unknown_tool.
func (s *Server) addProjectTool() {
	s.server.AddTool(&sdk.Tool{Name: projectTool, InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			t, ok := ctx.Value(projectKey{}).(*dray.Tool)
			if !ok {
				return failure(dray.Errorf(dray.CodeUnknownTool, "unknown tool %q", projectTool).
					WithHint("use a tool of tools/list")), nil
			}
			return s.callTool(ctx, req, t)
		})
}

// serveProjectTools returns a handler of all methods that adds the tools of the client's own
// workspace to lists, and calls them (RT-15).
func (s *Server) serveProjectTools(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if r, ok := req.(*sdk.CallToolRequest); ok && !s.isListed(r.Params.Name) {
			if t := s.projectTools(ctx, req)[r.Params.Name]; t != nil {
				params, of := *r.Params, *r
				params.Name, of.Params = projectTool, &params
				return next(context.WithValue(ctx, projectKey{}, t), method, &of)
			}
		}
		result, err := next(ctx, method, req)
		list, ok := result.(*sdk.ListToolsResult)
		if err != nil || !ok {
			return result, err
		}
		all := *list
		all.Tools = slices.DeleteFunc(slices.Clone(list.Tools), func(t *sdk.Tool) bool {
			return t.Name == projectTool
		})
		if list.NextCursor == "" { // the last page
			declared := s.projectTools(ctx, req)
			for _, name := range slices.Sorted(maps.Keys(declared)) {
				all.Tools = append(all.Tools, describe(declared[name]))
			}
		}
		return &all, nil
	}
}

// isListed reports whether all clients have a tool of a name.
func (s *Server) isListed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools[name] != nil || isOwn(name)
}

// projectTools returns the active tools that the client's own workspace declares and that policy
// does not deny, by name. A workspace whose declaration is invalid has none.
func (s *Server) projectTools(ctx context.Context, req sdk.Request) map[string]*dray.Tool {
	current := s.cfg.Current()
	if current.ProjectTools == nil {
		return nil
	}
	principal, folder := principalOf(req), s.clientWorkspace(ctx, req)
	if folder == "" || s.cfg.Access.CheckWorkspace(ctx, principal, folder) != nil {
		return nil
	}
	active, err := current.ProjectTools(ctx, folder)
	if err != nil {
		s.cfg.Log.Warn("tools of a workspace not listed", "workspace", folder, "error", err)
		return nil
	}
	declared := map[string]*dray.Tool{}
	for _, t := range active {
		if !isOwn(t.Name) && (current.Denies == nil || !current.Denies(principal, t)) {
			declared[t.Name] = t
		}
	}
	return declared
}

// clientWorkspace returns the workspace that is the default of a client's calls: its own, else the
// one of its directory. It is "" for a client of a container.
func (s *Server) clientWorkspace(ctx context.Context, req sdk.Request) string {
	h := req.GetExtra().Header
	if folder := h.Get(workspaceHeader); folder != "" || h.Get(containerHeader) != "" {
		return folder
	}
	if dir := h.Get(cwdHeader); dir != "" {
		return s.cfg.Nearest(ctx, dir)
	}
	return ""
}
