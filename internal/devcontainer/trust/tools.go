package trust

import (
	"context"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/linux"
)

// maxToolsFile is the maximum size of the file of declared tools in bytes.
const maxToolsFile = 256 << 10

// ToolsFile is the file in which a workspace declares tools of its own (RT-15).
type ToolsFile struct {
	// Workspace is the folder with symlinks resolved.
	Workspace string
	Path      string
	// Text is the content that was hashed, nil if the file does not exist.
	Text []byte
	// Untrusted is why the tools may not be called, nil if the workspace is trusted with them.
	Untrusted error
	// Files are the inputs that this was derived from.
	Files Files
}

// Tools returns the tools that a workspace declares, and whether they are trusted. It fails with
// workspace_untrusted if the file, or another trust input, cannot be read.
func (s *Store) Tools(ctx context.Context, loc devcontainer.Location) (ToolsFile, error) {
	canonical, err := loc.Canonical(ctx)
	if err != nil {
		return ToolsFile{}, err
	}
	in := &inputs{loc: canonical, ctx: ctx, dir: linux.UntrustedDir(canonical.Workspace)}
	in.addTools()
	if err := in.failure(); err != nil {
		return ToolsFile{}, err
	}
	var untrusted error
	if in.tools.exist() && !s.isAlways(canonical) {
		in, _, untrusted = s.unchanged(ctx, loc)
		if in == nil { // they cannot be read
			return ToolsFile{}, untrusted
		}
	}
	return ToolsFile{
		Workspace: canonical.Workspace, Path: in.tools.path, Text: in.tools.text, Untrusted: untrusted,
		Files: in.paths(),
	}, nil
}

// declaredTools are the tools that a workspace declares.
type declaredTools struct {
	path string
	text []byte // nil if the file does not exist
}

func (t *declaredTools) exist() bool { return t.text != nil }

func collectWithTools(ctx context.Context, loc devcontainer.Location) (*inputs, error) {
	in, err := collect(ctx, loc)
	if err != nil {
		return nil, err
	}
	in.addTools()
	err = in.failure()
	return in, err
}

// addTools adds the tools that the workspace declares. Their file must be its own: the content of
// another file of this user would appear in messages.
func (in *inputs) addTools() {
	t := &in.tools
	t.path = filepath.Join(in.loc.Workspace, config.ProjectTools)
	text, err := in.dir.ReadOwnFile(in.ctx, t.path, maxToolsFile)
	if err != nil {
		if !linux.IsAbsent(err) {
			in.fail(err)
		}
		return
	}
	t.text = text
}

// summary returns a line for each tool, for the user who decides about trust, and why none of the
// tools counts.
func (t *declaredTools) summary() (lines []SummaryLine, problem string) {
	cfg, found := config.ReadProjectTools(t.path, t.text)
	if len(found) > 0 {
		problem = found[0].Summary()
	}
	for i := range cfg.Tools {
		lines = append(lines, SummaryLine{"tool " + cfg.Tools[i].Name, describe(&cfg.Tools[i])})
	}
	return lines, problem
}

// describe returns what a tool does in the container, and what is fetched from there. Values of
// variables may be secrets, so it has only their names.
func describe(t *config.Tool) string {
	var text strings.Builder
	text.WriteString("runs " + display(t.Argv))
	for _, part := range []struct {
		name  string
		value any
		isSet bool
	}{
		{"variables", slices.Sorted(maps.Keys(t.Env)), len(t.Env) > 0},
		{"results", t.Results, len(t.Results) > 0},
		{"capabilities", dray.ToolCapabilities(t.Capabilities), hasAny(t.Capabilities)},
		{"description", strconv.Quote(t.Description), t.Description != ""},
	} {
		if part.isSet {
			text.WriteString("; " + part.name + " " + display(part.value))
		}
	}
	return text.String()
}

func hasAny(c config.Capabilities) bool { return !reflect.ValueOf(c).IsZero() }
