package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Python configures the tool python.
type Python struct {
	// Runtime runs the sessions that name none.
	Runtime PythonRuntime
	// Resident is the maximum number of sessions of the runtime container with a process, at least 1.
	// Queue is the maximum number of calls of each runtime that wait for one, for at most QueueWait.
	Resident, Queue int
	// Idle is how long an idle session keeps its process, above 0.
	Idle, QueueWait time.Duration
	// Wall is the timeout of runs that have none of their own, above 0 and at most Limits.MaxTimeout.
	// CPU is the maximum processor time of a run; 0 is no limit.
	Wall, CPU time.Duration
	// Memory is the budget of one process in bytes, TotalMemory the maximum of all processes of a
	// runtime together.
	Memory, TotalMemory int64
	// Permissions are what code of the runtime pyodide may reach. A call may ask for less.
	Permissions PythonPermissions
	Pyodide     Pyodide
	Prepare     PythonPrepare
}

// PythonRuntime is a runtime of Python sessions.
type PythonRuntime string

// The runtimes. PythonDisabled means that there is no tool python.
const (
	PythonContainer PythonRuntime = "container"
	PythonPyodide   PythonRuntime = "pyodide"
	PythonDisabled  PythonRuntime = "null"
)

// PythonPermissions are what code of the runtime pyodide may reach.
type PythonPermissions struct {
	// FS is "none", "read" or "write".
	FS string
	// Network has hosts: a name, or "*." and a domain, with or without ":" and a port.
	Network []string
	// Env has names of variables of the daemon.
	Env []string
}

// Pyodide configures the runtime pyodide.
type Pyodide struct {
	// Assets is the asset folder and Deno the program, both absolute and clean. Empty means the
	// default folder, and the Deno in it.
	Assets, Deno string
	Resident     int
	// Preload are packages of the asset folder that each process imports before it is ready.
	Preload []string
}

// PythonPrepare configures the operation prepare.
type PythonPrepare struct {
	SourceBuilds bool
	// Index is the address of a package index; empty is the default of uv.
	Index string
}

// packagePattern is the name of a Python package: PyPA's "Name format".
const packagePattern = `^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`

var packageNames = regexp.MustCompile(packagePattern)

// packageName returns the name of a Python package. Whether there is one is known when a session
// starts.
func (d *decoder) packageName(v value) string {
	s, ok := d.lineText(v)
	if ok && !packageNames.MatchString(s) {
		return d.refuse(v, "is not the name of a package",
			"write only the name, for instance openpyxl, without a version")
	}
	return s
}

// maxResident is the maximum of Python.Resident and Pyodide.Resident.
const maxResident = 4096

// pythonRuntime returns a runtime. Null is the value null in YAML, and the word in a variable.
func (d *decoder) pythonRuntime(v value) PythonRuntime {
	d.recordOrigin(v)
	inYAML := v.origin.File != ""
	if v.shape == empty || !inYAML && v.shape == scalar && v.text == string(PythonDisabled) {
		return PythonDisabled
	}
	return PythonRuntime(d.choice(v, string(PythonContainer), string(PythonPyodide)))
}

// checkPython checks the timeout of runs against the maximum, and the sum of the budgets (PY-23).
func (d *decoder) checkPython(stack layeredValues) {
	p, limits := &d.c.Python, d.c.Limits
	if v, _ := stack.lookup("python.wall"); v.origin == (Origin{}) {
		p.Wall = min(p.Wall, limits.MaxTimeout) // the default is not a request
	} else if limits.MaxTimeout > 0 && p.Wall > limits.MaxTimeout {
		d.addValue(v, "exceeds limits.max_timeout, which is "+durationText(limits.MaxTimeout),
			"write "+durationText(limits.MaxTimeout)+" or less, or raise limits.max_timeout")
	}
	d.checkPyodideMemory(stack)
	d.checkBudgets(stack)
}

// MinPyodideMemory is the smallest budget in bytes that a process of the runtime pyodide fits into.
const MinPyodideMemory = 192 << 20

