package call

import (
	"context"
	"io"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/redact"
	"github.com/dray-dev/dray/internal/validate"
)

// Tools finds a tool that may run by its exact name. It fails with unknown_tool.
type Tools interface {
	Get(ctx context.Context, name string) (*dray.Tool, error)
}

// Router decides where a call runs, without side effects. The route that it returns with an error
// contains the rules that were evaluated.
type Router interface {
	Route(ctx context.Context, inv dray.Invocation, need dray.Requirement) (dray.Route, error)
}

// RouteChecker checks whether a call could start where its route leads, without side effects.
// startsProcess reports whether the call starts a process in its working directory.
type RouteChecker interface {
	Check(ctx context.Context, route dray.Route, inv dray.Invocation, startsProcess bool) error
}

// Intake turns requests into calls: it validates a request, finds its tool and routes it, each
// once. It is safe for concurrent use.
type Intake struct {
	Tools Tools
	// ProjectTools finds a tool that a workspace declares. It may be nil.
	ProjectTools func(ctx context.Context, workspace, name string) (*dray.Tool, error)
	// UpstreamTools finds a tool of an MCP server whose tools are not listed yet, without side
	// effects. ok is false if the name is not one of a server. It may be nil.
	UpstreamTools func(ctx context.Context, name string) (t *dray.Tool, ok bool, err error)
	Router        Router
	Environments  RouteChecker
	// Budgets refuse calls of some plans.
	Budgets *Budgets
	// Access decides which workspaces a principal may use.
	Access Access
	// Redaction has the rules by which secrets are replaced. Nil replaces none.
	Redaction *redact.Rules
	// Policy returns the error with which policy ends a call, for Explain. An input that is nil is not
	// known. It may be nil.
	Policy func(ctx context.Context, call dray.Call) error
	// MaxTimeout is the maximum of the timeouts of a call.
	MaxTimeout time.Duration
}

// Prepared is a call that may start: its request is valid.
type Prepared struct {
	// Invocation has no id yet. It is what the tool gets; Redactor makes of it what is recorded.
	Invocation dray.Invocation
	Tool       *dray.Tool
	Redactor   *redact.Redactor
	// Route is where the call runs. If RouteErr is set it contains only the evaluated rules, and the
	// call ends with RouteErr once it is recorded.
	Route    dray.Route
	RouteErr error
	// Stdin is the stdin of the tool; nil is an empty one. If StdinOpen is set, stdin is written
	// through [Call.Stdin] instead.
	Stdin     io.Reader
	StdinOpen bool
	// BlockOnReader makes the tool wait for the reader of its events: [Call.BlockingReader].
	BlockOnReader bool
	// AwaitsApproval makes the call wait if a human must approve it. Else it ends.
	AwaitsApproval bool
}

// Prepare validates a request of principal, finds its tool and routes it. An error means that the
// request is invalid and nothing is recorded: invalid_request, invalid_input, unknown_tool,
// route_conflict, or workspace_not_found for the workspace of another user. An environment that
// does not exist is no such error; the call ends with it.
func (in *Intake) Prepare(ctx context.Context, principal string, req *Request) (*Prepared, error) {
	inv, tool, err := in.resolve(ctx, principal, req)
	if err != nil {
		return nil, err
	}
	if err := checkTool(tool, req); err != nil {
		return nil, err
	}
	redactor := in.redactor(inv, tool)
	if err := tool.CheckInput(inv.Input); err != nil {
		return nil, redactor.Error(err)
	}
	p, err := in.route(ctx, inv, tool)
	if err != nil {
		return nil, redactor.Error(err)
	}
	p.Redactor = redactor
	p.Stdin, p.StdinOpen = req.stdin(), req.StdinOpen
	p.BlockOnReader = req.OnSlowReader == SlowReaderWait
	p.AwaitsApproval = req.AwaitsApproval
	return p, nil
}

// Explain returns the route that Prepare would decide, and as routeErr why there is none or why the
// call could not start there. The request needs no input; one that it has must be valid.
func (in *Intake) Explain(ctx context.Context, principal string, req *Request) (route dray.Route,
	routeErr, err error,
) {
	inv, tool, err := in.resolve(ctx, principal, req)
	if err != nil {
		return dray.Route{}, nil, err
	}
	redactor := in.redactor(inv, tool)
	if req.Input != nil {
		if err := tool.CheckInput(inv.Input); err != nil {
			return dray.Route{}, nil, redactor.Error(err)
		}
	}
	needs := tool.Needs(inv.Input)
	route, routeErr = in.findRoute(ctx, inv, tool, needs)
	if err := in.Access.checkCall(ctx, inv, route, routeErr); err != nil {
		return dray.Route{}, nil, err
	}
	if routeErr == nil {
		routeErr = in.Budgets.Check(ctx, inv.Context.PlanID)
	}
	if routeErr == nil && in.Policy != nil {
		asked := inv
		asked.Input = req.Input
		routeErr = in.Policy(ctx, dray.Call{Invocation: asked, Tool: tool, Route: route})
	}
	if routeErr == nil {
		routeErr = needs.CheckRoute(route)
	}
	if routeErr == nil {
		routeErr = in.check(ctx, route, inv, tool, needs)
	}
	return redactor.Route(route), redactor.Error(routeErr), nil
}

// redactor returns what replaces the secrets of a call.
func (in *Intake) redactor(inv dray.Invocation, tool *dray.Tool) *redact.Redactor {
	var fields []string
	if tool.SecretFields != nil {
		fields = tool.SecretFields(inv.Input)
	}
	return in.Redaction.ForCall(inv, fields)
}

