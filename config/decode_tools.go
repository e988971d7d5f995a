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

// builtIn are the names of the built-in tools of the contract, which a configuration must not
// redefine.
var builtIn = []string{
	"exec", "shell", "read_file", "write_file", "edit_file", "list_dir", "glob",
	"grep", "stat", "sync", "python",
}

func (d *decoder) tools(v value) []Tool {
	d.recordOrigin(v)
	if v.shape != list {
		d.addValue(v, v.kindMismatch("a list"),
			"write - name: NAME, with argv and the other keys indented below it")
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
		"input_schema":  func(v value) { t.InputSchema = d.jsonObject(v) },
		"output_schema": func(v value) { t.OutputSchema = d.jsonObject(v) },
		"environment":   func(v value) { t.Environment, t.Container = d.environment(v) },
		"timeout":       func(v value) { t.Timeout = d.toolTimeout(v) },
		"output":        func(v value) { t.Output = d.choice(v, "text", "json") },
		"mapping":       func(v value) { t.Mapping = d.choice(v, "schema", "heuristic", "none") },
		"results":       func(v value) { t.Results = d.each(v, d.relativePath) },
		"rewrite_text":  func(v value) { t.RewriteText = d.boolean(v) },
	})
	for _, key := range []string{"name", "argv"} {
		if _, ok := v.field(key); !ok && v.shape == object {
			d.addValue(v.withoutText(), "has no "+key, "add "+key+": a tool requires name and argv")
		}
	}
	return t
}

// uniqueTool refuses a second tool of the same name.
func (d *decoder) uniqueTool(v value, name string, names map[string]Origin) {
	if name == "" {
		return // reported
	}
	at, _ := v.field("name")
	if first, ok := names[name]; ok {
		d.addValue(at, "is the name of two tools, the first at "+first.String(), "rename one of them")
		return
	}
	names[name] = at.origin
}

func (d *decoder) toolName(v value) string {
	s, ok := d.text(v)
	switch {
	case !ok:
	case slices.Contains(builtIn, s):
		d.addValue(v, "is the name of a built-in tool", "use another name")
	case len(s) > maxToolName:
		d.addValue(v, "is longer than 128 bytes", "shorten it")
	case !lexical.IsName(s):
		d.addValue(v, "is not a valid tool name",
			"begin with a letter or digit, continue with letters, digits, . _ and -")
	default:
		return s
	}
	return ""
}

func (d *decoder) argv(v value) []string {
	if v.shape == scalar {
		d.addValue(v, "is one text, and no shell splits it", "write "+asArgv(v.text))
		return nil
	}
	argv := d.each(v, d.argument)
	if v.shape == list && len(argv) == 0 {
		d.addValue(v, "is empty", "write the program and its arguments as a list")
	}
	if len(argv) > 0 && v.items[0].shape == scalar && v.items[0].text == "" {
		d.addValue(v.items[0], "is not a program", "write the program's name or path first")
	}
	return argv
}

// asArgv returns a command line as a list if a shell would only split it at spaces.
func asArgv(command string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./= -]{1,80}$`).MatchString(command) {
		return "[" + strings.Join(strings.Fields(command), ", ") + "]"
	}
	return "a list, for instance [go, test, ./...]"
}

// environment returns where a tool may run, with the name of the container if it has one.
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
	env := d.choice(v, "auto", "host", "required", "container", "preferred")
	if env == "container" {
		env = "required"
	}
	return Environment(env), ""
}

func (d *decoder) toolTimeout(v value) time.Duration {
	d.toolTimeouts = append(d.toolTimeouts, v)
	return d.positive(v)
}

func (d *decoder) transport(v value) Transport {
	return Transport(d.choice(v, string(TransportAuto), string(TransportSocket),
		string(TransportStdio), string(TransportEngine)))
}

// engineHost returns the address of an engine. The engine's client checks the scheme.
func (d *decoder) engineHost(v value) string {
	s, _ := d.lineText(v)
	if s != "" && !strings.Contains(s, "://") {
		d.addValue(v, "has no scheme",
			"write unix:///var/run/docker.sock, tcp://HOST:PORT or ssh://USER@HOST")
		return ""
	}
	return s
}

// program returns a name or an absolute path. A relative path would depend on the working directory.
func (d *decoder) program(v value) string {
	s, ok := d.text(v)
	if !ok || s != "" && !strings.ContainsAny(s, "/~\\") {
		return s
	}
	return d.path(v)
}

// variables returns variables by name. Their values are secret: errors do not contain them.
func (d *decoder) variables(v value) map[string]string {
	all := map[string]string{}
	d.eachNamed(v, func(f field) {
		if f.name == "" || strings.ContainsAny(f.name, "=\x00") {
			d.addKey(f.origin, f.value.key, "is not a variable name", "write a name without = and NUL")
			return
		}
		all[f.name] = d.argument(f.value)
	})
	return all
}

// variableName returns the name of a variable of the daemon's own environment.
func (d *decoder) variableName(v value) string {
	s, ok := d.lineText(v)
	if ok && (s == "" || strings.Contains(s, "=")) {
		d.addValue(v, "is not a variable name", "write only the name: the value is that of the daemon")
		return ""
	}
	return s
}

const fixSandboxRoot = "use a directory only for synced files"

// checkSandbox refuses a root in which a sync could replace files of dray.
func (d *decoder) checkSandbox(stack layeredValues) {
	root := d.c.Sandbox.Root
	if root == "" {
		return
	}
	v, _ := stack.lookup("sandbox.root")
	if lexical.Contains(string(d.c.State), root) {
		d.addValue(v, fmt.Sprintf("is inside the state directory %s", quoteValue(string(d.c.State))),
			fixSandboxRoot)
		return
	}
	for _, own := range []struct{ what, path string }{
		{"the state directory", string(d.c.State)},
		{"the configuration file", d.c.File},
		{"the socket", d.c.Server.Socket},
	} {
		if own.path != "" && lexical.Contains(root, own.path) {
			d.addValue(v, fmt.Sprintf("contains %s %s, which a sync could replace", own.what,
				quoteValue(own.path)), fixSandboxRoot)
			return
		}
	}
}

func (d *decoder) sandboxRoot(v value) string {
	s := d.path(v)
	if s == "/" {
		d.addValue(v, "is the whole file system", fixSandboxRoot)
		return ""
	}
	return s
}

// denyPattern returns a name, or several separated by slashes, to be refused in a sync.
func (d *decoder) denyPattern(v value) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	problem, fix := checkPath(s)
	switch {
	case problem != "":
	case strings.HasPrefix(s, "/"):
		problem, fix = "begins with a slash", "write a name or a sequence of names: secrets, or config/secrets"
	case s == ".":
		problem, fix = "matches every file", "remove sandbox.root to refuse every sync"
	case path.Clean(s) != s:
		problem, fix = "is not a clean path", "write "+path.Clean(s)
	case strings.ContainsAny(s, "*?["):
		problem, fix = "looks like a pattern, and only names are supported", "write each name"
	}
	if problem != "" {
		d.addValue(v, problem, fix)
		return ""
	}
	return s
}
