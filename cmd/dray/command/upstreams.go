package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/mcp/upstream"
	"github.com/dray-dev/dray/internal/tool"
)

const (
	// mcpStartTimeout bounds the start of an MCP server, without that of its container.
	mcpStartTimeout = 30 * time.Second
	// mcpRetryDelay is the delay after the second failure in a row.
	mcpRetryDelay = time.Second
	// mcpListWait bounds how long a list of tools waits for the first starts.
	mcpListWait = 5 * time.Second
	// mcpSeparator is between the names of a server and of its tool.
	mcpSeparator = "__"
)

// upstreams are the configured MCP servers (MC-06). Their tools are read from a server when it
// starts: on the host with the daemon, in a container with the first call that names it. Those of
// containers are kept in a file, so that they are listed while the container does not run.
type upstreams struct {
	servers map[string]*upstreamServer
	path    string
	log     *zap.Logger
	stop    context.CancelFunc
	group   sync.WaitGroup // of the starts in the background
	started chan struct{}  // closed when these have listed their tools or failed

	mu sync.Mutex // guards the tools of all servers and the file
}

type upstreamServer struct {
	*upstream.Server
	name   string
	cfg    config.MCPServer
	digest string
	tools  []upstream.Tool
	// listed reports whether the server has listed its tools to this daemon, and calls get them.
	listed  bool
	listing chan struct{} // holds a token while they are listed
	// failure is why that failed the last time.
	failure error
}

// openUpstreams starts no process.
func (d *daemon) openUpstreams(cfg *config.Config) *upstreams {
	u := &upstreams{
		servers: map[string]*upstreamServer{}, path: cfg.State.MCPTools(), log: d.log,
		stop: func() {}, started: make(chan struct{}),
	}
	if len(cfg.MCP.Servers) == 0 {
		return u
	}
	known, err := upstream.ReadKnown(u.path)
	if err != nil {
		u.log.Warn("tools of MCP servers not read", zap.Error(err))
	}
	for name, c := range cfg.MCP.Servers {
		digest, _ := upstream.Digest(c.Argv, c.Env, c.Environment, c.Workspace) // texts can be encoded
		s := &upstreamServer{name: name, cfg: c, digest: digest, listing: make(chan struct{}, 1)}
		if k := known[name]; k.Digest == s.digest && c.Environment != config.EnvironmentHost {
			s.tools = k.Tools
		}
		spec := dray.ProcessSpec{Argv: c.Argv, Env: c.Env, Grace: cfg.Limits.Grace}
		environment, timeout := d.mcpHost(c), mcpStartTimeout
		if c.Environment == config.EnvironmentHost {
			spec.Dir = c.Workspace
		} else {
			environment, timeout = d.mcpContainer(c), timeout+cfg.Devcontainer.UpTimeout
		}
		s.Server = upstream.New(upstream.Config{
			Name: name, Environment: environment, Spec: spec, StartTimeout: timeout,
			Grace: cfg.Limits.Grace, MaxCalls: cfg.Limits.PerContainer, Delay: mcpRetryDelay,
			Version: thisBuild().Version,
		})
		u.servers[name] = s
	}
	return u
}

func (d *daemon) mcpHost(c config.MCPServer) func(context.Context) (dray.Environment, error) {
	return func(context.Context) (dray.Environment, error) {
		return d.host.Environment(c.Workspace), nil
	}
}

func (d *daemon) mcpContainer(c config.MCPServer) func(context.Context) (dray.Environment, error) {
	return func(ctx context.Context) (dray.Environment, error) {
		route := dray.Route{Environment: dray.KindContainer, Workspace: c.Workspace}
		inv := dray.Invocation{Workspace: c.Workspace, Principal: d.principal()}
		return d.workspaces.Environment(ctx, route, inv, func(string, string) {})
	}
}

