package devcontainer

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"

	"github.com/go-json-experiment/json"
)

// PinnedConfig is a configuration as it was read once, with the mount and the workspace folder made
// explicit: they depend on repositories above the workspace.
type PinnedConfig struct {
	loc    Location
	values entry
}

// Pin returns the configuration of a location. root is the directory to mount; a compose project
// has none.
func (c ConfigFile) Pin(loc Location, root string) (PinnedConfig, error) {
	values := maps.Clone(c.Values)
	if !c.IsCompose() {
		if strings.Contains(root, "${") {
			return PinnedConfig{}, broken(loc, "the path %s contains \"${\"", root)
		}
		if _, named := values["workspaceMount"]; !named {
			values["workspaceMount"] = mountFlag(root)
		}
		if values["workspaceFolder"] == nil {
			values["workspaceFolder"] = defaultFolder(root, loc.Workspace)
		}
	}
	return PinnedConfig{loc: loc, values: values}, nil
}

// IsZero reports whether there is no configuration.
func (p PinnedConfig) IsZero() bool { return p.values == nil }

// Write writes a file with the configuration, and with composeFile instead of its compose files if
// that is not empty.
func (p PinnedConfig) Write(path, composeFile string) error {
	values := p.values
	if composeFile != "" {
		values = maps.Clone(values)
		values["dockerComposeFile"] = composeFile
	}
	text, err := json.Marshal(values, json.Deterministic(true))
	if err != nil {
		return broken(p.loc, "%w", err)
	}
	return os.WriteFile(path, text, 0o600)
}

// mountFlag returns the mount of the workspace as the reference formats it.
func mountFlag(root string) string {
	field := func(name, value string) string {
		text := name + "=" + value
		if strings.Contains(value, ",") {
			text = `"` + text + `"`
		}
		return text
	}
	text := fmt.Sprintf("type=bind,%s,%s", field("source", root), field("target", mountTarget(root)))
	if runtime.GOOS != "linux" {
		text += ",consistency=cached"
	}
	return text
}
