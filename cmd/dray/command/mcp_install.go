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
	"github.com/dray-dev/dray/internal/devcontainer/helper"
)

// mcpClient describes the configuration file of an MCP client.
type mcpClient struct {
	// file is relative to the project, or begins with ~ for the home directory.
	file string
	// section is the member of the file that has the servers. Empty: the file is TOML.
	section string
	// server returns the value of the member for a server that is started with a command.
	server func(command []string) any
}

// mcpClients are the clients by the names that the command takes.
var mcpClients = map[string]mcpClient{
	"claude-code":    {".mcp.json", "mcpServers", commandAndArgs},
	"claude-desktop": {"~/.config/Claude/claude_desktop_config.json", "mcpServers", commandAndArgs},
	"codex":          {"~/.codex/config.toml", "", commandAndArgs},
	"cursor":         {".cursor/mcp.json", "mcpServers", commandAndArgs},
	"gemini":         {"~/.gemini/settings.json", "mcpServers", commandAndArgs},
	"opencode":       {"opencode.json", "mcp", commandList},
	"vscode":         {".vscode/mcp.json", "servers", typedCommand},
	"windsurf":       {"~/.codeium/windsurf/mcp_config.json", "mcpServers", commandAndArgs},
	"zed":            {".zed/settings.json", "context_servers", commandAndArgs},
}

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
	names := strings.Join(slices.Sorted(maps.Keys(mcpClients)), ", ")
	cmd := &cobra.Command{
		Use:   "install CLIENT",
		Short: "Print or write the configuration of an MCP client",
		Long: `install prints what an MCP client needs in its configuration to use dray, and the file
that it belongs in. With --write it writes the file: it adds the server "dray", or
replaces it, and changes nothing else. A file with comments is not written.

Clients: ` + names + `

` + exitHelpOthers,
		Example: "  dray mcp install claude-code\n  dray mcp install cursor --write",
		Args:    oneArg("one client", "for example: dray mcp install claude-code"),
	}
	addWorkspaceFlag(cmd, &f.workspace)
	cmd.Flags().BoolVar(&f.write, "write", false, "write the client's configuration file")
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		one, ok := mcpClients[args[0]]
		if !ok {
			return usagef("unknown client %q: the clients are %s", args[0], names)
		}
		return a.installMCP(one, f)
	})
	return cmd
}

func (a *app) installMCP(one mcpClient, f mcpInstall) error {
	current, err := currentDir()
	if err != nil {
		return err
	}
	argv, err := a.bridgeCommand(current, f.workspace)
	if err != nil {
		return err
	}
	file, err := one.path(cmp.Or(f.workspace, current))
	if err != nil {
		return err
	}
	text, err := one.snippet(argv)
	if err != nil {
		return err
	}
	if !f.write {
		_, err = fmt.Fprintf(a.out, "%s\n", text)
		fmt.Fprintf(a.err, "dray: add this to %s\n", escapeLine(file))
		return outputError(err)
	}
	if one.section == "" {
		return dray.Errorf(dray.CodeUnsupported, "%s is not JSON, and is not written", file).
			WithHint("run it without --write, and add the text to the file")
	}
	if err := one.writeTo(file, argv); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%s has the server dray; restart the client\n", escapeLine(file))
	return outputError(err)
}

// bridgeCommand returns the command line of the bridge: this program, by its name if that is found
// in PATH.
func (a *app) bridgeCommand(current, workspace string) ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if found, err := exec.LookPath("dray"); err == nil && sameFile(found, program) {
		program = "dray"
	}
	argv := []string{program, "mcp"}
	for _, flag := range []struct{ name, value string }{
		{"--workspace", workspace}, {"--state", a.state}, {"--config", a.config},
	} {
		if flag.value != "" {
			argv = append(argv, flag.name, absolute(current, flag.value))
		}
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
	rest, inHome := strings.CutPrefix(c.file, "~/")
	if !inHome {
		return filepath.Join(dir, c.file), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", dray.Errorf(dray.CodeNotFound, "find the home directory: %w", err).
			WithHint("set HOME")
	}
	return filepath.Join(home, rest), nil
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

// writeTo adds the server to a file, or replaces it there. It creates a file that does not exist.
func (c mcpClient) writeTo(file string, argv []string) error {
	old, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte("{}"), os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return fmt.Errorf("read the client's configuration: %w", err)
	}
	server, err := json.Marshal(c.server(argv))
	if err != nil {
		return err
	}
	servers, err := member(old, c.section)
	if err == nil {
		servers, err = withMember(servers, "dray", server)
	}
	var text jsontext.Value
	if err == nil {
		text, err = withMember(old, c.section, servers)
	}
	if err == nil {
		err = text.Indent(jsontext.WithIndent("  "))
	}
	if err != nil {
		return dray.Errorf(dray.CodeInvalidRequest, "%s is not a JSON object without comments: %w", file,
			err).WithHint("run it without --write, and add the text to the file")
	}
	return replaceFile(file, append(text, '\n'))
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

// member returns a member of an object, which must be an object too; {} if there is none.
func member(object jsontext.Value, name string) (jsontext.Value, error) {
	members := map[string]jsontext.Value{}
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	if value, ok := members[name]; ok {
		return value, nil
	}
	return jsontext.Value("{}"), nil
}

// withMember returns an object with a member replaced, or added at its end. The other members keep
// their order.
func withMember(object jsontext.Value, name string, value jsontext.Value) (jsontext.Value, error) {
	in := jsontext.NewDecoder(bytes.NewReader(object))
	var b bytes.Buffer
	out := jsontext.NewEncoder(&b)
	if token, err := in.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, cmp.Or(err, errors.New("it is not an object"))
	}
	if err := out.WriteToken(jsontext.BeginObject); err != nil {
		return nil, err
	}
	for in.PeekKind() == '"' {
		key, err := in.ReadToken()
		if err != nil {
			return nil, err
		}
		text := key.String()
		old, err := in.ReadValue()
		if err != nil {
			return nil, err
		}
		if text == name {
			continue
		}
		if err := errors.Join(out.WriteToken(jsontext.String(text)), out.WriteValue(old)); err != nil {
			return nil, err
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return nil, err
	}
	err := errors.Join(out.WriteToken(jsontext.String(name)), out.WriteValue(value),
		out.WriteToken(jsontext.EndObject))
	return bytes.TrimSpace(b.Bytes()), err
}