// startUpstreams starts the servers on the host in the background.
func (d *daemon) startUpstreams(ctx context.Context) {
	u := d.upstreams
	ctx, u.stop = context.WithCancel(context.WithoutCancel(ctx))
	var starts sync.WaitGroup
	for _, s := range u.servers {
		if s.cfg.Environment != config.EnvironmentHost {
			continue
		}
		starts.Go(func() {
			if err := d.listUpstream(ctx, s); err != nil && ctx.Err() == nil {
				u.log.Warn("MCP server failed", zap.String("server", s.name), zap.Error(err))
			}
		})
	}
	u.group.Go(func() {
		starts.Wait()
		close(u.started)
	})
}

// await waits for the first starts of the servers on the host, so that the first list of a client
// has their tools. Many clients list only once.
func (u *upstreams) await(ctx context.Context) {
	select {
	case <-u.started:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, mcpListWait)
	defer cancel()
	select {
	case <-u.started:
	case <-ctx.Done():
	}
}

// close ends all servers with their descendants.
func (u *upstreams) close() {
	u.stop()
	for _, s := range u.servers {
		u.group.Go(s.Close)
	}
	u.group.Wait()
}

// listUpstream reads the tools of a server, which it starts, once while the daemon runs. Calls get
// them with a new generation. It fails with the cause of ctx, also while another call lists them.
func (d *daemon) listUpstream(ctx context.Context, s *upstreamServer) error {
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.upstreams.isListed(s) {
		return nil
	}
	tools, err := s.Tools(ctx)
	if ctx.Err() == nil {
		d.upstreams.setFailure(s, err)
	}
	if err != nil {
		return err
	}
	d.upstreams.learn(s, tools)
	d.reloading.Lock()
	defer d.reloading.Unlock()
	old := d.current.Load()
	next, err := d.newGeneration(old.cfg, old.policies)
	if err != nil {
		return err
	}
	next.loadedAt = old.loadedAt
	d.use(next)
	d.upstreams.setListed(s)
	return nil
}

// learn sets the tools of a server.
func (u *upstreams) learn(s *upstreamServer, tools []upstream.Tool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	changed := !slices.EqualFunc(s.tools, tools, func(a, b upstream.Tool) bool {
		return a.Name == b.Name && a.Description == b.Description &&
			bytes.Equal(a.InputSchema, b.InputSchema) && bytes.Equal(a.OutputSchema, b.OutputSchema)
	})
	s.tools = tools
	if changed && s.cfg.Environment != config.EnvironmentHost {
		u.write()
	}
}

func (u *upstreams) setListed(s *upstreamServer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.listed = true
}

func (u *upstreams) setFailure(s *upstreamServer, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.failure = err
}

// warnings returns why tools of servers are not listed, by the names of the servers.
func (u *upstreams) warnings() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(u.servers)) {
		switch s := u.servers[name]; {
		case s.failure != nil:
			e := dray.AsError(s.failure)
			why := strings.TrimPrefix(e.Message, fmt.Sprintf("MCP server %s cannot be used: ", name))
			all = append(all, fmt.Sprintf("MCP server %s has no tools: %s; %s", name, why, e.Hint))
		case s.listed || len(s.tools) > 0:
		case s.cfg.Environment == config.EnvironmentHost:
			all = append(all, fmt.Sprintf("MCP server %s is still starting", name))
		default:
			all = append(all, fmt.Sprintf("MCP server %s was never started: the first call of a tool named "+
				"%s%s... starts it in the devcontainer of %s, and lists its tools", name, name, mcpSeparator,
				s.cfg.Workspace))
		}
	}
	return all
}

func (u *upstreams) isListed(s *upstreamServer) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return s.listed
}

