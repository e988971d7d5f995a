package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/lexical"
)

// mcpClient describes the configuration file of an MCP client.
type mcpClient struct {
	// file is relative to the project, or begins with ~ for the home directory.
	file string
	// section is the member of the file that has the servers. Empty: the file is TOML.
	section string
	// server returns the value of the member for a server that is started with a command.
	server func(command []string) any
	// next is what remains to be done.
	next string
	// elsewhere: the client starts its servers outside the project.
	elsewhere bool
}

// mcpClients are the clients by the names that the command takes.
var mcpClients = map[string]mcpClient{
	"claude-code": {
		file: ".mcp.json", section: "mcpServers", server: commandAndArgs,
		next: "start claude in the project, and allow the server when it asks",
	},
	"claude-desktop": {
		file: "~/.config/Claude/claude_desktop_config.json", section: "mcpServers",
		server: commandAndArgs, next: "restart the program", elsewhere: true,
	},
	"codex": {
		file: "~/.codex/config.toml", server: commandAndArgs, next: "start codex in the project",
	},
	"cursor": {
		file: ".cursor/mcp.json", section: "mcpServers", server: commandAndArgs,
		next: "enable the server in the settings, under MCP",
	},
	"gemini": {
		file: "~/.gemini/settings.json", section: "mcpServers", server: commandAndArgs,
		next: "start gemini in the project",
	},
	"opencode": {
		file: "opencode.json", section: "mcp", server: commandList,
		next: "start opencode in the project",
	},
	"vscode": {
		file: ".vscode/mcp.json", section: "servers", server: typedCommand,
		next: "start the server from the file, or with the command \"MCP: List Servers\"",
	},
	"windsurf": {
		file: "~/.codeium/windsurf/mcp_config.json", section: "mcpServers", server: commandAndArgs,
		next: "refresh the servers in the settings", elsewhere: true,
	},
	"zed": {
		file: ".zed/settings.json", section: "context_servers", server: commandAndArgs,
		next: "restart zed",
	},
}

// inHome reports whether the file is the user's, and not a project's that others may share.
func (c mcpClient) inHome() bool { return strings.HasPrefix(c.file, "~/") }

