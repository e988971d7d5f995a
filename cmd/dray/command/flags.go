package command

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// callFlags are the flags of exec, call and route explain: where a call runs, and its options.
type callFlags struct {
	workspace, container, cwd string
	host                      bool
	env                       []string
	timeout                   time.Duration
	leftovers                 string
	rewrite, noRewrite        bool
	paths                     string
	sync                      []string
	plan, session             string
	labels                    []string
	idempotencyKey            string
}

func addWorkspaceFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVarP(value, "workspace", "w", "",
		"workspace `folder` (default: the nearest one with a devcontainer)")
}

// addTarget adds the flags that decide where a call runs.
func (f *callFlags) addTarget(cmd *cobra.Command) {
	f.addPlace(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.cwd, "cwd", "", "working `directory` (default: the current one)")
	addPathsFlag(cmd, &f.paths)
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set the environment variable `K=V` (repeatable)")
	flags.StringVar(&f.plan, "plan", "",
		"`id` of the plan, whose routing and budget apply (default: $DRAY_PLAN_ID)")
}

func addPathsFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "paths", "",
		"`side` whose paths are written and read: host (then --rewrite is the default), or container: "+
			"then nothing is mapped, and --cwd is a directory of the container")
}

// checkPathsFlag returns the value of --paths.
func checkPathsFlag(value string) (dray.PathsSide, error) {
	side := dray.PathsSide(value)
	if side != "" && side != dray.PathsOfHost && side != dray.PathsOfContainer {
		return "", usagef("invalid value %q for --paths", value).WithHint("use host or container")
	}
	return side, nil
}

// addPlace adds the flags that name a workspace, a container or the host.
func (f *callFlags) addPlace(cmd *cobra.Command) {
	addWorkspaceFlag(cmd, &f.workspace)
	cmd.Flags().StringVar(&f.container, "container", "", "run in this `container`, by name or id")
	cmd.Flags().BoolVar(&f.host, "host", false, "run on the host")
}

// add adds all flags of a command that makes a call.
func (f *callFlags) add(cmd *cobra.Command) {
	f.addWithoutSession(cmd)
	cmd.Flags().StringVar(&f.session, "session", "",
		"`id` of the session, in whose shell exec and shell run (default: $DRAY_SESSION_ID, which is "+
			"only recorded)")
}

// addWithoutSession adds the flags of a command whose --session has another meaning.
func (f *callFlags) addWithoutSession(cmd *cobra.Command) {
	f.addTarget(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&f.timeout, "timeout", 0, "maximum `time` of the call, such as 90s")
	flags.StringVar(&f.leftovers, "leftovers", "",
		"what happens to processes left running when the tool exits, a `mode`: kill (default) or keep")
	flags.BoolVar(&f.rewrite, "rewrite", false, "rewrite container paths in text output to host paths")
	flags.BoolVar(&f.noRewrite, "no-rewrite", false, "do not rewrite paths in text output")
	flags.StringArrayVar(&f.labels, "label", nil, "record the label `K=V` with the call (repeatable)")
	flags.StringVar(&f.idempotencyKey, "idempotency-key", "",
		"make repeats of this command one call: a repeat with the same `key` gets the result of the "+
			"first one, or joins it while it runs, whatever its stdin is")
	flags.StringArrayVar(&f.sync, "sync", nil,
		"copy this file or directory to the host when the call ends: a host or container `path`, "+
			"relative to the working directory (repeatable)")
}

