package config

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Sandbox is about files that come home from containers.
type Sandbox struct {
	// Root is the folder that they come to, absolute and clean; empty means that none may come. It is neither "/" nor in the state folder, and
	// neither the state folder, the configuration file nor the socket lies in it: a tool could replace them. Whether it is a folder of this
	// user alone is checked when it is opened.
	Root string
	// Sources are folders in containers that files may come from, beside the workspace, its bind mounts and /tmp: absolute and clean.
	Sources []string
	// MaxFile and MaxTotal are bytes of one file and of one sync, above 0.
	MaxFile, MaxTotal int64
	// MaxFiles counts the files and folders of one sync, from 1 to MaxSyncFiles; MaxDepth the folders that one lies in below what was named.
	MaxFiles, MaxDepth int
	// Timeout is how long one sync may take, above 0.
	Timeout time.Duration
	// Deny are names that never come home, beside those that dray knows: one without a slash at any depth, one with slashes as a sequence of
	// names at any depth.
	Deny []string
	// Executable lets files keep their right to be run.
	Executable bool
}

// MaxSyncFiles is how many files and folders one sync may have at most: the record of a call names each.
const MaxSyncFiles = 100000

// maxSyncDepth is far beyond what a path of the kernel's length has.
const maxSyncDepth = 4096

const fixSandboxRoot = "name a folder that is for these files alone"

func (d *decoder) sandboxRoot(v value) string {
	s := d.path(v)
	if s == "/" {
		d.addValue(v, "is the whole file system", fixSandboxRoot)
		return ""
	}
	return s
}

// denyPattern gives a name, or names with slashes between them, that are relative to anything.
func (d *decoder) denyPattern(v value) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	problem, fix := checkPath(s)
	switch {
	case problem != "":
	case strings.HasPrefix(s, "/"):
		problem, fix = "begins with a slash", "write the name, or the path below any folder: secrets, or config/secrets"
	case s == ".":
		problem, fix = "is every file there is", "leave sandbox.root out where nothing may come home"
	case path.Clean(s) != s:
		problem, fix = "is not written as plainly as it can be", "write "+path.Clean(s)
	case strings.ContainsAny(s, "*?["):
		problem, fix = "looks like a pattern, and names are taken as they are", "write out each name that is to be refused"
	}
	if problem != "" {
		d.addValue(v, problem, fix)
		return ""
	}
	return s
}

// boolean gives true or false: the word itself, which in YAML has no quotes.
func (d *decoder) boolean(v value) bool {
	s, ok := d.scalar(v, "true or false")
	inYAML := v.origin.File != ""
	switch {
	case !ok:
	case v.kind == boolean: // true, True or TRUE
		return strings.EqualFold(s, "true")
	case !inYAML && s == "true":
		return true
	case !inYAML && s == "false":
	default:
		d.addValue(v, "is not a truth value", "write true or false, without quotes")
	}
	return false
}

// checkSandbox refuses a root in which a sync could replace what dray itself relies on.
func (d *decoder) checkSandbox(stack layeredValues) {
	root := d.c.Sandbox.Root
	if root == "" {
		return
	}
	v, _ := stack.lookup("sandbox.root")
	if contains(string(d.c.State), root) {
		d.addValue(v, fmt.Sprintf("lies in the state folder %s", quoteValue(string(d.c.State))), fixSandboxRoot)
		return
	}
	for _, own := range []struct{ what, path string }{
		{"the state folder", string(d.c.State)}, {"the configuration file", d.c.File}, {"the socket", d.c.Server.Socket},
	} {
		if own.path != "" && contains(root, own.path) {
			d.addValue(v, fmt.Sprintf("holds %s %s, which a sync could replace", own.what, quoteValue(own.path)), fixSandboxRoot)
			return
		}
	}
}

// contains says that a path is a folder or lies in it.
func contains(folder, path string) bool {
	return folder != "" && (path == folder || beneath(path, folder))
}