// checkPyodideMemory refuses a budget that no process of the runtime pyodide fits into, if the
// configuration selects this runtime or has a key of it. Otherwise its calls fail with that.
func (d *decoder) checkPyodideMemory(stack layeredValues) {
	v, _ := stack.lookup("python.memory")
	if v.origin == (Origin{}) || d.c.Python.Memory == 0 || d.c.Python.Memory >= MinPyodideMemory {
		return
	}
	least := sizeText(MinPyodideMemory)
	fix := "write " + least + " or more"
	switch key := configuredPyodideKey(stack); {
	case d.c.Python.Runtime == PythonPyodide:
		fix += ", or set python.runtime to container"
	case key != "":
		fix += ", or remove " + key
	default:
		return
	}
	d.addValue(v, "is below "+least+", which the runtime pyodide needs", fix)
}

// configuredPyodideKey returns a key of the runtime pyodide that the configuration has, or "".
func configuredPyodideKey(stack layeredValues) string {
	for _, name := range []string{"resident", "assets", "deno", "preload"} {
		key := "python.pyodide." + name
		if v, _ := stack.lookup(key); v.origin != (Origin{}) {
			return key
		}
	}
	return ""
}

// checkBudgets checks that the processes of all sessions fit into the total. The defaults do not,
// because few sessions use their memory, so values that are no worse are accepted.
func (d *decoder) checkBudgets(stack layeredValues) {
	p := d.c.Python
	d.checkBudget(stack, "python.resident", p.Resident, 16)
	v, _ := stack.lookup("python.pyodide.resident")
	if p.Runtime == PythonPyodide || v.origin != (Origin{}) { // else few sessions of Pyodide start
		d.checkBudget(stack, "python.pyodide.resident", p.Pyodide.Resident, 8)
	}
}

// checkBudget checks the processes of one runtime. byDefault is the default of their number.
func (d *decoder) checkBudget(stack layeredValues, key string, resident, byDefault int) {
	p := d.c.Python
	switch {
	case resident == 0 || p.Memory == 0 || p.TotalMemory == 0: // reported already
		return
	case resident <= byDefault && p.Memory <= 512<<20 && p.TotalMemory >= 4<<30:
		return
	case p.Memory <= p.TotalMemory/int64(resident):
		return
	}
	fix := "raise python.total_memory, or lower python.memory"
	if fits := p.TotalMemory / p.Memory; fits > 0 {
		fix = fmt.Sprintf("lower %s to %d, or %s", key, fits, fix)
	}
	problem := fmt.Sprintf("exceeds python.total_memory: %d sessions of %s, and %s in total",
		resident, sizeText(p.Memory), sizeText(p.TotalMemory))
	for _, stated := range []string{key, "python.memory", "python.total_memory"} {
		if v, _ := stack.lookup(stated); v.origin != (Origin{}) {
			d.addValue(v.withoutText(), problem, fix)
			return
		}
	}
}

// permittedHostPattern matches a host of python.permissions.network.
const permittedHostPattern = `^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?(:[0-9]{1,5})?$`

var permittedHostRegexp = regexp.MustCompile(permittedHostPattern)

// permittedHost returns a host of python.permissions.network.
func (d *decoder) permittedHost(v value) string {
	s, ok := d.lineText(v)
	if !ok {
		return ""
	}
	name, port, hasPort := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if !permittedHostRegexp.MatchString(s) || strings.Contains(name, "..") || len(name) > 253 ||
		hasPort && (err != nil || n == 0) {
		return d.refuse(v, "is not a host",
			"write a name such as api.example.org, *.example.org or api.example.org:8443, without http://")
	}
	return s
}

// indexPattern is the part of packageIndex that an editor can check by the schema.
const indexPattern = `^((https?://[^\s/@?#]+|file:///)[^\s@?#]*)?$`

// packageIndex returns the URL of a package index. Code in the container could read a login in it:
// it runs as the user that uv runs as.
func (d *decoder) packageIndex(v value) string {
	s, ok := d.lineText(v)
	if !ok || s == "" {
		return ""
	}
	u, err := url.Parse(s)
	switch {
	case err == nil && u.User != nil:
		return d.refuse(v.withoutText(),
			"has a user or a password, which code in the container could read",
			"write the login into ~/.netrc of the user in the container")
	case err != nil, u.RawQuery != "", u.Fragment != "", u.Opaque != "", u.Path == "",
		u.Scheme == "file" && u.Host != "",
		u.Scheme != "file" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == ""):
		return d.refuse(v, "is not the URL of a package index",
			"write it as https://HOST/simple, or file:///DIRECTORY in the container")
	}
	return s
}
