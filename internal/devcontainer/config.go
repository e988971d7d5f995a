package devcontainer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
	"github.com/dray-dev/dray/internal/linux"
)

// entry is a JSON object: a configuration file, or one entry of the metadata label.
type entry = map[string]any

// ConfigFile is a configuration file that was read.
type ConfigFile struct {
	Raw []byte
	// Values are its properties, as encoding/json decodes them.
	Values map[string]any
	// Errors are the syntax errors that the reference ignores too.
	Errors []jsonc.SyntaxError
}

// ReadConfig reads the configuration of a location. An invalid file is container_failed, not
// no_devcontainer: a call must not run on the host because its configuration is broken.
func ReadConfig(ctx context.Context, loc Location) (ConfigFile, error) {
	raw, err := linux.UntrustedDir(loc.Workspace).ReadFile(ctx, loc.Config, jsonc.MaxBytes)
	switch {
	case linux.IsAbsent(err):
		return ConfigFile{}, dray.Errorf(dray.CodeNoDevcontainer,
			"the devcontainer configuration %s no longer exists", loc.Config).WithHint("restore the file")
	case err != nil:
		return ConfigFile{}, dray.Errorf(dray.CodeContainerFailed,
			"read the devcontainer configuration: %w", err).
			WithHint("make %s a readable regular file", loc.Config)
	}
	doc, err := jsonc.Parse(raw)
	if err != nil {
		return ConfigFile{}, broken(loc, "%w", err)
	}
	return ConfigFile{Raw: raw, Values: doc.Value, Errors: doc.Errors}, nil
}

func broken(loc Location, format string, args ...any) error {
	e := dray.Errorf(dray.CodeContainerFailed, format, args...)
	if loc.Config == "" {
		e.Message = "invalid metadata label of the container: " + e.Message
		return e.WithHint("correct the label in the image and build it again")
	}
	e.Message = "invalid devcontainer configuration " + loc.Config + ": " + e.Message
	return e.WithHint("correct the file")
}

// IsCompose and IsDockerfile distinguish the three kinds of configuration by the presence of a
// property, as the reference does.
func (c ConfigFile) IsCompose() bool {
	_, ok := c.Values["dockerComposeFile"]
	return ok
}

// IsDockerfile is described at IsCompose.
func (c ConfigFile) IsDockerfile() bool {
	if _, ok := c.Values["dockerFile"]; ok {
		return true
	}
	build, _ := c.Values["build"].(entry)
	_, ok := build["dockerfile"]
	return ok
}

// defaultFolder returns the default of workspaceFolder (CF-05).
func defaultFolder(root, workspace string) string {
	target := mountTarget(root)
	rel, err := filepath.Rel(root, workspace)
	if err != nil {
		return target
	}
	return path.Join(target, filepath.ToSlash(rel))
}

func mountTarget(root string) string {
	return path.Join("/workspaces", baseName(root))
}

// baseName returns the last segment, "" for the root.
func baseName(p string) string {
	p = strings.TrimRight(p, "/")
	return p[strings.LastIndexByte(p, '/')+1:]
}

// parseMetadata parses the metadata label: an array of entries, or one entry. For another value,
// which the reference ignores, it returns an error.
func parseMetadata(label string) ([]entry, error) {
	if len(label) > jsonc.MaxBytes {
		return nil, fmt.Errorf("it is larger than %d bytes", jsonc.MaxBytes)
	}
	var value any
	if err := json.Unmarshal([]byte(label), &value); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case entry:
		return []entry{value}, nil
	case []any:
		var entries []entry
		for _, v := range value {
			if e, ok := v.(entry); ok {
				entries = append(entries, e)
			}
		}
		return entries, nil
	}
	return nil, fmt.Errorf("it is neither an array nor an object")
}

// lastTruthy returns the property of the last entry in which it is truthy, or nil.
func lastTruthy(entries []entry, property string) any {
	for _, e := range slices.Backward(entries) {
		if isTruthy(e[property]) {
			return e[property]
		}
	}
	return nil
}

// lastPerKey merges an object property: the last entry that has a key wins.
func lastPerKey(entries []entry, property string) entry {
	out := entry{}
	for _, e := range entries {
		if values, ok := e[property].(entry); ok {
			maps.Copy(out, values)
		}
	}
	return out
}

// isTruthy reports whether JavaScript treats v as true.
func isTruthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case float64:
		return v != 0
	}
	return true
}
