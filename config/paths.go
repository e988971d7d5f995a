package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/dray-dev/dray/internal/lexical"
)

// systemConfigFile is used by users without a configuration file of their own.
const systemConfigFile = "/etc/dray/config.yaml"

// maxFile is the maximum size of a configuration file in bytes.
const maxFile = 1 << 20

// configFile reads the configuration file: that of --config, DRAY_CONFIG, the user, the system, or
// none. A named file must exist, and an existing one must be readable: otherwise restrictions would
// silently not apply.
func (l *loader) configFile() (string, []byte) {
	if name := l.opts.ConfigFile; name != "" {
		return l.mustRead(name, Origin{Flag: "--config"})
	}
	if name := l.env["DRAY_CONFIG"]; name != "" {
		return l.mustRead(name, Origin{Variable: "DRAY_CONFIG"})
	}
	for _, name := range l.env.defaultFiles() {
		data, err := l.opts.ReadFile(name)
		switch {
		case err == nil:
			return name, data
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return l.unreadable(name, Origin{File: name}, err)
		}
	}
	return "", nil
}

// FileToEdit returns the configuration file that was read, or else the one that is looked for
// first.
func (c *Config) FileToEdit() string {
	if c.File != "" {
		return c.File
	}
	return parseEnviron(c.options.Environ).defaultFiles()[0]
}

// defaultFiles returns the files that are looked for without --config and DRAY_CONFIG, in order.
func (e environment) defaultFiles() []string {
	if dir := e.xdg("XDG_CONFIG_HOME", ".config"); dir != "" {
		return []string{filepath.Join(dir, "dray", "config.yaml"), systemConfigFile}
	}
	return []string{systemConfigFile}
}

func (l *loader) mustRead(name string, at Origin) (string, []byte) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return l.unreadable(name, at, err)
	}
	data, err := l.opts.ReadFile(abs)
	if err != nil {
		return l.unreadable(name, at, err)
	}
	return abs, data
}

// unreadable reports a file and returns none.
func (l *loader) unreadable(name string, at Origin, err error) (string, []byte) {
	fix := "make it readable for uid " + strconv.Itoa(os.Geteuid())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fix = "create it, or remove " + at.String() + ": dray then uses its default files, or none"
	case errors.Is(err, errTooLong):
		fix = "use a configuration file of at most 1 MiB"
	case errors.Is(err, syscall.EISDIR):
		fix = "use the file in it, for instance " + filepath.Join(name, "config.yaml")
	}
	l.add(Diagnostic{
		Origin: at, Key: "configuration file", Value: quoteValue(name),
		Problem: fmt.Sprintf("cannot be read: %v", cause(err)), Suggestion: fix,
	})
	return "", nil
}

var errTooLong = fmt.Errorf("longer than %d bytes", maxFile)

// readFile reads a file from the file system, up to maxFile.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLong
	}
	return data, err
}

// xdg returns a base directory of the XDG specification, which requires relative values to be
// ignored. It is empty without a home directory.
func (e environment) xdg(name, underHome string) string {
	if dir := e[name]; filepath.IsAbs(dir) {
		return dir
	}
	if home := e["HOME"]; filepath.IsAbs(home) {
		return filepath.Join(home, underHome)
	}
	return ""
}

// stateDir returns the state directory: that of --state, DRAY_STATE, or the user.
func (l *loader) stateDir() value {
	if l.opts.State != "" {
		return plain("state", l.opts.State, Origin{Flag: "--state"})
	}
	if dir := l.env["DRAY_STATE"]; dir != "" {
		return plain("state", dir, Origin{Variable: "DRAY_STATE"})
	}
	dir := l.env.xdg("XDG_STATE_HOME", filepath.Join(".local", "state"))
	switch dir {
	case "":
		return value{key: "state"}
	case l.env["XDG_STATE_HOME"]:
		return plain("state", filepath.Join(dir, "dray"), Origin{Variable: "XDG_STATE_HOME"})
	default:
		return plain("state", filepath.Join(dir, "dray"), Origin{})
	}
}

// state sets the state directory. A relative path is relative to the working directory.
func (d *decoder) state(v value) {
	d.recordOrigin(v)
	if v.shape == empty {
		d.addValue(v, "directory is unknown: neither HOME nor XDG_STATE_HOME is set",
			"set it with --state DIR or DRAY_STATE")
		return
	}
	dir, err := filepath.Abs(v.text)
	if err != nil || strings.ContainsRune(v.text, 0) {
		d.addValue(v, "is not a path", "set the state directory with --state DIR or DRAY_STATE")
		return
	}
	d.c.State = State(dir)
}

// maxSocket is the maximum length of the path of a unix socket in bytes, without the final NUL.
const maxSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// checkSocket refuses a path that is too long for a socket.
func (d *decoder) checkSocket(env environment) {
	path := d.c.Server.Socket
	if len(path) <= maxSocket {
		return
	}
	d.add(Diagnostic{
		Origin: d.c.Origin("server.socket"), Key: "server.socket", Value: quoteValue(path),
		Problem: fmt.Sprintf("has %d bytes, and the maximum of a socket path is %d", len(path),
			maxSocket),
		Suggestion: "set server.socket (or DRAY_SERVER_SOCKET) to a shorter path, for instance " +
			suggestSocketPath(env),
	})
}

