package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/router"
	"github.com/dray-dev/dray/pathmapper"
)

// maxName is the longest name of a tool, in bytes (EX-02).
const maxName = 128

var toolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// validName says whether a name has the form of a tool's.
func validName(name string) bool { return len(name) <= maxName && toolName.MatchString(name) }

// Registry is all tools there are. It does not change and is safe for concurrent use.
type Registry struct {
	tools map[string]*Tool
	names []string
}

// NewRegistry takes the built-in tools and the configured ones. It refuses a name that is taken or
// malformed and a schema that does not compile with a [CommandError].
func NewRegistry(commands []Command) (*Registry, error) {
	r := &Registry{tools: map[string]*Tool{}}
	builtins, err := builtins()
	if err != nil {
		return nil, err
	}
	for _, t := range builtins {
		r.tools[t.Name] = t
	}
	for i, c := range commands {
		if err := r.add(c); err != nil {
			return nil, &CommandError{Index: i, err: err}
		}
	}
	r.names = slices.Sorted(maps.Keys(r.tools))
	return r, nil
}

// CommandError says which of the configured tools is not one.
type CommandError struct {
	Index int
	err   error
}

// Error names the tool by its place in the configuration.
func (e *CommandError) Error() string { return fmt.Sprintf("tools[%d]: %v", e.Index, e.err) }

// Unwrap gives what is wrong with it.
func (e *CommandError) Unwrap() error { return e.err }

func (r *Registry) add(c Command) error {
	t, err := c.tool()
	if err != nil {
		return err
	}
	if other, ok := r.tools[t.Name]; ok {
		return fmt.Errorf("name %q is taken by %s: choose another", t.Name, other.origin())
	}
	r.tools[t.Name] = t
	return nil
}

// Get finds a tool by its exact name. A malformed name is invalid_request, an unknown one
// unknown_tool.
func (r *Registry) Get(name string) (*Tool, error) {
	if t, ok := r.tools[name]; ok {
		return t, nil
	}
	if !validName(name) {
		e := dray.Errorf(dray.CodeInvalidRequest, "tool %q is malformed", cut(name, maxName)).
			WithHint("a tool's name is at most %d letters, digits, '.', '_' and '-', and begins with a letter or digit", maxName)
		e.Details = []dray.Detail{{Pointer: "/tool", Message: "is malformed"}}
		return nil, e
	}
	return nil, dray.Errorf(dray.CodeUnknownTool, "there is no tool %q", name).
		WithHint("%s", r.suggest(name))
}

// Requirement gives a tool's environment, as the router asks for it.
func (r *Registry) Requirement(name string) (router.Requirement, error) {
	t, err := r.Get(name)
	if err != nil {
		return router.Requirement{}, err
	}
	return t.Environment, nil
}

// List describes all tools, by name.
func (r *Registry) List() []Description {
	all := make([]Description, 0, len(r.names))
	for _, name := range r.names {
		all = append(all, r.tools[name].Describe())
	}
	return all
}

// suggest suggests the name that was probably meant.
func (r *Registry) suggest(name string) string {
	best, least := "", len(name)/3+2
	for _, known := range r.names {
		if d := distance(strings.ToLower(name), strings.ToLower(known)); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return "dray tools lists what there is"
	}
	return fmt.Sprintf("did you mean %s? dray tools lists what there is", best)
}

// distance counts the bytes to insert, drop or replace between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Tool is something that a call can name. It does not change.
type Tool struct {
	Name        string
	Description string
	// Environment is what the tool asks of the router.
	Environment router.Requirement
	// Timeout is the tool's own; zero means that it has none.
	Timeout time.Duration
	// Mapping is the tool's own; empty means schema where its schemas mark a path, else heuristic.
	Mapping dray.MappingMode
	// RewriteText has the paths in its text rewritten to the caller's, in calls that do not say
	// otherwise.
	RewriteText bool

	input, output           *schema
	inputPaths, outputPaths *pathmapper.Marks
	// checkInput finds what the input's schema cannot say; it may be nil.
	checkInput func(input json.RawMessage) []dray.Detail
	// results are paths that come home when a call of the tool ends.
	results []string
	// A tool has one of these: it starts a process, it touches files, or it moves them between the two
	// sides.
	program *processTool
	files   fileTool
	isSync  bool
	// reportsSymlinks says that the output tells of a link itself, so that where it leads is no matter
	// (PM-12).
	reportsSymlinks bool
}

// processTool says how a tool becomes a process.
type processTool struct {
	argv func(input json.RawMessage) ([]string, error)
	// inputOnStdin says that stdin is the input itself, so that the call cannot bring one.
	inputOnStdin bool
	// jsonOutput says that stdout is the tool's output, in JSON.
	jsonOutput bool
}

// fileTool does one operation on files; what it returns becomes the output.
type fileTool func(ctx context.Context, at fileScope, input json.RawMessage) (any, error)

// AcceptsStdin says whether a call may bring a stdin: a command tool gets its input there, and a
// file tool has no process.
func (t *Tool) AcceptsStdin() bool { return t.program != nil && !t.program.inputOnStdin }

// MovesFiles says that the tool is the one that moves files between the host and a container.
func (t *Tool) MovesFiles() bool { return t.isSync }

// StartsProcess says that the tool is a program, not an operation on files.
func (t *Tool) StartsProcess() bool { return t.program != nil }

