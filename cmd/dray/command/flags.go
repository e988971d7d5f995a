package command

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// callFlags is where a call is to run and under which conditions, as the flags of exec, call and
// route explain say it.
type callFlags struct {
	workspace, container, cwd string
	host                      bool
	env                       []string
	timeout                   time.Duration
	leftovers                 string
	rewrite, noRewrite        bool
	sync                      []string
}

func (t *callFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&t.workspace, "workspace", "w", "", "workspace `folder` (default the nearest with a devcontainer)")
	f.StringVar(&t.container, "container", "", "run in this `container`, by name or id")
	f.BoolVar(&t.host, "host", false, "run on the host")
	f.StringVar(&t.cwd, "cwd", "", "working `folder` (default the current one)")
	f.StringArrayVarP(&t.env, "env", "e", nil, "set a variable, `K=V` (may be repeated)")
}

func (t *callFlags) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&t.timeout, "timeout", 0, "end the call after this `time`, such as 90s")
}

// leftoversFlag adds --leftovers to the commands that make a call.
func (t *callFlags) leftoversFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.leftovers, "leftovers", "", "what becomes of processes that the tool leaves running: `kill` (default) or keep")
}

// rewriteFlags adds --rewrite and --no-rewrite to the commands that make a call.
func (t *callFlags) rewriteFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.rewrite, "rewrite", false,
		"rewrite the container's paths in the text output to the host's")
	cmd.Flags().BoolVar(&t.noRewrite, "no-rewrite", false,
		"leave text output as it is, whatever the tool's configuration says")
}

// syncFlag adds --sync to the commands that make a call.
func (t *callFlags) syncFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&t.sync, "sync", nil, "bring this file or folder home when the call ends, a `path` of either side or relative to the working folder (may be repeated)")
}

// call makes the body of a call of a tool.
func (t *callFlags) call(cmd *cobra.Command, tool string, input jsontext.Value) (client.Call,
	error,
) {
	call := client.Call{
		Tool: tool, Input: input, Container: t.container,
		Leftovers: dray.Leftovers(t.leftovers), Sync: t.sync,
	}
	if t.host {
		call.Environment = dray.ChooseHost
	}
	if t.host && t.container != "" {
		return call, usagef("--host and --container contradict each other")
	}
	if l := call.Leftovers; l != "" && l != dray.KillLeftovers && l != dray.KeepLeftovers {
		return call, usagef("--leftovers %s is neither kill nor keep", t.leftovers)
	}
	if t.rewrite && t.noRewrite {
		return call, usagef("--rewrite and --no-rewrite contradict each other")
	}
	if t.rewrite || t.noRewrite {
		call.RewriteText = &t.rewrite
	}
	if err := t.setTimeout(cmd, &call); err != nil {
		return call, err
	}
	if err := t.variables(&call); err != nil {
		return call, err
	}
	if err := t.resolvePaths(&call); err != nil {
		return call, err
	}
	return call, checkUTF8(call)
}

// setTimeout takes the timeout over, which has to be one where it is given.
func (t *callFlags) setTimeout(cmd *cobra.Command, call *client.Call) error {
	if f := cmd.Flags().Lookup("timeout"); f != nil && f.Changed && t.timeout <= 0 {
		return usagef("--timeout %s is not above 0", t.timeout)
	}
	call.TimeoutSeconds = t.timeout.Seconds()
	return nil
}

func (t *callFlags) variables(call *client.Call) error {
	for _, pair := range t.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return usagef("--env %q is not of the form K=V", pair)
		}
		if call.Env == nil {
			call.Env = map[string]string{}
		}
		call.Env[name] = value
	}
	return nil
}

// resolvePaths finds workspace and working folder. A container that is named belongs to its own
// workspace, if to any, so the caller's is not sent along.
func (t *callFlags) resolvePaths(call *client.Call) error {
	current, err := currentFolder()
	if err != nil {
		return err
	}
	call.Cwd = t.cwd
	switch {
	case t.workspace != "":
		call.Workspace = absolute(current, t.workspace)
	case t.container != "":
		return nil
	default:
		call.Cwd = absolute(current, t.cwd)
		// --cwd may be a folder of the container's own
		call.Workspace = cmp.Or(nearestWorkspace(call.Cwd), nearestWorkspace(current))
	}
	if t.cwd == "" && beneath(call.Workspace, current) {
		call.Cwd = current
	}
	if call.Workspace != "" && !t.host {
		call.LocalEnv = localEnv(call.Workspace)
	}
	return nil
}

// absolute resolves a path against a folder, both by their letters. What is absolute stays as it
// is: to judge it is the daemon's business.
func absolute(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// beneath says whether a path is a folder or lies in it. A folder that is empty holds nothing.
func beneath(folder, path string) bool {
	if folder == "" {
		return false
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// checkUTF8 refuses text that JSON cannot carry byte for byte, rather than to run something else
// than what was asked for.
func checkUTF8(call client.Call) error {
	texts := append([]string{call.Workspace, call.Container, call.Cwd}, call.Sync...)
	for k, v := range call.Env {
		texts = append(texts, k, v)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return usagef("%q is not UTF-8", s).WithHint("a request is JSON, which carries UTF-8 only")
		}
	}
	return nil
}

// nearestWorkspace finds the workspace that a folder lies in, empty for none.
func nearestWorkspace(folder string) string {
	found, _ := devcontainer.Nearest(folder, string(filepath.Separator))
	return found
}

// currentFolder is where we were started.
func currentFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", dray.Errorf(dray.CodeBadCwd, "finding the current folder: %w", err).
			WithHint("change to a folder that exists")
	}
	return dir, nil
}

// workspaceFolder is the workspace that a command is about: the given folder, else the nearest one.
func workspaceFolder(current, given string) (string, error) {
	if given != "" {
		return absolute(current, given), nil
	}
	found, err := devcontainer.FindWorkspace(current)
	return found.Workspace, err
}

// maxConfiguration is how much of a configuration is looked through, in bytes.
const maxConfiguration = 1 << 20

// localVariable is a variable of the host in a configuration, wherever it stands: a name in a
// comment only sends a value that nobody asks for.
var localVariable = regexp.MustCompile(`\$\{(?:localEnv|env):([^:}\s]+)`)

// localEnv gives the values that the caller has for the ${localEnv:X} of a workspace's
// configuration. The daemon hands them on only if the workspace is trusted. A configuration that is
// missing or cannot be read uses none: what is wrong with it is said where it is used.
func localEnv(workspace string) map[string]string {
	found, err := devcontainer.Locate(workspace, "")
	if err != nil {
		return nil
	}
	// what became a FIFO meanwhile must not hold us up
	f, err := os.OpenFile(found.Config, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfiguration))
	if err != nil {
		return nil
	}
	return valuesOf(localVariable.FindAllSubmatch(text, -1))
}

func valuesOf(matches [][][]byte) map[string]string {
	values := map[string]string{}
	for _, m := range matches {
		if value, ok := os.LookupEnv(string(m[1])); ok {
			values[string(m[1])] = value
		}
	}
	return values
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, and %q is one", cmd.CommandPath(), args[0])
	}
	return nil
}

// exactArgs wants n arguments and says what they are.
func exactArgs(n int, what, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %s", cmd.CommandPath(), what).WithHint("%s", hint)
		}
		return nil
	}
}

// atMostOne allows one argument.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%s takes %s, and %q is one too many", cmd.CommandPath(), what, args[1])
		}
		return nil
	}
}
