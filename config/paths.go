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
)

// systemConfigFile is the configuration of the machine, for who has none of their own.
const systemConfigFile = "/etc/dray/config.yaml"

// maxFile is the longest configuration file in bytes.
const maxFile = 1 << 20

// configFile finds and reads the file that holds: --config, DRAY_CONFIG, the user's, the machine's,
// or none. A file that was named must be there; one that is there must be readable, or settings
// that restrict would silently not hold.
func (l *loader) configFile() (string, []byte) {
	if name := l.opts.ConfigFile; name != "" {
		return l.mustRead(name, Origin{Flag: "--config"})
	}
	if name := l.env["DRAY_CONFIG"]; name != "" {
		return l.mustRead(name, Origin{Variable: "DRAY_CONFIG"})
	}
	for _, name := range l.defaultFiles() {
		data, err := l.opts.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			l.unreadable(name, Origin{File: name}, err)
			return "", nil
		}
		return name, data
	}
	return "", nil
}

func (l *loader) defaultFiles() []string {
	if dir := l.env.xdg("XDG_CONFIG_HOME", ".config"); dir != "" {
		return []string{filepath.Join(dir, "dray", "config.yaml"), systemConfigFile}
	}
	return []string{systemConfigFile}
}

func (l *loader) mustRead(name string, at Origin) (string, []byte) {
	abs, err := filepath.Abs(name)
	if err == nil {
		var data []byte
		if data, err = l.opts.ReadFile(abs); err == nil {
			return abs, data
		}
	}
	l.unreadable(name, at, err)
	return "", nil
}

func (l *loader) unreadable(name string, at Origin, err error) {
	fix := "make it readable for uid " + strconv.Itoa(os.Geteuid())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fix = "create it, or name another: without " + at.String() +
			" dray looks in its usual places and does without a file"
	case errors.Is(err, errTooLong):
		fix = "name the configuration file: this is hardly one"
	case errors.Is(err, syscall.EISDIR):
		fix = "name the file in it, for instance " + filepath.Join(name, "config.yaml")
	}
	l.add(Diagnostic{
		Origin: at, Key: "configuration file", Value: quoteValue(name),
		Problem: fmt.Sprintf("cannot be read: %v", cause(err)), Suggestion: fix,
	})
}

var errTooLong = fmt.Errorf("longer than %d bytes", maxFile)

// readFile reads a file from the file system up to the longest length.
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

// xdg gives a base folder of the XDG specification, which says that relative values are to be
// ignored. It is empty where there is no home.
func (e environment) xdg(name, underHome string) string {
	if dir := e[name]; filepath.IsAbs(dir) {
		return dir
	}
	if home := e["HOME"]; filepath.IsAbs(home) {
		return filepath.Join(home, underHome)
	}
	return ""
}

// stateFolder finds the state folder: --state, DRAY_STATE, or the user's.
func (l *loader) stateFolder() value {
	if l.opts.State != "" {
		return plain("state", l.opts.State, Origin{Flag: "--state"})
	}
	if dir := l.env["DRAY_STATE"]; dir != "" {
		return plain("state", dir, Origin{Variable: "DRAY_STATE"})
	}
	at := Origin{}
	if filepath.IsAbs(l.env["XDG_STATE_HOME"]) {
		at = Origin{Variable: "XDG_STATE_HOME"}
	}
	dir := l.env.xdg("XDG_STATE_HOME", filepath.Join(".local", "state"))
	if dir == "" {
		return value{key: "state"}
	}
	return plain("state", filepath.Join(dir, "dray"), at)
}

// state takes the state folder. A relative one is relative to the working folder, as paths on a
// command line are.
func (d *decoder) state(v value) {
	d.recordOrigin(v)
	if v.shape == empty {
		d.addValue(v, "folder is not known: neither HOME nor XDG_STATE_HOME is set",
			"name one with --state DIR or DRAY_STATE")
		return
	}
	dir, err := filepath.Abs(v.text)
	if err != nil || strings.ContainsRune(v.text, 0) {
		d.addValue(v, "is no path", "name a folder with --state DIR or DRAY_STATE")
		return
	}
	d.c.State = State(dir)
}