// call returns the request for a call of a tool.
func (f *callFlags) call(cmd *cobra.Command, tool string, input jsontext.Value,
) (client.Call, error) {
	call := client.Call{
		Tool: tool, Input: input, Container: f.container,
		Leftovers: dray.Leftovers(f.leftovers), Sync: f.sync,
		TimeoutSeconds: f.timeout.Seconds(), IdempotencyKey: f.idempotencyKey,
	}
	if f.host {
		call.Environment = dray.ChooseHost
	}
	if f.rewrite || f.noRewrite {
		call.RewriteText = &f.rewrite
	}
	l := call.Leftovers
	switch {
	case f.host && f.container != "":
		return call, usagef("--host and --container exclude each other")
	case l != "" && l != dray.KillLeftovers && l != dray.KeepLeftovers:
		return call, usagef("invalid value %q for --leftovers", f.leftovers).WithHint("use kill or keep")
	case f.rewrite && f.noRewrite:
		return call, usagef("--rewrite and --no-rewrite exclude each other")
	case cmd.Flags().Changed("idempotency-key") && f.idempotencyKey == "":
		return call, usagef("--idempotency-key is empty")
	case cmd.Flags().Changed("timeout") && f.timeout <= 0:
		return call, usagef("--timeout %s is not positive", f.timeout)
	}
	var err error
	if call.Paths, err = checkPathsFlag(f.paths); err != nil {
		return call, err
	}
	if call.Env, err = parsePairs("--env", f.env); err != nil {
		return call, err
	}
	if call.Context, err = f.context(); err != nil {
		return call, err
	}
	if err := f.resolvePaths(cmd.Context(), &call); err != nil {
		return call, err
	}
	return call, checkUTF8(call)
}

// parsePairs returns the values K=V of a flag.
func parsePairs(flag string, values []string) (map[string]string, error) {
	var pairs map[string]string
	for _, text := range values {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("invalid value %q for %s", text, flag).WithHint("use the form K=V")
		}
		if pairs == nil {
			pairs = map[string]string{}
		}
		pairs[name] = value
	}
	return pairs, nil
}

// context returns the context of a call: that of the flags, else of the environment.
func (f *callFlags) context() (dray.CallContext, error) {
	context, err := contextOf(f.plan)
	if err != nil {
		return context, err
	}
	context.SessionID = cmp.Or(f.session, context.SessionID)
	context.Labels, err = parsePairs("--label", f.labels)
	return context, err
}

// contextOf returns the context that the environment gives to a call of a plan, "" for that of the
// environment. A tool that calls dray stays within its own plan (RT-10).
func contextOf(plan string) (dray.CallContext, error) {
	outer, nested := os.Getenv(dray.EnvPlanID), os.Getenv(dray.EnvCallID) != ""
	if nested && outer != "" && plan != "" && plan != outer {
		return dray.CallContext{}, usagef("--plan %q: this command runs in a call of plan %q", plan,
			outer).WithHint("omit --plan: a nested call belongs to the plan of the call around it")
	}
	return dray.CallContext{
		PlanID: cmp.Or(plan, outer), SessionID: os.Getenv(dray.EnvSessionID),
		SandboxID: os.Getenv(dray.EnvSandboxID),
	}, nil
}

// resolvePaths sets the workspace and the working directory. With --container the workspace of the
// current directory is not sent: a named container has its own.
func (f *callFlags) resolvePaths(ctx context.Context, call *client.Call) error {
	current, err := currentDir()
	if err != nil {
		return err
	}
	call.Cwd, call.CwdIsDefault = f.cwd, f.cwd == ""
	if call.Paths == dray.PathsOfContainer {
		return f.resolveInContainer(ctx, call, current)
	}
	switch {
	case f.workspace != "":
		call.Workspace = absolute(current, f.workspace)
	case f.container != "":
		return nil
	default:
		call.Cwd = absolute(current, f.cwd)
		// --cwd may be a path in the container, which has no workspace on the host
		call.Workspace = cmp.Or(nearestWorkspace(ctx, call.Cwd), nearestWorkspace(ctx, current))
	}
	if f.cwd == "" && lexical.Contains(call.Workspace, current) {
		call.Cwd = current
	}
	if call.Workspace != "" && !f.host {
		call.LocalEnv = localEnv(ctx, call.Workspace)
	}
	return nil
}