func (in *Intake) resolve(ctx context.Context, principal string, req *Request) (dray.Invocation,
	*dray.Tool, error,
) {
	var v validate.Violations
	inv := req.invocation(&v, in.MaxTimeout)
	inv.Principal = principal
	if err := v.Err(); err != nil {
		return inv, nil, err
	}
	tool, err := in.findTool(ctx, inv)
	if err != nil {
		return inv, nil, err
	}
	session := ""
	if tool.SessionOf != nil {
		session = tool.SessionOf(inv.Input)
	}
	inv.CwdIsDefault = inv.CwdIsDefault && session != "" // else it says nothing
	if inv.Context.SessionID == "" {
		inv.Context.SessionID = session
		checkContext(&v, inv.Context)
	}
	return inv, tool, v.Err()
}

// findTool returns the tool of a call: one of the daemon, else one that the workspace declares.
func (in *Intake) findTool(ctx context.Context, inv dray.Invocation) (*dray.Tool, error) {
	tool, err := in.Tools.Get(ctx, inv.Tool)
	if dray.CodeOf(err) == dray.CodeUnknownTool && in.UpstreamTools != nil {
		// first, so that a project cannot declare a tool in the name of a server
		if tool, ok, err := in.UpstreamTools(ctx, inv.Tool); ok {
			return tool, err
		}
	}
	if dray.CodeOf(err) != dray.CodeUnknownTool || inv.Workspace == "" || in.ProjectTools == nil {
		return tool, err
	}
	if err := in.Access.CheckWorkspace(ctx, inv.Principal, inv.Workspace); err != nil {
		return nil, err
	}
	return in.ProjectTools(ctx, inv.Workspace, inv.Tool)
}

// findRoute asks the router. The tool of a project runs only in a container of the workspace that
// the call names: another container is not covered by the trust in it.
func (in *Intake) findRoute(ctx context.Context, inv dray.Invocation, tool *dray.Tool,
	needs dray.Needs,
) (dray.Route, error) {
	route, err := in.Router.Route(ctx, onHost(inv), needs.Environment)
	if err == nil && inv.Paths == dray.PathsOfContainer && route.Environment == dray.KindHost {
		err = containerPathsError(route)
		route = dray.Route{Candidates: route.Candidates}
	}
	if err == nil && tool.Workspace != "" && route.Workspace != inv.Workspace {
		err = dray.Errorf(dray.CodeRouteConflict,
			"%s selects another container than that of %s, which declares tool %s", route.Rule,
			inv.Workspace, tool.Name).
			WithHint("declare the tool in the daemon's configuration, or remove the other container " +
				"from the call, its plan or the configuration")
		route = dray.Route{Candidates: route.Candidates}
	}
	return route, err
}

// onHost returns an invocation whose paths are those of the host. A working directory of a
// container says nothing about it (PM-17).
func onHost(inv dray.Invocation) dray.Invocation {
	if inv.Paths == dray.PathsOfContainer {
		inv.Cwd = ""
	}
	return inv
}

func containerPathsError(route dray.Route) error {
	return dray.Errorf(dray.CodeRouteConflict,
		"the paths of the call are the container's, and %s selects the host", route.Rule).
		WithHint("name a workspace with a devcontainer or a container in the call, or omit paths and " +
			"use the host's paths")
}

// checkTool refuses a stdin or a terminal for a tool that cannot use it.
func checkTool(tool *dray.Tool, req *Request) error {
	var v validate.Violations
	switch {
	case tool.AcceptsStdin:
	case req.hasStdin():
		v.Add("/tool", "%s does not accept stdin: pass everything in its input", tool.Name)
	case req.TTY != nil: // a terminal would echo the input and cut it into lines
		v.Add("/tty", "%s does not run on a terminal: it starts no process, or its input is its stdin; "+
			"omit tty, or use exec or shell", tool.Name)
	}
	return v.Err()
}

// route decides where a call runs. It fails if the request contradicts itself, also if its
// container does not belong to its workspace. Other errors are those of the call.
func (in *Intake) route(ctx context.Context, inv dray.Invocation, tool *dray.Tool) (*Prepared,
	error,
) {
	needs := tool.Needs(inv.Input)
	route, routeErr := in.findRoute(ctx, inv, tool, needs)
	if err := in.Access.checkCall(ctx, inv, route, routeErr); err != nil {
		return nil, err
	}
	if routeErr == nil {
		routeErr = needs.CheckRoute(route)
	}
	err := routeErr
	if err == nil && inv.Container != "" && inv.Workspace != "" {
		err = in.check(ctx, route, inv, tool, needs)
	}
	switch dray.CodeOf(err) {
	case dray.CodeInvalidRequest, dray.CodeInvalidInput, dray.CodeRouteConflict, dray.CodeUnknownTool:
		return nil, err
	default:
		return &Prepared{Invocation: inv, Tool: tool, Route: route, RouteErr: routeErr}, nil
	}
}

// check returns the error with which a call could not start where its route leads.
func (in *Intake) check(ctx context.Context, route dray.Route, inv dray.Invocation, tool *dray.Tool,
	needs dray.Needs,
) error {
	if tool.InWorkspace && inv.Workspace != "" {
		inv.Cwd = "" // the tool does not work there
	}
	return in.Environments.Check(ctx, route, onHost(inv), needs.StartsProcess)
}
