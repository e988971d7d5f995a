package command

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/policy"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/workspace"
)

func newReload(a *app) *cobra.Command {
	return a.onDaemon(&cobra.Command{
		Use:   "reload",
		Short: "Make the daemon read its configuration again",
		Long: `reload makes the daemon read its configuration file again, with the flags and the
environment variables that it was started with. The new configuration is applied as a
whole, or refused as a whole: if it is invalid, or if a changed key needs a restart.
Running calls keep the previous configuration. SIGHUP does the same; its outcome is
in the daemon's log. reload does not start a daemon: if none is running, it exits
with 3.

Applied without a restart: ` + strings.Join(reloadable, ", ") + `.`,
		Args: noArgs,
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		c.OnConfig = nil // it is about to change
		reply, err := c.Reload(ctx)
		return printReply(a, reply, err, func(r client.Reload) error {
			_, err := fmt.Fprintln(a.out, escapeLine("applied: "+
				cmp.Or(strings.Join(r.Changed, ", "), "nothing has changed")))
			return outputError(err)
		})
	})
}

// reloadable are the keys that apply without a restart. Budgets of routing.plans do not: what
// running calls use of them is counted.
var reloadable = []string{
	"limits.timeout", "limits.max_timeout", "limits.idle_timeout", "limits.grace",
	"routing.override", "routing.fallback", "routing.plans", "tools",
	"tool_dirs", "policy.files", "policy.approval_lifetime",
	"audit.keep", "audit.redact.patterns", "audit.redact.env",
	"retry.attempts",
	"retry.budget", "python.wall", "python.cpu",
	"python.prepare.source_builds", "python.prepare.index",
}

// generation is what calls get from one configuration. It never changes: a reload makes a new one,
// and calls keep the one that they began with.
type generation struct {
	cfg      *config.Config
	loadedAt time.Time
	api.Configured
	// chain runs calls, nested those of code in a Python session.
	chain, nested dray.Executor
	tools         *tool.Registry
	projectTools  *projectTools
	policies      *policy.Engine
}

// newGeneration fails if the tools or the rules of a configuration are invalid. It does not read
// the files of the policies: a change of their text applies only with a reload.
func (d *daemon) newGeneration(cfg *config.Config, policies *policy.Engine) (*generation, error) {
	rules, err := newRouter(cfg, d.workspaces.Nearest, d.workspaces.IsRegistered)
	if err != nil {
		return nil, err
	}
	tools, err := newToolRegistry(cfg, d.toolOptions(cfg))
	if err != nil {
		return nil, err
	}
	d.addUpstreams(tools)
	declared := &projectTools{
		read: d.workspaces.ToolsFile, daemon: tools, maxTimeout: cfg.Limits.MaxTimeout,
	}
	redaction, err := openRedaction(cfg)
	if err != nil {
		return nil, err
	}
	intake := &call.Intake{
		Redaction: redaction, Tools: tools, ProjectTools: declared.get, UpstreamTools: d.upstreamTool,
		Router: rules,
		Access: d.access, Budgets: d.budgets,
		Environments: workspace.Checker{Environments: d.environments, Breakers: d.breakers},
		MaxTimeout:   cfg.Limits.MaxTimeout, Policy: policyRefusal(policies),
	}
	return &generation{
		cfg: cfg, loadedAt: time.Now(), chain: d.newExecutor(cfg, policies),
		nested: d.newNestedExecutor(cfg, policies), tools: tools, policies: policies,
		projectTools: declared,
		Configured: api.Configured{
			Intake: intake, Tools: tools, ProjectTools: declared.list, ConfigDigest: configDigest(cfg),
			Denies: policyDenies(policies),
		},
	}, nil
}

// use makes a generation the present one.
func (d *daemon) use(g *generation) {
	d.current.Store(g)
	d.redactor.Store(g.Intake.Redaction.Base())
	if d.server != nil { // it is made with the first one
		d.server.Configure(&g.Configured)
	}
}

func (g *generation) status() api.ConfigStatus {
	return api.ConfigStatus{File: g.cfg.File, Digest: g.ConfigDigest, LoadedAt: g.loadedAt}
}

// execute runs a call with the present configuration.
func (d *daemon) execute(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
	g := d.current.Load()
	if isNested(ctx) {
		return g.nested.Execute(ctx, call, sink)
	}
	return g.chain.Execute(ctx, call, sink)
}

// Reload implements [api.Daemon].
func (d *daemon) Reload(ctx context.Context, principal string) (api.Reload, error) {
	if err := d.access.CheckOperator(principal, "reload the configuration"); err != nil {
		return api.Reload{}, err
	}
	d.reloading.Lock()
	defer d.reloading.Unlock()
	old := d.current.Load()
	cfg, err := loadAgain(old.cfg)
	if err != nil {
		return api.Reload{}, err
	}
	policies, err := newPolicies(cfg, d.workspaces.Mounts)
	if err != nil {
		return api.Reload{}, err
	}
	next, err := d.newGeneration(cfg, policies)
	if err != nil {
		return api.Reload{}, err
	}
	changed := old.cfg.Changed(cfg)
	if old.policies.Digest() != next.policies.Digest() && !slices.Contains(changed, "policy.files") {
		changed = append(changed, "policy.files") // the text of a file has changed
	}
	if len(changed) > 0 {
		event := &audit.ConfigReloaded{
			Principal: principal, File: cfg.File, Changed: changed, Before: old.ConfigDigest,
			After: next.ConfigDigest,
		}
		if err := d.audit.RecordEvent(ctx, event); err != nil {
			return api.Reload{}, err
		}
	}
	d.use(next)
	d.log.Info("configuration reloaded", zap.Strings("changed", changed))
	return api.Reload{Config: next.status(), Changed: changed}, nil
}

// loadAgain loads the configuration again and checks it like a daemon that starts. It fails if a
// change needs a restart.
func loadAgain(old *config.Config) (*config.Config, error) {
	cfg, err := old.Reload()
	if err == nil {
		err = checkStart(cfg)
	}
	if err != nil {
		return nil, dray.Errorf(dray.CodeInvalidRequest, "the configuration was not applied: %w", err).
			WithHint("correct it, and run dray reload again; the daemon keeps the previous one")
	}
	needRestart := slices.DeleteFunc(old.Changed(cfg), func(key string) bool {
		return slices.Contains(reloadable, key)
	})
	if !reflect.DeepEqual(planBudgets(old), planBudgets(cfg)) {
		needRestart = append(needRestart, "routing.plans (budget)")
	}
	if len(needRestart) > 0 {
		return nil, dray.Errorf(dray.CodeConflict,
			"the configuration was not applied: changes of these keys need a restart: %s",
			strings.Join(needRestart, ", ")).
			WithHint("run dray stop; the next command starts a daemon with the new configuration")
	}
	return cfg, nil
}

// Hangup implements [service].
func (d *daemon) Hangup(ctx context.Context) {
	if _, err := d.Reload(ctx, d.principal()); err != nil {
		d.log.Error("configuration not reloaded", zap.Error(err))
	}
}