// CheckInput holds an input, in the caller's own form, against the tool's schema (RT-04). It fails
// with invalid_input and a JSON pointer for each violation, at most 50.
func (t *Tool) CheckInput(input json.RawMessage) error {
	details := t.input.violations(input, "/input")
	if len(details) == 0 && t.checkInput != nil {
		details = t.checkInput(input)
	}
	if len(details) == 0 {
		return nil
	}
	e := dray.Errorf(dray.CodeInvalidInput, "the input does not fit tool %s: %s: %s", t.Name,
		details[0].Pointer, details[0].Message)
	e.Details = details
	return e.WithHint("see the tool's input_schema: GET /v1/tools/%s, or dray tools %s", t.Name,
		t.Name)
}

// Description is what callers see of a tool.
type Description struct {
	Name, Description         string
	InputSchema, OutputSchema json.RawMessage
	Environment               router.Requirement
	// Timeout is the tool's own; zero where the daemon's default holds.
	Timeout     time.Duration
	Mapping     dray.MappingMode
	RewriteText bool
	// Results are the paths that come home when a call ends.
	Results []string
	// Stdin says whether a call may bring one.
	Stdin bool
}

// Describe gives what callers see of a tool.
func (t *Tool) Describe() Description {
	d := Description{
		Name: t.Name, Description: t.Description, InputSchema: t.input.text, Environment: t.Environment, Timeout: t.Timeout,
		Mapping: t.Mapping, RewriteText: t.RewriteText, Results: t.results, Stdin: t.AcceptsStdin(),
	}
	if t.output != nil {
		d.OutputSchema = t.output.text
	}
	return d
}

// setSchemas compiles the schemas and finds the paths that they mark. Without an input schema any
// object is an input.
func (t *Tool) setSchemas(input, output json.RawMessage) error {
	if len(input) == 0 {
		input = json.RawMessage(`{"type":"object"}`)
	}
	var err error
	if t.input, t.inputPaths, err = withPaths(input); err != nil {
		return fmt.Errorf("input_schema: %w", err)
	}
	if len(output) == 0 {
		return nil
	}
	if t.output, t.outputPaths, err = withPaths(output); err != nil {
		return fmt.Errorf("output_schema: %w", err)
	}
	return nil
}

func withPaths(text json.RawMessage) (*schema, *pathmapper.Marks, error) {
	s, err := compileSchema(text)
	if err != nil {
		return nil, nil, err
	}
	marks, err := pathmapper.CompileMarks(text)
	if err != nil {
		return nil, nil, fmt.Errorf("find the paths in it: %w", err)
	}
	return s, marks, nil
}

// Format says what a command tool's stdout is.
type Format string

// The formats. The empty one is FormatJSON where the command has an output schema, else FormatText.
const (
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// Command is a tool that the configuration declares.
type Command struct {
	Name        string
	Description string
	// Argv is started as it stands: the input does not become a part of it.
	Argv []string
	// InputSchema and OutputSchema may be empty: any object, and no promise.
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	Environment  router.Requirement
	// Timeout is zero where none is configured.
	Timeout time.Duration
	Output  Format
	Mapping dray.MappingMode
	// RewriteText has the paths in what it prints rewritten to the caller's, in calls that do not say
	// otherwise.
	RewriteText bool
	// Results are files and folders that come home when a call ends: absolute, or relative to its
	// working folder.
	Results []string
}

func (c Command) tool() (*Tool, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("tool %q: %w", c.Name, err)
	}
	t := &Tool{
		Name: c.Name, Description: c.Description, Environment: c.Environment, Timeout: c.Timeout, Mapping: c.Mapping,
		RewriteText: c.RewriteText, results: slices.Clone(c.Results),
		program: &processTool{
			argv:         func(json.RawMessage) ([]string, error) { return slices.Clone(c.Argv), nil },
			inputOnStdin: true,
			jsonOutput:   c.Output == FormatJSON || c.Output == "" && len(c.OutputSchema) > 0,
		},
	}
	if err := t.setSchemas(c.InputSchema, c.OutputSchema); err != nil {
		return nil, fmt.Errorf("tool %q: %w", c.Name, err)
	}
	return t, nil
}

// check refuses what the schemas do not cover.
func (c Command) check() error {
	switch {
	case !validName(c.Name):
		return fmt.Errorf("the name is not one: write at most %d letters, digits, '.', '_' and '-'",
			maxName)
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return errors.New("argv names no program")
	case slices.ContainsFunc(c.Argv, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return errors.New("argv holds a NUL character")
	case c.Timeout < 0:
		return fmt.Errorf("timeout %s is negative", c.Timeout)
	case !slices.Contains([]Format{"", FormatText, FormatJSON}, c.Output):
		return fmt.Errorf("output is %q: write text or json", c.Output)
	case c.Output == FormatText && len(c.OutputSchema) > 0:
		return errors.New("output is text, which no output_schema can hold for: say json or drop the schema")
	case !slices.Contains([]dray.MappingMode{
		dray.MapDefault, dray.MapSchema, dray.MapHeuristic,
		dray.MapNone,
	}, c.Mapping):
		return fmt.Errorf("mapping is %q: write schema, heuristic or none", c.Mapping)
	}
	return nil
}

// origin says where a tool comes from, for the error of a name that is taken.
func (t *Tool) origin() string {
	if t.program != nil && t.program.inputOnStdin {
		return "another configured tool"
	}
	return "a built-in tool"
}
