package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/lexical"
)

// maxName is the length in bytes of the longest name of a tool (EX-02).
const maxName = 128

// Options are what the tools of a registry run with. The zero value serves a registry whose tools
// are listed and never run.
type Options struct {
	// Processes starts the processes of tools.
	Processes *executor.Runner
	// Transfer copies the files of syncs and of declared outputs. If it is nil, syncs are refused.
	Transfer Transfer
	// IdleTimeout bounds the silence of a process whose call names no idle timeout. Zero is no bound.
	IdleTimeout time.Duration
	// States are the states of the tools. Nil has only active ones.
	States *States
	// SyncTimeout is the Timeout of the tool sync.
	SyncTimeout time.Duration
	Python      PythonOptions
	// ReadOutput returns a part of the output that a call kept, for the tool read_output. It fails
	// with not_found for a call that the principal may not see.
	ReadOutput func(ctx context.Context, principal, id string, stream dray.Stream,
		offset, limit int64) (any, error)
}

// Registry holds the tools. It is safe for concurrent use after the last AddCommand.
type Registry struct {
	Options

	tools map[string]*dray.Tool
	sync  *definition
	// project is set for the tools of a workspace.
	project *project
}

// NewRegistry returns a registry of the built-in tools.
func NewRegistry(opts Options) (*Registry, error) {
	r := &Registry{Options: opts, tools: map[string]*dray.Tool{}}
	builtins, err := r.builtins()
	if err != nil {
		return nil, err
	}
	for _, d := range builtins {
		r.add(d)
	}
	return r, nil
}

// AddCommand registers a tool that runs a program. t holds what the configuration says about the
// tool; AddCommand sets the rest. An invalid declaration fails with an [*InvalidError].
func (r *Registry) AddCommand(t dray.Tool, c Command) error {
	if r.project != nil {
		t.Workspace = r.project.folder
	}
	d, found := r.command(t, c)
	return r.register(d, found)
}

// register adds a tool, unless something is wrong with it or its name.
func (r *Registry) register(d *definition, found []Violation) error {
	if problem := r.nameProblem(d.Name); problem != "" {
		found = append(found, Violation{"name", problem, "choose another name"})
	}
	if len(found) > 0 {
		return &InvalidError{d.Name, found}
	}
	r.add(d)
	return nil
}

func (r *Registry) add(d *definition) { r.tools[d.Name] = r.activeTool(d) }

// activeTool returns a tool whose calls also check its state when they start: they may have been
// queued.
func (r *Registry) activeTool(d *definition) *dray.Tool {
	t := d.tool()
	run := t.Run
	t.Run = func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		if err := r.check(ctx, d.Name); err != nil {
			return dray.Result{}, err
		}
		return run(ctx, call, sink)
	}
	return t
}

// Violation is one mistake in the declaration of a tool.
type Violation struct {
	// Key is the key of the tool, for instance "argv[1]".
	Key, Problem, Fix string
}

// InvalidError has all mistakes in the declaration of a tool.
type InvalidError struct {
	Tool       string
	Violations []Violation
}

// Error lists the mistakes.
func (e *InvalidError) Error() string {
	var all []string
	for _, v := range e.Violations {
		all = append(all, v.Key+" "+v.Problem)
	}
	return fmt.Sprintf("tool %q: %s", e.Tool, strings.Join(all, "; "))
}

// Get returns the tool with exactly the given name for a call. It fails like Find, and with denied
// if the tool is disabled, or workspace_untrusted if it is only discovered (RT-06).
func (r *Registry) Get(ctx context.Context, name string) (*dray.Tool, error) {
	t, err := r.Find(name)
	if err == nil {
		err = r.check(ctx, name)
	}
	return t, err
}

// nameProblem returns why a tool cannot have a name, or "".
func (r *Registry) nameProblem(name string) string {
	other := r.project.resembling(name)
	switch _, inUse := r.tools[name]; {
	case inUse, other == name:
		return "is already in use"
	case other != "":
		return fmt.Sprintf("could be taken for the tool %s of the daemon", other)
	default:
		return ""
	}
}

// Find returns the tool with exactly the given name, in any state. It fails with invalid_request if
// the name is malformed, and with unknown_tool if there is no such tool.
func (r *Registry) Find(name string) (*dray.Tool, error) {
	if t, ok := r.tools[name]; ok {
		return t, nil
	}
	if len(name) > maxName || !lexical.IsName(name) {
		e := dray.Errorf(dray.CodeInvalidRequest, "tool name %q is malformed",
			lexical.Truncate(name, maxName)).
			WithHint("use at most %d letters, digits, '.', '_' and '-', the first a letter or a digit",
				maxName)
		e.Details = []dray.Detail{{Pointer: "/tool", Message: "is malformed"}}
		return nil, e
	}
	hint := "dray tools lists all tools; those of a project need its workspace in the call"
	if near := lexical.Closest(name, r.names()); near != "" {
		hint = fmt.Sprintf("did you mean %s? %s", near, hint)
	}
	return nil, dray.Errorf(dray.CodeUnknownTool, "unknown tool %q", name).WithHint("%s", hint)
}