// suggestSocketPath returns a short path in a private directory of this user.
func suggestSocketPath(env environment) string {
	uid := os.Geteuid()
	path := filepath.Join(env["XDG_RUNTIME_DIR"], "dray.sock")
	switch {
	case filepath.IsAbs(path) && len(path) <= maxSocket:
		return path
	case uid == 0:
		return "/run/dray.sock"
	default:
		return fmt.Sprintf("/run/user/%d/dray.sock", uid)
	}
}

// State is the state directory, absolute and clean. It contains all data of dray.
type State string

// AuditDB returns the database of the audit log.
func (s State) AuditDB() string { return s.join("audit.db") }

// Captures returns the directory of captured output.
func (s State) Captures() string { return s.join("captures") }

// IdempotencyKey returns the file of the key with which requests are hashed.
func (s State) IdempotencyKey() string { return s.join("keys/idempotency") }

// Socket returns the default socket.
func (s State) Socket() string { return s.join("dray.sock") }

// Token returns the file of the default token.
func (s State) Token() string { return s.join("token") }

// Log returns the log file of a daemon that a command started in the background.
func (s State) Log() string { return s.join("daemon.log") }

// ToolStates returns the file of the disabled tools.
func (s State) ToolStates() string { return s.join("tools.json") }

// Trust returns the file of the trusted workspaces.
func (s State) Trust() string { return s.join("trust.json") }

// RedactionKey returns the file of the key with which secrets are replaced.
func (s State) RedactionKey() string { return s.join("keys/redaction") }

// Run returns the directory of the agents' directories.
func (s State) Run() string { return s.join("run") }

// Homes returns the directory of the private homes of host tools.
func (s State) Homes() string { return s.join("homes") }

// Pyodide is the directory of what the runtime pyodide prepares.
func (s State) Pyodide() string { return s.join("pyodide") }

// PythonSessions is the list of the Python sessions with state.
func (s State) PythonSessions() string { return s.join("python-sessions.jsonl") }

// ShellSessions is the list of the sessions of shells.
func (s State) ShellSessions() string { return s.join("shell-sessions.jsonl") }

// Commits is the directory that records where commits of Python runs are in progress.
func (s State) Commits() string { return s.join("commits") }

// MCPTools returns the file of the tools of MCP servers in containers.
func (s State) MCPTools() string { return s.join("mcp-tools.json") }

func (s State) join(name string) string { return filepath.Join(string(s), name) }

const fixState = "choose another directory with --state or DRAY_STATE"

// MakeState creates the state directory with mode 0700, or checks an existing one: it must be owned
// by the effective uid and give no rights to group and others. The error is an [*InvalidError].
func (c *Config) MakeState() error {
	dir := string(c.State)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c.badState(fmt.Sprintf("cannot be created: %v", cause(err)),
			"create it, or "+fixState)
	}
	return c.CheckState()
}

// CheckState checks the state directory as MakeState does, and creates nothing. A missing one is
// valid. The error is an [*InvalidError].
func (c *Config) CheckState() error {
	dir, err := os.OpenFile(string(c.State), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return c.badState(fmt.Sprintf("cannot be opened: %v", cause(err)), fixState)
	}
	defer func() { _ = dir.Close() }()
	info, err := dir.Stat()
	if err != nil {
		return c.badState(fmt.Sprintf("cannot be read: %v", cause(err)), fixState)
	}
	return c.checkState(info, os.Geteuid())
}

// checkState checks owner and mode for the uid that dray runs as.
func (c *Config) checkState(info fs.FileInfo, uid int) error {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return c.badState("has no known owner", fixState)
	}
	if int(sys.Uid) != uid {
		return c.badState(fmt.Sprintf("is owned by uid %d, and dray runs as uid %d", sys.Uid, uid),
			fmt.Sprintf("run dray as uid %d, or %s", sys.Uid, fixState))
	}
	mode, fix := info.Mode().Perm(), "run: chmod 700 "+lexical.ShellWord(string(c.State))
	switch {
	case mode&0o077 == 0 && mode != 0o700:
		return c.badState(fmt.Sprintf("has mode %04o, and dray must write to it", mode), fix)
	case mode&0o077 == 0:
		return nil
	case !c.stateIsOurs(): // such as /tmp, which others need
		fix = "use a directory for dray alone, such as " +
			lexical.ShellWord(c.State.join("dray")) + ": dray creates it with mode 0700"
	}
	return c.badState(fmt.Sprintf("has mode %04o, which gives rights to others", mode), fix)
}

// stateIsOurs reports whether the state directory is empty or has an audit log.
func (c *Config) stateIsOurs() bool {
	names, err := os.ReadDir(string(c.State))
	if err == nil && len(names) == 0 {
		return true
	}
	_, err = os.Lstat(c.State.AuditDB())
	return err == nil
}

func (c *Config) badState(problem, fix string) error {
	return &InvalidError{Diagnostics: []Diagnostic{{
		Origin: c.Origin("state"), Key: "state directory", Value: quoteValue(string(c.State)),
		Problem: problem, Suggestion: fix,
	}}}
}

// cause returns an error without its operation and path, which the diagnostic has already.
func cause(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