// resolveInContainer sets the workspace of a call with paths of the container. Its default working
// directory is the current one in the workspace folder of the container.
func (f *callFlags) resolveInContainer(ctx context.Context, call *client.Call, current string,
) error {
	switch {
	case f.workspace != "":
		call.Workspace = absolute(current, f.workspace)
	case f.container == "":
		call.Workspace = nearestWorkspace(ctx, current)
	}
	if rest, ok := lexical.Rel(call.Workspace, current); ok && call.Workspace != "" && f.cwd == "" {
		call.Cwd = rest
	}
	if call.Workspace != "" {
		call.LocalEnv = localEnv(ctx, call.Workspace)
	}
	return nil
}

// absolute resolves a relative path against dir without following symlinks. An absolute path is
// returned unchanged: the daemon validates it.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// checkUTF8 returns an error for text that JSON cannot carry byte for byte: replaced bytes would
// change what runs.
func checkUTF8(call client.Call) error {
	texts := append([]string{call.Workspace, call.Container, call.Cwd}, call.Sync...)
	texts = append(texts, call.Context.PlanID, call.Context.SessionID, call.Context.SandboxID)
	for _, pairs := range []map[string]string{call.Env, call.Context.Labels} {
		for k, v := range pairs {
			texts = append(texts, k, v)
		}
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return notUTF8(s)
		}
	}
	return nil
}

func notUTF8(s string) error {
	return usagef("%q is not UTF-8", s).
		WithHint("requests are JSON: use names in UTF-8, or name the directory above it")
}

// nearestWorkspace returns the workspace that contains dir, or "".
func nearestWorkspace(ctx context.Context, dir string) string {
	found, _ := devcontainer.Nearest(ctx, dir, string(filepath.Separator))
	return found
}

func currentDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", dray.Errorf(dray.CodeBadCwd, "find the current directory: %w", err).
			WithHint("change to a directory that exists")
	}
	return dir, nil
}

// workspaceFolder returns the given workspace, else the one that contains the current directory.
func workspaceFolder(ctx context.Context, current, given string) (string, error) {
	if given != "" {
		return absolute(current, given), nil
	}
	found, err := devcontainer.FindWorkspace(ctx, current)
	return found.Workspace, err
}

// maxConfiguration bounds the bytes of a devcontainer.json that are searched for variables.
const maxConfiguration = 1 << 20

// localVariable matches a ${localEnv:X} anywhere in a configuration. A match in a comment only
// sends a value that the daemon does not use.
var localVariable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\$\{(?:localEnv|env):([^:}\s]+)`)
})

// localEnv returns the caller's values of the ${localEnv:X} in a workspace's configuration. The
// daemon uses them only if the workspace is trusted. It returns nil if the configuration cannot be
// read: the daemon reports why.
func localEnv(ctx context.Context, workspace string) map[string]string {
	found, err := devcontainer.Locate(ctx, workspace, "")
	if err != nil {
		return nil
	}
	text, err := linux.UntrustedDir(workspace).ReadFile(ctx, found.Config, maxConfiguration)
	if err != nil {
		return nil
	}
	values := map[string]string{}
	for _, m := range localVariable().FindAllSubmatch(text, -1) {
		if value, ok := os.LookupEnv(string(m[1])); ok {
			values[string(m[1])] = value
		}
	}
	return values
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("unexpected argument %q: %s takes no arguments", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return err.WithHint("did you mean %s %s?", cmd.CommandPath(), strings.Join(near, ", "))
	}
	return err
}

// noArgsBySession is noArgs for a command that is often given a session as an argument.
func noArgsBySession(cmd *cobra.Command, args []string) error {
	err := noArgs(cmd, args)
	if usage, ok := errors.AsType[usageError](err); ok && len(args) == 1 {
		return usage.WithHint("name a session with --session %s", lexical.ShellWord(args[0]))
	}
	return err
}

// oneArg requires one argument; what names them for the error.
func oneArg(what, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s takes %s", cmd.CommandPath(), what).WithHint("%s", hint)
		}
		return nil
	}
}

// atMostOne allows one argument; what names it for the error.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("unexpected argument %q: %s takes %s", args[1], cmd.CommandPath(), what)
		}
		return nil
	}
}

// atLeastOne requires an argument; what names it for the error.
func atLeastOne(what, example string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("missing %s", what).WithHint("for example: %s", example)
		}
		return nil
	}
}
