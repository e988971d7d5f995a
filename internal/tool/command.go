package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/router"
)

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
	// RewriteText has the paths in what it prints rewritten to the caller's, in calls that do not say otherwise.
	RewriteText bool
	// Results are files and folders that come home when a call ends: absolute, or relative to its working folder.
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
		return fmt.Errorf("the name is not one: write at most %d letters, digits, '.', '_' and '-'", maxName)
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
	case !slices.Contains([]dray.MappingMode{dray.MapDefault, dray.MapSchema, dray.MapHeuristic, dray.MapNone}, c.Mapping):
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
