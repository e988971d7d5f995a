package tool

import (
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
	"github.com/dray-dev/dray/internal/router"
)

// toolSpecs are the descriptions and schemas of the built-in tools, as models read them.
//
//go:embed builtin/*.json
var toolSpecs embed.FS

// builtins are the tools that every daemon has. They run wherever the rules lead.
func builtins() ([]*Tool, error) {
	all := []*Tool{
		{Name: "exec", program: &processTool{argv: execArgv}},
		{Name: "shell", program: &processTool{argv: shellArgv}},
		{Name: "read_file", files: newFileTool(readFile)},
		{Name: "write_file", files: newFileTool(writeFile), checkInput: inputCheck(refuseWrite)},
		{Name: "edit_file", files: newFileTool(editFile), checkInput: inputCheck(checkEditInput)},
		{Name: "list_dir", files: newFileTool(listDir)},
		{Name: "stat", files: newFileTool(statFile), reportsSymlinks: true},
		{Name: "glob", files: newFileTool(globFiles), checkInput: inputCheck(refuseGlob)},
		{Name: "grep", files: newFileTool(grepFiles), checkInput: inputCheck(refuseGrep)},
		{Name: "sync", isSync: true},
	}
	for _, t := range all {
		if err := t.describe(); err != nil {
			return nil, fmt.Errorf("built-in tool %s: %w", t.Name, err)
		}
	}
	return all, nil
}

func (t *Tool) describe() error {
	b, err := toolSpecs.ReadFile("builtin/" + t.Name + ".json")
	if err != nil {
		return fmt.Errorf("read its text: %w", err)
	}
	var text struct {
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"input_schema"`
		OutputSchema json.RawMessage `json:"output_schema"`
	}
	if err := read(b, &text); err != nil {
		return fmt.Errorf("read its text: %w", err)
	}
	t.Description = text.Description
	t.Environment = router.Requirement{Kind: router.NeedAuto}
	return t.setSchemas(text.InputSchema, text.OutputSchema)
}

// read decodes strictly. The input of a call has passed the tool's schema by then; a member that is
// unknown here is a mistake of ours, and is not passed over.
func read(b []byte, into any) error {
	return jsonv2.Unmarshal(b, into, jsonv2.RejectUnknownMembers(true))
}

// newFileTool is the tool that does some work with its input.
func newFileTool[In any](work func(ctx context.Context, at fileScope, in In) (any,
	error),
) fileTool {
	return func(ctx context.Context, at fileScope, input json.RawMessage) (any, error) {
		var in In
		if err := read(input, &in); err != nil {
			return nil, fmt.Errorf("read the input: %w", err)
		}
		return work(ctx, at, in)
	}
}

// inputCheck looks for what the input's schema cannot say. What cannot even be read is refused,
// too.
func inputCheck[In any](check func(in In) []dray.Detail) func(json.RawMessage) []dray.Detail {
	return func(input json.RawMessage) []dray.Detail {
		var in In
		if err := read(input, &in); err != nil {
			return []dray.Detail{{Pointer: "/input", Message: cut(err.Error(), maxMessage)}}
		}
		return check(in)
	}
}

func execArgv(input json.RawMessage) ([]string, error) {
	var in struct {
		Argv []string `json:"argv"`
	}
	if err := read(input, &in); err != nil {
		return nil, fmt.Errorf("read the input of exec: %w", err)
	}
	return in.Argv, nil
}

// shellArgv leaves the command to the environment's shell: no shell of the host has a part in it
// (EX-04).
func shellArgv(input json.RawMessage) ([]string, error) {
	in := struct {
		Command string `json:"command"`
		Shell   string `json:"shell"`
	}{Shell: "/bin/sh"}
	if err := read(input, &in); err != nil {
		return nil, fmt.Errorf("read the input of shell: %w", err)
	}
	return []string{in.Shell, "-c", in.Command}, nil
}

// writeInput is the input of write_file.
type writeInput struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
	Base64  *string `json:"content_base64"`
	Mode    string  `json:"mode"`
}

// bytes gives the bytes to write.
func (in writeInput) bytes() ([]byte, error) {
	if in.Base64 == nil {
		return []byte(*in.Content), nil
	}
	return base64.StdEncoding.Strict().DecodeString(*in.Base64)
}

// refuseWrite asks for exactly one content. A schema could say so with oneOf, which many models'
// tool interfaces refuse.
func refuseWrite(in writeInput) []dray.Detail {
	if (in.Content == nil) == (in.Base64 == nil) {
		return []dray.Detail{{Pointer: "/input", Message: "give either content or content_base64"}}
	}
	if _, err := in.bytes(); err != nil {
		return []dray.Detail{{Pointer: "/input/content_base64", Message: err.Error()}}
	}
	return nil
}

// maxEntries is how many entries of a folder are listed.
const maxEntries = 1000

// pathInput is the input of a tool that asks for nothing but a path.
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
	folder, err := at.locate(in.Path)
	if err != nil {
		return nil, err
	}
	infos, more, err := at.files.List(folder.name, maxEntries)
	if err != nil {
		return nil, folder.wrapError("list", err)
	}
	slices.SortFunc(infos, func(a, b dray.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	out := listOutput{Path: folder.path, Entries: make([]entry, 0, len(infos)), Truncated: more}
	for _, info := range infos {
		out.Entries = append(out.Entries, entry{
			dray.PrintablePath(info.Name), info.Type, info.Size,
			octal(info), info.Modified.UTC(),
		})
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

// octal writes permissions as the tools tell them.
func octal(info dray.FileInfo) string { return fmt.Sprintf("%04o", info.Mode.Perm()) }