// State returns the state of a tool. If calls of it are refused, reason is the error that they get.
func (r *Registry) State(ctx context.Context, name string) (state State, reason error) {
	err := r.check(ctx, name)
	switch dray.CodeOf(err) {
	case dray.CodeDenied:
		return Disabled, err
	case "":
		return Active, nil
	default:
		return Discovered, err
	}
}

// check fails if a tool is not active.
func (r *Registry) check(ctx context.Context, name string) error {
	if err := r.States.check(r.project.stateKey(name)); err != nil {
		return err
	}
	return r.project.check(ctx)
}

// SetState changes the state of a tool on behalf of a principal, as [States.Set].
func (r *Registry) SetState(ctx context.Context, principal, name string, state State) error {
	return r.States.Set(ctx, principal, r.project.stateKey(name), state)
}

// List returns all tools, sorted by name.
func (r *Registry) List() []*dray.Tool {
	all := make([]*dray.Tool, 0, len(r.tools))
	for _, name := range r.names() {
		all = append(all, r.tools[name])
	}
	return all
}

// Active returns the tools that may run, sorted by name.
func (r *Registry) Active(ctx context.Context) []*dray.Tool {
	return slices.DeleteFunc(r.List(), func(t *dray.Tool) bool { return r.check(ctx, t.Name) != nil })
}

func (r *Registry) names() []string { return slices.Sorted(maps.Keys(r.tools)) }

// definition is a tool before it is registered: its data, its compiled schemas, and run, which
// works in the paths of the environment.
type definition struct {
	dray.Tool

	input, output *schema // output is nil for a tool without an output schema
	// check returns the violations that the input schema cannot express. It may be nil.
	check func(input json.RawMessage) []dray.Detail
	// explain improves the violations of the input schema. It may be nil.
	explain func(details []dray.Detail)
	// about is added to the description of a built-in tool.
	about string
	paths pathRules
	run   dray.ExecutorFunc
}

// pathRules are how the mapping treats the calls of a tool.
type pathRules struct {
	// mode holds for every call. Empty is the mode of the call, else of the tool.
	mode dray.MappingMode
	// texts are the members of the input in whose strings paths are rewritten, if text is: arguments
	// and commands (PM-16).
	texts []string
	// errors has the paths in error messages mapped: they are those of the caller's input.
	errors bool
	// symlinks says that the output describes symlinks themselves, so their targets are not checked
	// (PM-12).
	symlinks bool
}

// tool returns the tool that calls name.
func (d *definition) tool() *dray.Tool {
	t := d.Tool
	t.CheckInput = d.checkInput
	if d.input.hasSecrets {
		t.SecretFields = d.input.secretFields
	}
	t.Run = d.mapPaths
	return &t
}

// compile compiles the schemas, and returns what is invalid in them. A tool without an input schema
// accepts any object.
func (d *definition) compile() []Violation {
	if len(d.InputSchema) == 0 {
		d.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	var found []Violation
	note := func(key string, err error) {
		if err != nil {
			found = append(found, Violation{
				key, err.Error(), "write a JSON Schema (draft 2020-12) of an object, or remove it",
			})
		}
	}
	var err error
	d.input, err = compileSchema(&d.InputSchema)
	note("input_schema", err)
	if len(d.OutputSchema) > 0 {
		d.output, err = compileSchema(&d.OutputSchema)
		note("output_schema", err)
	}
	return found
}

// checkInput is [dray.Tool.CheckInput] (RT-04).
func (d *definition) checkInput(input json.RawMessage) error {
	details := d.input.violations(input, "/input")
	if len(details) > 0 {
		hideSecrets(details, d.input.secretFields(input))
		if d.explain != nil {
			d.explain(details)
		}
	} else if d.check != nil {
		details = d.check(input)
	}
	if len(details) == 0 {
		return nil
	}
	return d.inputError(details)
}

// inputError returns the error for an invalid input.
func (d *definition) inputError(details []dray.Detail) error {
	e := dray.Errorf(dray.CodeInvalidInput, "the input does not match the schema of tool %s: %s: %s",
		d.Name, details[0].Pointer, details[0].Message)
	e.Details = details
	return e.WithHint("see its input_schema: GET /v1/tools/%s, or dray tools %s", d.Name, d.Name)
}
