package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// PythonOptions are what the tool python runs with.
type PythonOptions struct {
	// Disabled leaves the tool out.
	Disabled bool
	// Sessions runs the code. If it is nil, calls are refused.
	Sessions *python.Sessions
	// Runtime is that of sessions whose calls name none.
	Runtime string
	// Permissions are those of sessions whose first call asks for none, and the most that a call may
	// ask for.
	Permissions python.Permissions
	// CallTool runs a call of a tool for code of the parent call. Nil: code cannot call tools.
	CallTool func(ctx context.Context, parent dray.Call, name string, input json.RawMessage,
		may python.Permissions) (json.RawMessage, error)
	// RecordFiles records files that a call is about to change on the host. It fails if they may not
	// change. Nil records nothing.
	RecordFiles func(ctx context.Context, invocation string, planned []dray.FileChange) error
	// Prepare is what operation prepare may do.
	Prepare python.PreparePolicy
	// Wall is the timeout of runs that have none of their own, CPU the maximum processor time of each
	// run. Zero is no limit.
	Wall, CPU time.Duration
}

// pythonInput is the input of the tool python (PY-03).
type pythonInput struct {
	Session      string                     `json:"session"`
	Runtime      string                     `json:"runtime"`
	Operation    string                     `json:"operation"`
	Code         string                     `json:"code"`
	File         string                     `json:"file"`
	Module       string                     `json:"module"`
	Argv         []string                   `json:"argv"`
	Inputs       map[string]json.RawMessage `json:"inputs"`
	Globals      []string                   `json:"globals"`
	State        python.State               `json:"state"`
	ReadOnly     bool                       `json:"read_only"`
	Permissions  *python.Permissions        `json:"permissions"`
	Files        *pythonFiles               `json:"files"`
	Requirements json.RawMessage            `json:"requirements"`
	Python       json.RawMessage            `json:"python"`
	Restart      *string                    `json:"restart"`
	// Name is the file name of the code in tracebacks.
	Name string `json:"name"`
	// named reports whether the input has a session.
	named bool
}

// The operations of the tool python.
const (
	opExec      = "exec"
	opReset     = "reset"
	opInterrupt = "interrupt"
	opPrepare   = "prepare"
	opStatus    = "status"
)

// decodePython decodes a valid input and sets its defaults.
func decodePython(input json.RawMessage) (in pythonInput, err error) {
	if err := read(input, &in); err != nil {
		return in, fmt.Errorf("decode the input of python: %w", err)
	}
	in.named = in.Session != ""
	in.Session = cmp.Or(in.Session, "default")
	in.Operation = cmp.Or(in.Operation, opExec)
	in.State = cmp.Or(in.State, python.Persistent)
	if in.Argv == nil {
		in.Argv = []string{}
	}
	return in, nil
}

// operationMembers are the members of an input that each operation takes, besides session, runtime
// and operation.
var operationMembers = map[string][]string{
	opExec: {
		"code", "file", "module", "argv", "inputs", "globals", "state", "read_only", "permissions",
		"files", "name",
	},
	opPrepare: {"requirements", "python", "restart"},
}

// checkPythonInput returns the violations that the schema cannot express: members that exclude each
// other, that are missing, or that belong to another operation.
func checkPythonInput(input json.RawMessage, policy python.PreparePolicy) []dray.Detail {
	var members map[string]json.RawMessage
	if err := read(input, &members); err != nil {
		return violation("/input", err.Error())
	}
	in, err := decodePython(input)
	if err != nil {
		return violation("/input", err.Error())
	}
	var found []dray.Detail
	for op, names := range operationMembers {
		for _, name := range names {
			if _, ok := members[name]; ok && op != in.Operation {
				found = append(found, violation(dray.JSONPointer("/input", name),
					fmt.Sprintf("belongs to operation %s, and the operation is %s", op, in.Operation))...)
			}
		}
	}
	if in.Operation == opExec {
		found = append(found, exactlyOne(members, "code", "file", "module")...)
		found = append(found, in.Files.check()...)
	}
	if len(found) == 0 && in.Operation == opPrepare {
		_, err := in.prepare().Parse(policy)
		found = prepareViolations(err)
	}
	slices.SortFunc(found, func(a, b dray.Detail) int { return cmp.Compare(a.Pointer, b.Pointer) })
	return found
}

func (in pythonInput) prepare() python.PrepareInput {
	return python.PrepareInput{
		Requirements: in.Requirements, Python: in.Python, Restart: in.Restart,
	}
}

// prepareViolations returns the error of PrepareInput.Parse as violations, which include its hint.
func prepareViolations(err error) []dray.Detail {
	e := dray.AsError(err)
	if e == nil {
		return nil
	}
	found := violation("/input", e.Message)
	for i, d := range e.Details {
		found[i] = dray.Detail{Pointer: "/input" + d.Pointer, Message: d.Message + "; " + e.Hint}
	}
	return found
}

