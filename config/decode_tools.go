package config

import (
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
	"exec", "shell", "read_file", "write_file", "edit_file", "list_dir", "glob", "grep", "stat",
	"sync", "python",
}

func (d *decoder) tools(v value) []Tool {
	d.recordOrigin(v)
	return d.toolList(v)
}

func (d *decoder) toolList(v value) []Tool {
	if v.shape != list {
		d.addValue(v, v.kindMismatch("a list"),
			"write - name: NAME, with argv and the other keys indented below it")
		return nil
	}
	all := make([]Tool, 0, len(v.items))
	for _, item := range v.items {
		t := d.tool(item)
		if !d.isUnique(item, t.Name) {
			t.Name = ""
		}
		all = append(all, t)
	}
	return all
}

func (d *decoder) tool(v value) Tool {
	t := Tool{Environment: EnvironmentAuto, Output: "text"}
	d.object(v, toolKeys, &t)
	if at, _ := v.field("environment"); at.shape == object {
		t.Container = d.specific(at)
	}
	for _, key := range []string{"name", "argv"} {
		if _, ok := v.field(key); !ok && v.shape == object {
			d.addValue(v.withoutText(), "has no "+key, "add "+key+": a tool requires name and argv")
		}
	}
	return t
}

// isUnique refuses a second tool of the same name.
func (d *decoder) isUnique(v value, name string) bool {
	first, ok := d.toolNames[name]
	at, _ := v.field("name")
	switch {
	case name == "": // reported
	case ok:
		d.addValue(at, "is the name of two tools, the first at "+first.String(), "rename one of them")
		return false
	default:
		d.toolNames[name] = at.origin
	}
	return true
}

func (r valueReader) toolName(v value) string {
	s, ok := r.text(v)
	switch {
	case !ok:
		return ""
	case slices.Contains(builtIn, s):
		return r.refuse(v, "is the name of a built-in tool", "use another name")
	case len(s) > maxToolName:
		return r.refuse(v, "is longer than 128 bytes", "shorten it")
	case !lexical.IsName(s):
		return r.refuse(v, "is not a valid tool name",
			"begin with a letter or digit, continue with letters, digits, . _ and -")
	default:
		return s
	}
}

func (r valueReader) argv(v value) []string {
	if v.shape == scalar {
		r.addValue(v, "is one text, and no shell splits it", "write "+asArgv(v.text))
		return nil
	}
	argv := r.each(v, r.argument)
	if v.shape == list && len(argv) == 0 {
		r.addValue(v, "is empty", "write the program and its arguments as a list")
	}
	if len(argv) > 0 && v.items[0].shape == scalar && v.items[0].text == "" {
		r.addValue(v.items[0], "is not a program", "write the program's name or path first")
	}
	return argv
}

// capabilityWords are the capabilities without a value.
var capabilityWords = []string{"read_only", "network", "unsafe", "human_approval_required"}

func (d *decoder) capabilities(v value) Capabilities {
	d.recordOrigin(v)
	var c Capabilities
	if v.shape != list {
		d.addValue(v, v.kindMismatch("a list of capabilities"), "write for instance [read_only]")
		return c
	}
	for _, item := range v.items {
		if item.shape == object {
			d.object(item, writesKeys, &c)
			continue
		}
		word := d.choice(item, capabilityWords...)
		c.ReadOnly = c.ReadOnly || word == "read_only"
		c.Network = c.Network || word == "network"
		c.Unsafe = c.Unsafe || word == "unsafe"
		c.HumanApprovalRequired = c.HumanApprovalRequired || word == "human_approval_required"
	}
	if c.ReadOnly && (c.Unsafe || len(c.Writes) > 0) {
		d.addValue(v, "says that the tool is read_only and that it changes something",
			"remove read_only, or unsafe and writes")
	}
	return c
}

// maxExitCode is the largest exit code of a process.
const maxExitCode = 255