// upstreamTool finds a tool of a server whose tools are not listed yet. The call lists them, so
// that nothing starts before the call is recorded and policy has decided about it.
func (d *daemon) upstreamTool(ctx context.Context, name string) (t *dray.Tool, ok bool, err error) {
	server, own, _ := strings.Cut(name, mcpSeparator)
	s := d.upstreams.servers[server]
	if s == nil || name == server {
		return nil, false, nil
	}
	if s.cfg.Environment == config.EnvironmentHost {
		d.upstreams.await(ctx) // it started with the daemon, and its schemas say what is secret
	}
	registry := d.current.Load().tools
	if d.upstreams.isListed(s) {
		t, err = registry.Get(ctx, name)
		return t, true, err
	}
	call := func(ctx context.Context, arguments json.RawMessage) (tool.UpstreamReply, error) {
		return d.callUnlisted(ctx, s, own, arguments)
	}
	t, err = registry.UnlistedUpstream(ctx, s.tool(upstream.Tool{Name: own}), call)
	return t, true, err
}

// callUnlisted calls a tool that must be one of the server and accept the arguments.
func (d *daemon) callUnlisted(ctx context.Context, s *upstreamServer, name string,
	arguments json.RawMessage,
) (tool.UpstreamReply, error) {
	err := d.listUpstream(ctx, s)
	if err != nil {
		return tool.UpstreamReply{}, err
	}
	t, err := d.current.Load().tools.Get(ctx, s.name+mcpSeparator+name)
	if err == nil {
		err = t.CheckInput(arguments)
	}
	if err != nil {
		return tool.UpstreamReply{}, err
	}
	return d.callUpstream(ctx, s, name, arguments)
}

// addUpstreams registers the known tools. A tool that cannot be registered is left out.
func (d *daemon) addUpstreams(registry *tool.Registry) {
	u := d.upstreams
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(u.servers)) {
		s := u.servers[name]
		for _, t := range s.tools {
			if t.Name == "" { // what remains is no name of a tool of this server
				continue
			}
			err := registry.AddUpstream(s.tool(t), func(ctx context.Context, arguments json.RawMessage,
			) (tool.UpstreamReply, error) {
				return d.callUpstream(ctx, s, t.Name, arguments)
			})
			if err != nil {
				u.log.Warn("tool of an MCP server left out", zap.String("server", name), zap.Error(err))
			}
		}
	}
}

// tool returns what is known about a tool. The annotations of the server are not used, because it
// could lie.
func (s *upstreamServer) tool(t upstream.Tool) dray.Tool {
	data := dray.Tool{
		Name: s.name + mcpSeparator + t.Name, Description: t.Description,
		InputSchema: t.InputSchema, OutputSchema: t.OutputSchema,
		Capabilities: dray.ToolCapabilities(s.cfg.Capabilities), Definition: s.digest,
		Environment: dray.Requirement{Kind: dray.RequireHost},
	}
	if s.cfg.Environment != config.EnvironmentHost {
		data.Environment = dray.Requirement{
			Kind: dray.RequireSpecific, Container: s.cfg.Workspace,
		}
	}
	return data
}

func (d *daemon) callUpstream(ctx context.Context, s *upstreamServer, name string,
	arguments json.RawMessage,
) (tool.UpstreamReply, error) {
	reply, err := s.Call(ctx, name, arguments)
	if err != nil {
		return tool.UpstreamReply{}, err
	}
	if !d.upstreams.isListed(s) { // its tools may not be those of the file
		if err := d.listUpstream(ctx, s); err != nil {
			d.log.Warn("tools of an MCP server not read", zap.String("server", s.name), zap.Error(err))
		}
	}
	return tool.UpstreamReply(reply), nil
}

// write writes the file. mu must be held.
func (u *upstreams) write() {
	known := map[string]upstream.Known{}
	for name, s := range u.servers {
		if s.cfg.Environment != config.EnvironmentHost && s.tools != nil {
			known[name] = upstream.Known{Digest: s.digest, Tools: s.tools}
		}
	}
	if err := upstream.WriteKnown(u.path, known); err != nil {
		u.log.Warn("tools of MCP servers not kept", zap.Error(err))
	}
}
