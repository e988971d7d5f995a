package config

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray/internal/lexical"
)

// maxToolName is the longest name of a tool in bytes.
const maxToolName = 128

// builtIn are the names of the tools that dray brings along, now or by its contract: a
// configuration must not change what they mean.
var builtIn = []string{
	"exec", "shell", "read_file", "write_file", "edit_file", "list_dir", "glob",
	"grep", "stat", "sync", "python",
}

func (d *decoder) tools(v value) []Tool {
	d.recordOrigin(v)
	if v.shape != list {
		d.addValue(v, v.kindMismatch("a list"),
			"write - name: NAME and below it, indented, argv and the rest")
		return nil
	}
	names := map[string]Origin{}
	all := make([]Tool, 0, len(v.items))
	for _, item := range v.items {
		t := d.tool(item)
		d.uniqueTool(item, t.Name, names)
		all = append(all, t)
	}
	return all
}

func (d *decoder) tool(v value) Tool {
	t := Tool{Environment: EnvironmentAuto, Output: "text"}
	d.object(v, toolKeys, map[string]memberReader{
		"name":          func(v value) { t.Name = d.toolName(v) },
		"description":   func(v value) { t.Description = d.argument(v) },
		"argv":          func(v value) { t.Argv = d.argv(v) },
		"input_schema":  func(v value) { d.recordOrigin(v); t.InputSchema = d.jsonObject(v) },
		"output_schema": func(v value) { d.recordOrigin(v); t.OutputSchema = d.jsonObject(v) },
		"environment":   func(v value) { t.Environment, t.Container = d.environment(v) },
		"timeout":       func(v value) { t.Timeout = d.toolTimeout(v) },
		"output":        func(v value) { t.Output = d.choice(v, "text", "json") },
		"mapping":       func(v value) { t.Mapping = d.choice(v, "schema", "heuristic", "none") },
		"results":       func(v value) { t.Results = d.each(v, d.relativePath) },
		"rewrite_text":  func(v value) { t.RewriteText = d.boolean(v) },
	})
	for _, key := range []string{"name", "argv"} {
		if _, ok := v.field(key); !ok && v.shape == object {
			d.addValue(v.withoutText(), "has no "+key,
				"add "+key+": every tool has a name and the argv of its program")
		}
	}
	return t
}

// uniqueTool refuses a second tool of one name.
func (d *decoder) uniqueTool(v value, name string, names map[string]Origin) {
	if name == "" {
		return // reported
	}
	at, _ := v.field("name")
	if first, ok := names[name]; ok {
		d.addValue(at, "is the name of two tools, the first is at "+first.String(),
			"name one of them otherwise")
		return
	}
	names[name] = at.origin
}

func (d *decoder) toolName(v value) string {
	s, ok := d.text(v)
	switch {
	case !ok:
	case slices.Contains(builtIn, s):
		d.addValue(v, "is the name of a built-in tool", "name it otherwise")
	case len(s) > maxToolName:
		d.addValue(v, "is longer than 128 bytes", "shorten it")
	case !lexical.IsName(s):
		d.addValue(v, "is not the name of a tool",
			"begin with a letter or digit, go on with letters, digits, . _ and -")
	default:
		return s
	}
	return ""
}

func (d *decoder) argv(v value) []string {
	if v.shape == scalar {
		d.addValue(v, "is one text: there is no shell to take it apart", "write "+asArgv(v.text))
		return nil
	}
	argv := d.each(v, d.argument)
	if v.shape == list && len(argv) == 0 {
		d.addValue(v, "is empty", "write the program and its arguments as a list")
	}
	if len(argv) > 0 && v.items[0].shape == scalar && v.items[0].text == "" {
		d.addValue(v.items[0], "is no program", "write the program's name or path first")
	}
	return argv
}

var plainCommand = regexp.MustCompile(`^[A-Za-z0-9_./= -]{1,80}$`)

// asArgv shows a command line as a list, where it is clear what a shell would make of it.
func asArgv(command string) string {
	if plainCommand.MatchString(command) {
		return "[" + strings.Join(strings.Fields(command), ", ") + "]"
	}
	return "a list, for instance [go, test, ./...]"
}

