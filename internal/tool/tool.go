package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/router"
	"github.com/dray-dev/dray/pathmapper"
)

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
	// RewriteText has the paths in its text rewritten to the caller's, in calls that do not say otherwise.
	RewriteText bool

	input, output           *schema
	inputPaths, outputPaths *pathmapper.Marks
	// checkInput finds what the input's schema cannot say; it may be nil.
	checkInput func(input json.RawMessage) []dray.Detail
	// results are paths that come home when a call of the tool ends.
	results []string
	// A tool has one of these: it starts a process, it touches files, or it moves them between the two sides.
	program *processTool
	files   fileTool
	isSync  bool
	// reportsSymlinks says that the output tells of a link itself, so that where it leads is no matter (PM-12).
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

// AcceptsStdin says whether a call may bring a stdin: a command tool gets its input there, and a file tool has no process.
func (t *Tool) AcceptsStdin() bool { return t.program != nil && !t.program.inputOnStdin }

// MovesFiles says that the tool is the one that moves files between the host and a container.
func (t *Tool) MovesFiles() bool { return t.isSync }

// StartsProcess says that the tool is a program, not an operation on files.
func (t *Tool) StartsProcess() bool { return t.program != nil }

// CheckInput holds an input, in the caller's own form, against the tool's schema (RT-04). It fails with invalid_input and a JSON
// pointer for each violation, at most 50.
func (t *Tool) CheckInput(input json.RawMessage) error {
	details := t.input.violations(input, "/input")
	if len(details) == 0 && t.checkInput != nil {
		details = t.checkInput(input)
	}
	if len(details) == 0 {
		return nil
	}
	e := dray.Errorf(dray.CodeInvalidInput, "the input does not fit tool %s: %s: %s", t.Name, details[0].Pointer, details[0].Message)
	e.Details = details
	return e.WithHint("see the tool's input_schema: GET /v1/tools/%s, or dray tools %s", t.Name, t.Name)
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

// setSchemas compiles the schemas and finds the paths that they mark. Without an input schema any object is an input.
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