func (r valueReader) exitCodes(v value) []int {
	r.recordOrigin(v)
	if v.shape != list {
		r.addValue(v, v.kindMismatch("a list of exit codes"), "write for instance [0, 1]")
		return nil
	}
	if len(v.items) == 0 {
		r.addValue(v, "is empty, so no call could succeed", "write for instance [0, 1]")
	}
	var codes []int
	for _, item := range v.items {
		codes = append(codes, r.count(item, 0, maxExitCode))
	}
	return codes
}

// asArgv returns a command line as a list if a shell would only split it at spaces.
func asArgv(command string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./= -]{1,80}$`).MatchString(command) {
		return "[" + strings.Join(strings.Fields(command), ", ") + "]"
	}
	return "a list, for instance [go, test, ./...]"
}

// environment returns where a tool may run.
func (r valueReader) environment(v value) Environment {
	if v.shape == object {
		return EnvironmentSpecific
	}
	env := Environment(r.choice(v, "auto", "host", "required", "container", "preferred"))
	if env == "container" {
		return EnvironmentRequired
	}
	return env
}

// specific returns the container of EnvironmentSpecific.
func (d *decoder) specific(v value) string {
	var container struct{ Specific string }
	d.object(v, specificKeys, &container)
	name, ok := v.field("specific")
	switch {
	case len(v.fields) == 0:
		d.addValue(v.withoutText(), "names no container", "write {specific: NAME}")
	case ok && container.Specific != "":
		d.specifics = append(d.specifics, name)
	}
	return container.Specific
}

func (d *decoder) toolTimeout(v value) time.Duration {
	d.toolTimeouts = append(d.toolTimeouts, v)
	return d.positive(v)
}

// engineHost returns the address of an engine. The engine's client checks the scheme.
func (r valueReader) engineHost(v value) string {
	s, _ := r.lineText(v)
	if s != "" && !strings.Contains(s, "://") {
		return r.refuse(v, "has no scheme",
			"write unix:///var/run/docker.sock, tcp://HOST:PORT or ssh://USER@HOST")
	}
	return s
}

// program returns a name or an absolute path. A relative path would depend on the working
// directory.
func (r valueReader) program(v value) string {
	s, ok := r.text(v)
	if !ok || s != "" && !strings.ContainsAny(s, "/~\\") {
		return s
	}
	return r.path(v)
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
func (r valueReader) variableName(v value) string {
	s, ok := r.lineText(v)
	if ok && (s == "" || strings.Contains(s, "=")) {
		return r.refuse(v, "is not a variable name",
			"write only the name: the value is that of the daemon")
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
	if state := string(d.c.State); lexical.Contains(state, root) {
		d.addValue(v, "is inside the state directory "+quoteValue(state), fixSandboxRoot)
		return
	}
	for _, own := range []struct{ what, path string }{
		{"the state directory", string(d.c.State)},
		{"the configuration file", d.c.File},
		{"the socket", d.c.Server.Socket},
	} {
		if own.path != "" && lexical.Contains(root, own.path) {
			d.addValue(v, "contains "+own.what+" "+quoteValue(own.path)+", which a sync could replace",
				fixSandboxRoot)
			return
		}
	}
}

func (r valueReader) sandboxRoot(v value) string {
	s := r.path(v)
	if s == "/" {
		return r.refuse(v, "is the whole file system", fixSandboxRoot)
	}
	return s
}

// denyPattern returns a name, or several separated by slashes, to be refused in a sync.
func (r valueReader) denyPattern(v value) string {
	s, ok := r.text(v)
	if !ok {
		return ""
	}
	problem, fix := checkPath(s)
	switch {
	case problem != "":
		return r.refuse(v, problem, fix)
	case strings.HasPrefix(s, "/"):
		return r.refuse(v, "begins with a slash",
			"write a name or a sequence of names: secrets, or config/secrets")
	case s == ".":
		return r.refuse(v, "matches every file", "remove sandbox.root to refuse every sync")
	case path.Clean(s) != s:
		return r.refuse(v, "is not a clean path", "write "+path.Clean(s))
	case strings.ContainsAny(s, "*?["):
		return r.refuse(v, "looks like a pattern, and only names are supported", "write each name")
	default:
		return s
	}
}