// environment gives where a tool may run, and the container's name where that is said.
func (d *decoder) environment(v value) (Environment, string) {
	if v.shape == object {
		name := ""
		d.object(v, specificKeys,
			map[string]memberReader{"specific": func(v value) { name = d.containerRef(v) }})
		if len(v.fields) == 0 {
			d.addValue(v.withoutText(), "names no container", "write {specific: NAME}")
		}
		return EnvironmentSpecific, name
	}
	where := d.choice(v, "auto", "host", "required", "container", "preferred")
	if where == "container" {
		where = "required"
	}
	return Environment(where), ""
}

func (d *decoder) toolTimeout(v value) time.Duration {
	d.toolTimeouts = append(d.toolTimeouts, v)
	return d.positive(v)
}

func (d *decoder) transport(v value) Transport {
	return Transport(d.choice(v, string(TransportAuto), string(TransportSocket),
		string(TransportStdio), string(TransportEngine)))
}

// engineHost gives the address of an engine; what schemes there are is for the engine's client to
// say.
func (d *decoder) engineHost(v value) string {
	s, _ := d.lineText(v)
	if s != "" && !strings.Contains(s, "://") {
		d.addValue(v, "has no scheme",
			"write unix:///var/run/docker.sock, tcp://HOST:PORT or ssh://USER@HOST")
		return ""
	}
	return s
}

// program gives a bare name or an absolute path. A relative path would depend on where the daemon
// was started.
func (d *decoder) program(v value) string {
	s, ok := d.text(v)
	if !ok || s != "" && !strings.ContainsAny(s, "/~\\") {
		return s
	}
	return d.path(v)
}

// variables gives variables by their names. Their values are secret: errors do not show them.
func (d *decoder) variables(v value) map[string]string {
	all := map[string]string{}
	d.eachNamed(v, func(f field) {
		if f.name == "" || strings.ContainsAny(f.name, "=\x00") {
			d.add(Diagnostic{
				Origin: f.origin, Key: f.value.key, Problem: "is not the name of a variable",
				Suggestion: "write a name without = and NUL",
			})
			return
		}
		all[f.name] = d.argument(f.value)
	})
	return all
}

// variableName gives the name of a variable whose value the daemon's own environment has.
func (d *decoder) variableName(v value) string {
	s, ok := d.lineText(v)
	if ok && (s == "" || strings.Contains(s, "=")) {
		d.addValue(v, "is not the name of a variable",
			"write the name alone, without = and value: the value is the daemon's own")
		return ""
	}
	return s
}

// Sandbox is about files that come home from containers.
type Sandbox struct {
	// Root is the folder that they come to, absolute and clean; empty means that none may come. It is
	// neither "/" nor in the state folder, and neither the state folder, the configuration file nor
	// the socket lies in it: a tool could replace them. Whether it is a folder of this user alone is
	// checked when it is opened.
	Root string
	// Sources are folders in containers that files may come from, beside the workspace, its bind
	// mounts and /tmp: absolute and clean.
	Sources []string
	// MaxFile and MaxTotal are bytes of one file and of one sync, above 0.
	MaxFile, MaxTotal int64
	// MaxFiles counts the files and folders of one sync, from 1 to MaxSyncFiles; MaxDepth the folders
	// that one lies in below what was named.
	MaxFiles, MaxDepth int
	// Timeout is how long one sync may take, above 0.
	Timeout time.Duration
	// Deny are names that never come home, beside those that dray knows: one without a slash at any
	// depth, one with slashes as a sequence of names at any depth.
	Deny []string
	// Executable lets files keep their right to be run.
	Executable bool
}

// MaxSyncFiles is how many files and folders one sync may have at most: the record of a call names
// each.
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
	if lexical.Contains(string(d.c.State), root) {
		d.addValue(v, fmt.Sprintf("lies in the state folder %s", quoteValue(string(d.c.State))),
			fixSandboxRoot)
		return
	}
	for _, own := range []struct{ what, path string }{
		{"the state folder", string(d.c.State)}, {"the configuration file", d.c.File}, {
			"the socket",
			d.c.Server.Socket,
		},
	} {
		if own.path != "" && lexical.Contains(root, own.path) {
			d.addValue(v, fmt.Sprintf("holds %s %s, which a sync could replace", own.what,
				quoteValue(own.path)), fixSandboxRoot)
			return
		}
	}
}
