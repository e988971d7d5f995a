package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

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

// MakeState makes the state folder with mode 0700, or checks the one that is there: it must belong to the effective uid and give group and
// others nothing, for it holds what callers passed to tools, and its socket takes orders. The error is an [*Error].
func (c *Config) MakeState() error {
	dir := string(c.State)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c.badState(fmt.Sprintf("cannot be made: %v", cause(err)), "make it, or name another folder with --state or DRAY_STATE")
	}
	return c.CheckState()
}

// CheckState checks the state folder as MakeState does, and makes nothing: one that is not there is fine. The error is an [*Error].
func (c *Config) CheckState() error {
	folder, err := os.OpenFile(string(c.State), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return c.badState(fmt.Sprintf("cannot be opened: %v", cause(err)), "name another folder with --state or DRAY_STATE")
	}
	defer func() { _ = folder.Close() }()
	info, err := folder.Stat()
	if err != nil {
		return c.badState(fmt.Sprintf("cannot be looked at: %v", cause(err)), "name another folder with --state or DRAY_STATE")
	}
	return c.checkState(info, os.Geteuid())
}

// checkState checks owner and mode for the uid that dray runs as.
func (c *Config) checkState(info fs.FileInfo, uid int) error {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return c.badState("has no owner that can be told", "name another folder with --state or DRAY_STATE")
	}
	if int(sys.Uid) != uid {
		return c.badState(fmt.Sprintf("belongs to uid %d, and dray runs as uid %d", sys.Uid, uid),
			fmt.Sprintf("run dray as uid %d, or name a folder of your own with --state or DRAY_STATE", sys.Uid))
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return c.badState(fmt.Sprintf("has mode %04o, which lets others in", mode), "run: chmod 700 "+shellWord(string(c.State)))
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