type mcpServer struct {
	Type    string   `json:"type,omitzero"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func commandAndArgs(argv []string) any { return mcpServer{"", argv[0], argv[1:]} }

func typedCommand(argv []string) any { return mcpServer{"stdio", argv[0], argv[1:]} }

func commandList(argv []string) any {
	return struct {
		Type    string   `json:"type"`
		Command []string `json:"command"`
		Enabled bool     `json:"enabled"`
	}{"local", argv, true}
}

// mcpInstall are the flags of mcp install.
type mcpInstall struct {
	workspace string
	write     bool
}

func newMCPInstall(a *app) *cobra.Command {
	var f mcpInstall
	names := slices.Sorted(maps.Keys(mcpClients))
	cmd := &cobra.Command{
		Use:   "install CLIENT",
		Short: "Print or write the configuration of an MCP client",
		Long: `install prints what an MCP client needs in its configuration to use dray, and the file
that it belongs in. With --write it writes the file: it adds the server "dray", or
changes its command, and leaves everything else as it is, comments too.

The state directory and the configuration file of this shell (--state, DRAY_STATE,
--config, DRAY_CONFIG) become flags of the command, since clients start their servers
with few variables. For claude-desktop and windsurf, which start them outside the
project, the workspace becomes one too.

Clients: ` + strings.Join(names, ", ") + `

` + exitHelpOthers,
		Example:   "  dray mcp install claude-code\n  dray mcp install cursor --write",
		Args:      oneArg("one client", "for example: dray mcp install claude-code"),
		ValidArgs: names,
	}
	addWorkspaceFlag(cmd, &f.workspace)
	cmd.Flags().BoolVar(&f.write, "write", false, "write the client's configuration file")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		one, ok := mcpClients[args[0]]
		if !ok {
			return unknownMCPClient(args[0], names)
		}
		return a.installMCP(ctx, one, f)
	})
	return cmd
}

func unknownMCPClient(name string, known []string) error {
	near := slices.DeleteFunc(slices.Clone(known), func(k string) bool {
		return name == "" || !strings.HasPrefix(k, name)
	})
	if len(near) == 0 {
		if one := lexical.Closest(name, known); one != "" {
			near = []string{one}
		}
	}
	if len(near) > 0 {
		return usagef("unknown client %q", name).WithHint("did you mean %s?", strings.Join(near, " or "))
	}
	return usagef("unknown client %q", name).WithHint("use one of %s; others read the same in a file "+
		"of their own", strings.Join(known, ", "))
}

func (a *app) installMCP(ctx context.Context, one mcpClient, f mcpInstall) error {
	current, err := currentDir()
	if err != nil {
		return err
	}
	project, err := f.project(ctx, current, one.elsewhere)
	if err != nil {
		return err
	}
	argv, err := a.bridgeCommand(one, project)
	if err != nil {
		return err
	}
	file, err := one.path(cmp.Or(project, current))
	if err != nil {
		return err
	}
	a.warnOfVariables()
	if f.write {
		return a.writeMCP(one, file, argv)
	}
	text, err := one.snippet(argv)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s\n", text)
	fmt.Fprintf(a.err, "dray: add this to %s; then %s\n", escapeLine(file), one.next)
	return outputError(err)
}

// warnOfVariables warns of settings that only this shell has: many clients start their servers with
// a few variables, so the daemon that such a client starts is without them.
func (a *app) warnOfVariables() {
	names := slices.DeleteFunc(configVariables(os.Environ()), func(name string) bool {
		return name == "DRAY_CONFIG" // it becomes a flag
	})
	if len(names) == 0 {
		return
	}
	instead := "put such settings into the configuration file"
	if cfg, err := a.load(); err == nil {
		instead = fmt.Sprintf("set %s in %s instead", strings.Join(variableKeys(cfg), ", "),
			escapeLine(cfg.FileToEdit()))
	}
	fmt.Fprintf(a.err, "dray: warning: the client may start dray without %s of this shell; %s\n",
		strings.Join(names, ", "), instead)
}

// variableKeys returns the keys of a configuration that variables decide, with those of the docker
// CLI if it selects no engine.
func variableKeys(cfg *config.Config) []string {
	var keys []string
	for _, s := range cfg.FromVariables() {
		keys = append(keys, s.Key)
	}
	if cfg.Engine == (config.Engine{}) {
		for i, key := range []string{"engine.host", "engine.context"} {
			if os.Getenv(engineVars()[i]) != "" {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// project returns the workspace of the flag. Without one it is, if required, the workspace of the
// current directory or that directory, and else empty: calls run where the client starts dray.
func (f mcpInstall) project(ctx context.Context, current string, required bool) (string, error) {
	if f.workspace == "" {
		if required {
			return cmp.Or(nearestWorkspace(ctx, current), current), nil
		}
		return "", nil
	}
	dir := absolute(current, f.workspace)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", dray.Errorf(dray.CodeWorkspaceNotFound,
			"workspace folder %s does not exist or is not a directory", dir).
			WithHint("check the spelling of --workspace")
	}
	return dir, nil
}

// writeMCP writes the file of a client.
func (a *app) writeMCP(one mcpClient, file string, argv []string) error {
	if one.section == "" {
		return dray.Errorf(dray.CodeUnsupported, "%s is not JSON, and is not written", file).
			WithHint("run it without --write, and add the text to the file")
	}
	changed, err := one.writeTo(file, argv)
	if err != nil {
		return err
	}
	did := "has the server dray now"
	if !changed {
		did = "has the server dray already"
	}
	_, err = fmt.Fprintf(a.out, "%s %s; %s\n", escapeLine(file), did, one.next)
	return outputError(err)
}

// bridgeCommand returns the command line of the bridge: this program, in the file of a project by
// its name if that is found in PATH. The PATH of a desktop program is not that of a shell.
func (a *app) bridgeCommand(one mcpClient, workspace string) ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if found, err := exec.LookPath("dray"); err == nil && sameFile(found, program) {
		if program = found; !one.inHome() {
			program = "dray"
		}
	}
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	argv := []string{program, "mcp"}
	if workspace != "" {
		argv = append(argv, "--workspace", workspace)
	}
	if cfg.Origin("state") != (config.Origin{}) {
		argv = append(argv, "--state", string(cfg.State))
	}
	moved := cmp.Or(a.config, os.Getenv("DRAY_CONFIG"), os.Getenv("XDG_CONFIG_HOME")) != ""
	if cfg.File != "" && moved {
		argv = append(argv, "--config", cfg.File)
	}
	return argv, nil
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// path returns the configuration file of the client, for a project in dir.
func (c mcpClient) path(dir string) (string, error) {
	if !c.inHome() {
		return filepath.Join(dir, c.file), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", dray.Errorf(dray.CodeNotFound, "find the home directory: %w", err).
			WithHint("set HOME")
	}
	return filepath.Join(home, strings.TrimPrefix(c.file, "~/")), nil
}

// snippet returns the text of a file with the server alone.
func (c mcpClient) snippet(argv []string) (string, error) {
	if c.section == "" {
		args, err := json.Marshal(argv[1:])
		return fmt.Sprintf("[mcp_servers.dray]\ncommand = %q\nargs = %s", argv[0], args), err
	}
	text, err := json.Marshal(map[string]any{c.section: map[string]any{"dray": c.server(argv)}},
		jsontext.WithIndent("  "))
	return string(text), err
}

// writeTo adds the server to a file, which it makes if there is none, and reports whether that has
// changed it.
func (c mcpClient) writeTo(file string, argv []string) (changed bool, err error) {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, dray.Errorf(dray.CodePathInvalid, "read the client's configuration: %w", err).
			WithHint("run it without --write, and add the text to the client's configuration")
	}
	text, err := c.withServer(old, argv)
	if err != nil {
		at, _ := errors.AsType[*jsonEditError](err)
		if at == nil {
			return false, err
		}
		return false, dray.Errorf(dray.CodeInvalidRequest, "%s:%v", file, at).
			WithHint("correct the file, and repeat the command; without --write it prints what to add")
	}
	if bytes.Equal(old, text) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, fmt.Errorf("create the directory of the client's configuration: %w", err)
	}
	return true, replaceFile(file, text)
}

// withServer returns the text of a file with the server. Of a server that is there already the
// members stay that this program does not set, such as its environment.
func (c mcpClient) withServer(text []byte, argv []string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	server, err := json.Marshal(c.server(argv))
	if err != nil {
		return nil, err
	}
	path := []string{c.section, "dray"}
	if _, found, err := jsonMember(text, append(path, "command")...); err != nil || !found {
		if err != nil {
			return nil, err
		}
		return setJSONMember(text, server, path...)
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(server, &members); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		old, found, err := jsonMember(text, append(path, name)...)
		if err == nil && (!found || !sameJSON(old, members[name])) {
			text, err = setJSONMember(text, members[name], append(path, name)...)
		}
		if err != nil {
			return nil, err
		}
	}
	return text, nil
}

// replaceFile writes a file as a whole. A symlink stays, and an existing file keeps its mode.
func replaceFile(file string, data []byte) error {
	mode := fs.FileMode(0o600)
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
		if info, err := os.Stat(file); err == nil {
			mode = info.Mode().Perm()
		}
	}
	err := helper.ReplaceFile(file, data)
	if err == nil {
		err = os.Chmod(file, mode)
	}
	if err != nil {
		return fmt.Errorf("write the client's configuration: %w", err)
	}
	return nil
}