// exactlyOne returns a violation unless exactly one of several members is present. If there are
// more, each has one.
func exactlyOne(members map[string]json.RawMessage, names ...string) []dray.Detail {
	all := strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	var set []dray.Detail
	for _, name := range names {
		if _, ok := members[name]; ok {
			set = append(set, violation(dray.JSONPointer("/input", name), "set only one of "+all)...)
		}
	}
	switch len(set) {
	case 0:
		return violation("/input", "set one of "+all)
	case 1:
		return nil
	default:
		return set
	}
}

// misplacedInPython has members that callers set in the input by mistake, with the member of the
// call to use instead (PY-03).
var misplacedInPython = map[string]string{
	"cwd":             "cwd",
	"env":             "env",
	"stdin":           "stdin",
	"stdin_base64":    "stdin_base64",
	"timeout":         "timeout_seconds",
	"timeout_seconds": "timeout_seconds",
	"timeout_ms":      "timeout_seconds",
	"wall":            "timeout_seconds",
	"idle_timeout":    "idle_timeout_seconds",
	"tty":             "tty",
	"workspace":       "workspace",
	"container":       "container",
	"environment":     "environment",
}

// explainMisplaced replaces the messages for members that belong to the call.
func explainMisplaced(details []dray.Detail) {
	for i, d := range details {
		name, _ := strings.CutPrefix(d.Pointer, "/input/")
		if member, ok := misplacedInPython[name]; ok {
			details[i].Message = fmt.Sprintf("belongs to the call: set %s beside tool and input, "+
				"not inside the input", member)
		}
	}
}

// pythonTool returns the tool python. Its run functions are in python_run.go.
func (r *Registry) pythonTool() *definition {
	d := &definition{
		Tool: dray.Tool{
			Name: "python", Timeout: r.Python.Wall, StartsProcess: true, AcceptsStdin: true,
			SessionOf:   sessionOf,
			Environment: r.Python.needs(pythonInput{}).Environment,
		},
		check: func(input json.RawMessage) []dray.Detail {
			return checkPythonInput(input, r.Python.Prepare)
		},
		explain: explainMisplaced,
		paths:   pathRules{texts: []string{"argv"}},
		about:   r.Python.describeRuntimes(),
	}
	d.NeedsOf = func(input json.RawMessage) dray.Needs {
		in := pythonInput{Operation: opExec}
		if len(input) > 0 {
			in, _ = decodePython(input) // it is valid
		}
		return r.Python.needs(in)
	}
	d.NeedsNoSlot = func(input json.RawMessage) bool {
		in, err := decodePython(input)
		return err == nil && slices.Contains([]string{opReset, opInterrupt, opStatus}, in.Operation)
	}
	d.run = r.fetchOutputs(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		return r.runPython(ctx, call, sink)
	})
	return d
}

// runtime returns the runtime of the session that an input names.
func (o PythonOptions) runtime(in pythonInput) string { return cmp.Or(in.Runtime, o.Runtime) }

// needs returns what a call of a session needs of its environment: the runtime decides, whatever
// the operation is. Pyodide runs on the host, and its code touches a directory there only if it may
// read files. The runtime container prefers a container and refuses the host: the error names the
// runtime to use there (PY-02, RT-03).
func (o PythonOptions) needs(in pythonInput) dray.Needs {
	if o.runtime(in) == python.RuntimePyodide {
		return dray.Needs{StartsProcess: o.opensDirectory(in), Environment: dray.Requirement{
			Kind: dray.RequireHost, Hint: fmt.Sprintf("the Python runtime %s runs on the host: remove the "+
				"container from the call, its plan or the configuration; or set runtime to %s",
				python.RuntimePyodide, python.RuntimeContainer),
		}}
	}
	return dray.Needs{
		Environment: dray.Requirement{Kind: dray.PreferContainer}, StartsProcess: true,
		OnHost: dray.Errorf(dray.CodeUnsupported,
			"the Python runtime %s needs a container, and the route of the call is the host",
			python.RuntimeContainer).
			WithHint("name a container, or a workspace with a devcontainer, or use the runtime %s; "+
				"dray route explain python shows the rules", python.RuntimePyodide),
	}
}

// opensDirectory reports whether a call of the runtime pyodide reads its working directory, which
// must then be beneath host.roots. A call that names no permissions counts as one with those of the
// configuration, although its session may have fewer.
func (o PythonOptions) opensDirectory(in pythonInput) bool {
	may, err := o.Permissions.Narrow(in.Permissions)
	return err == nil && in.Operation == opExec && may.FS != python.FSNone
}
