package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// readDir returns the names in a directory, sorted.
func readDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// toolDirs adds the tools of the files in tool_dirs.
func (l *loader) toolDirs(d *decoder) {
	for i, dir := range d.c.ToolDirs {
		key := index("tool_dirs", i)
		l.toolDir(d, dir, key, d.c.Origin(key))
	}
}

// toolDir adds the tools of the files *.yaml in a directory, by name. at is what names it.
func (l *loader) toolDir(d *decoder, dir, key string, at Origin) {
	names, err := l.opts.ReadDir(dir)
	if err != nil {
		l.addKey(at, key, "cannot be read: "+cause(err).Error(), "make it a directory that dray can read")
		return
	}
	for _, name := range names {
		if filepath.Ext(name) == ".yaml" {
			l.toolFile(d, filepath.Join(dir, name))
		}
	}
}

// toolFile adds the tools of a file: a list as in the key tools, or a block with that key. Their
// keys continue those of the tools before, because the file is in the origins anyway.
func (l *loader) toolFile(d *decoder, name string) {
	data, err := l.opts.ReadFile(name)
	if err != nil {
		l.add(unreadable(name, err))
		return
	}
	l.toolData(d, name, data)
}

func unreadable(name string, err error) Diagnostic {
	return Diagnostic{
		Origin: Origin{File: name}, Problem: "cannot be read: " + cause(err).Error(),
		Suggestion: "check its name, owner and mode",
	}
}

// toolData adds the tools of the file with this name and content.
func (l *loader) toolData(d *decoder, name string, data []byte) {
	at := func(line, column int) Origin { return Origin{File: name, Line: line, Column: column} }
	v, ok := yamlReader{&l.diagnostics, at}.read(data, "tools")
	if !ok || v.shape == empty {
		return
	}
	if v.shape == object {
		if v, ok = l.toolsMember(v); !ok {
			return
		}
	}
	for i := range v.items {
		v.items[i] = v.items[i].rekeyed(index("tools", i), index("tools", i+len(d.c.Tools)))
	}
	d.c.Tools = slices.Concat(d.c.Tools, d.toolList(v))
}

// toolsMember returns the only allowed member of a block in a file of tools.
func (l *loader) toolsMember(v value) (tools value, ok bool) {
	for _, f := range v.fields {
		if f.name != "tools" {
			l.addKey(f.origin, f.name, "is not a key of a file of tools",
				"write tools: followed by a list, or only the list")
			continue
		}
		tools, ok = f.value.rekeyed("tools.tools", "tools"), f.value.shape != empty
	}
	return tools, ok
}

// ReadTools reads the tools of files, and of the files *.yaml in directories. It returns what is
// invalid in them besides the tools that it could read. The Config has only tools.
func ReadTools(paths []string) (*Config, []Diagnostic) {
	l := &loader{opts: Options{ReadFile: readFile, ReadDir: readDir}}
	d := newDecoder(&l.diagnostics)
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			l.toolDir(d, path, "", Origin{File: path})
			continue
		}
		l.toolFile(d, path)
	}
	return d.c, l.found
}

// ProjectTools is the file in which a workspace declares tools of its own, relative to it.
const ProjectTools = ".dray/tools.yaml"

// maxProjectTools is the maximum number of tools that a workspace declares.
const maxProjectTools = 100

// ReadProjectToolsFile reads the tools of a workspace from its file, as ReadTools does.
func ReadProjectToolsFile(name string) (*Config, []Diagnostic) {
	data, err := readFile(name)
	if err != nil {
		return &Config{}, []Diagnostic{unreadable(name, err)}
	}
	return ReadProjectTools(name, data)
}

// ReadProjectTools reads the tools of a workspace from the content of its file, as ReadTools does.
// Workspaces are untrusted (CF-03): their tools run in their container and nowhere else, so each of
// them has EnvironmentRequired.
func ReadProjectTools(name string, data []byte) (*Config, []Diagnostic) {
	l := &loader{}
	d := newDecoder(&l.diagnostics)
	l.toolData(d, name, data)
	if len(d.c.Tools) > maxProjectTools {
		l.addKey(Origin{File: name}, "tools", fmt.Sprintf("has more than %d tools", maxProjectTools),
			"remove some")
		d.c.Tools = d.c.Tools[:maxProjectTools]
	}
	for i := range d.c.Tools {
		t := &d.c.Tools[i]
		key := index("tools", i) + ".environment"
		if at, stated := d.c.origins[key]; stated && t.Environment != EnvironmentRequired {
			l.addKey(at, key, "is not required: a tool of a project runs only in the project's container",
				"remove it, or write required; tools for the host belong into the daemon's configuration")
		}
		t.Environment, t.Container = EnvironmentRequired, ""
	}
	return d.c, l.found
}
