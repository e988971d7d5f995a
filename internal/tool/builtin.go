package tool

import (
	"cmp"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
)

// toolSpecs are the descriptions and schemas of the built-in tools, as models read them.
//
//go:embed builtin/*.json
var toolSpecs embed.FS

// builtins returns the tools that every daemon has.
func (r *Registry) builtins() ([]*definition, error) {
	stat := fileTool(r, "stat", statFile, nil)
	stat.paths.symlinks = true
	r.sync = r.syncTool(inputOfCall)
	all := []*definition{
		processTool(r, "exec", execCommand, "argv"),
		processTool(r, "shell", shellCommand, "command"),
		fileTool(r, "read_file", readFile, nil),
		fileTool(r, "write_file", writeFile, checkWriteInput),
		fileTool(r, "edit_file", editFile, checkEditInput),
		fileTool(r, "list_dir", listDir, nil),
		fileTool(r, "glob", globFiles, checkGlobInput),
		fileTool(r, "grep", grepFiles, checkGrepInput),
		stat,
		r.sync,
		r.outputTool(),
	}
	if !r.Python.Disabled {
		all = append(all, r.pythonTool())
	}
	for _, d := range all {
		d.Capabilities = builtinCapabilities[d.Name]
		if err := d.describe(); err != nil {
			return nil, fmt.Errorf("built-in tool %s: %w", d.Name, err)
		}
	}
	return all, nil
}

// builtinCapabilities are the effects of the built-in tools.
var builtinCapabilities = map[string]dray.ToolCapabilities{
	"exec":        {Network: true, Unsafe: true},
	"shell":       {Network: true, Unsafe: true},
	"read_file":   {ReadOnly: true},
	"list_dir":    {ReadOnly: true},
	"glob":        {ReadOnly: true},
	"grep":        {ReadOnly: true},
	"stat":        {ReadOnly: true},
	"read_output": {ReadOnly: true},
	"write_file":  {Writes: []string{"**"}},
	"edit_file":   {Writes: []string{"**"}},
	"sync":        {Writes: []string{"**"}},
	"python":      {Network: true, Unsafe: true},
}

// describe sets the description and the schemas of a built-in tool from its embedded file.
func (d *definition) describe() error {
	var text struct {
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"input_schema"`
		OutputSchema json.RawMessage `json:"output_schema"`
	}
	b, err := toolSpecs.ReadFile("builtin/" + d.Name + ".json")
	if err == nil {
		err = read(b, &text)
	}
	if err != nil {
		return fmt.Errorf("read its description: %w", err)
	}
	d.Description = text.Description + d.about
	d.InputSchema, d.OutputSchema = text.InputSchema, text.OutputSchema
	d.Environment.Kind = cmp.Or(d.Environment.Kind, dray.RequireAny)
	if found := d.compile(); len(found) > 0 {
		return &InvalidError{d.Name, found}
	}
	return nil
}

// read decodes JSON strictly. The input of a call has passed the tool's schema by then, so an
// unknown member is an error of this package.
func read(b []byte, into any) error {
	return jsonv2.Unmarshal(b, into, jsonv2.RejectUnknownMembers(true))
}

type execInput struct {
	sessionInput

	Argv []string `json:"argv"`
}

func execCommand(in execInput) (argv []string, inSession sessionCall) {
	return in.Argv, sessionCall{sessionInput: in.sessionInput, shell: defaultShell, argv: in.Argv}
}

type shellInput struct {
	sessionInput

	Command string `json:"command"`
	Shell   string `json:"shell"`
}

const defaultShell = "/bin/sh"

// shellCommand leaves the command to the environment's shell: the host's reads none (EX-04).
func shellCommand(in shellInput) (argv []string, inSession sessionCall) {
	shell := cmp.Or(in.Shell, defaultShell)
	return []string{shell, "-c", in.Command},
		sessionCall{sessionInput: in.sessionInput, shell: shell, command: in.Command}
}

type writeInput struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
	Base64  *string `json:"content_base64"`
	Mode    string  `json:"mode"`
}

func (in writeInput) bytes() ([]byte, error) {
	if in.Base64 == nil {
		return []byte(*in.Content), nil
	}
	return base64.StdEncoding.Strict().DecodeString(*in.Base64)
}

// checkWriteInput requires exactly one content. A schema could express that with oneOf, which the
// tool interfaces of many models refuse.
func checkWriteInput(in writeInput) []dray.Detail {
	if (in.Content == nil) == (in.Base64 == nil) {
		return violation("/input", "set either content or content_base64")
	}
	if _, err := in.bytes(); err != nil {
		return violation("/input/content_base64", err.Error())
	}
	return nil
}

// maxEntries is the maximum number of entries that list_dir returns.
const maxEntries = 1000

type pathInput struct {
	Path string `json:"path"`
}

type listOutput struct {
	Path      string  `json:"path"`
	Entries   []entry `json:"entries"`
	Truncated bool    `json:"truncated"`
}

type entry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified"`
}

func listDir(_ context.Context, at fileScope, in pathInput) (any, error) {
	dir, err := at.locate(in.Path)
	if err != nil {
		return nil, err
	}
	infos, more, err := at.files.List(dir.name, maxEntries)
	if err != nil {
		return nil, dir.wrapError("list", err)
	}
	slices.SortFunc(infos, func(a, b dray.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	out := listOutput{Path: dir.path, Entries: make([]entry, 0, len(infos)), Truncated: more}
	for _, i := range infos {
		name := dray.PrintablePath(i.Name)
		out.Entries = append(out.Entries, entry{name, i.Type, i.Size, octal(i), i.Modified.UTC()})
	}
	return out, nil
}

type statOutput struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitzero"`
}

func statFile(_ context.Context, at fileScope, in pathInput) (any, error) {
	file, err := at.locate(in.Path)
	if err != nil {
		return nil, err
	}
	info, err := at.files.Stat(file.name)
	if err != nil {
		return nil, file.wrapError("stat", err)
	}
	return statOutput{
		file.path, info.Type, info.Size, octal(info), info.Modified.UTC(),
		dray.PrintablePath(info.Target),
	}, nil
}

func octal(info dray.FileInfo) string { return fmt.Sprintf("%04o", info.Mode.Perm()) }