// maxSocket is the longest path of a unix socket in bytes: the kernel's field less the NUL at its
// end.
const maxSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// checkSocket refuses a socket that could never be listened on.
func (d *decoder) checkSocket(env environment) {
	path := d.c.Server.Socket
	if len(path) <= maxSocket {
		return
	}
	d.add(Diagnostic{
		Origin: d.c.Origin("server.socket"), Key: "server.socket", Value: quoteValue(path),
		Problem: fmt.Sprintf("is %d bytes long, and a socket's path has %d at most", len(path),
			maxSocket),
		Suggestion: "set server.socket (or DRAY_SERVER_SOCKET) to a shorter one, for instance " +
			suggestSocketPath(env),
	})
}

// suggestSocketPath gives a path that fits, in a folder of this user alone.
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

// State is the state folder: an absolute, clean path. Everything that dray keeps lies in it.
type State string

// AuditDB is the file of the audit trail.
func (s State) AuditDB() string { return s.join("audit.db") }

// Captures is the folder of kept output.
func (s State) Captures() string { return s.join("captures") }

// Log is where a daemon that a command started in the background writes its log.
func (s State) Log() string { return s.join("daemon.log") }

// Trust is the file of what was trusted.
func (s State) Trust() string { return s.join("trust.json") }

// Run is the folder of the agents' folders.
func (s State) Run() string { return s.join("run") }

// Homes is the folder of the private homes of host tools.
func (s State) Homes() string { return s.join("homes") }

func (s State) socket() string { return s.join("dray.sock") }

func (s State) join(name string) string { return filepath.Join(string(s), name) }

// MakeState makes the state folder with mode 0700, or checks the one that is there: it must belong
// to the effective uid and give group and others nothing, for it holds what callers passed to
// tools, and its socket takes orders. The error is an [*Error].
func (c *Config) MakeState() error {
	dir := string(c.State)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c.badState(fmt.Sprintf("cannot be made: %v", cause(err)),
			"make it, or name another folder with --state or DRAY_STATE")
	}
	return c.CheckState()
}

// CheckState checks the state folder as MakeState does, and makes nothing: one that is not there is
// fine. The error is an [*Error].
func (c *Config) CheckState() error {
	folder, err := os.OpenFile(string(c.State), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return c.badState(fmt.Sprintf("cannot be opened: %v", cause(err)),
			"name another folder with --state or DRAY_STATE")
	}
	defer func() { _ = folder.Close() }()
	info, err := folder.Stat()
	if err != nil {
		return c.badState(fmt.Sprintf("cannot be looked at: %v", cause(err)),
			"name another folder with --state or DRAY_STATE")
	}
	return c.checkState(info, os.Geteuid())
}

// checkState checks owner and mode for the uid that dray runs as.
func (c *Config) checkState(info fs.FileInfo, uid int) error {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return c.badState("has no owner that can be told",
			"name another folder with --state or DRAY_STATE")
	}
	if int(sys.Uid) != uid {
		return c.badState(fmt.Sprintf("belongs to uid %d, and dray runs as uid %d", sys.Uid, uid),
			fmt.Sprintf("run dray as uid %d, or name a folder of your own with --state or DRAY_STATE",
				sys.Uid))
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return c.badState(fmt.Sprintf("has mode %04o, which lets others in", mode),
			"run: chmod 700 "+shellWord(string(c.State)))
	}
	return nil
}

func (c *Config) badState(problem, fix string) error {
	return &InvalidError{Diagnostics: []Diagnostic{{
		Origin: c.Origin("state"), Key: "state folder", Value: quoteValue(string(c.State)), Problem: problem, Suggestion: fix,
	}}}
}

// cause takes the operation and the path off an error, which the mistake names itself.
func cause(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// shellWord quotes a path for a command line that is to be copied.
func shellWord(path string) string {
	if plainPath.MatchString(path) {
		return path
	}
	return strconv.Quote(path)
}
