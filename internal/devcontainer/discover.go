package devcontainer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
)

// Location is a workspace folder and its configuration file, both absolute and clean. Symlinks are
// kept, as the reference keeps them in the labels of its containers.
type Location struct {
	Workspace string
	Config    string
}

// wellKnown are the default paths of a configuration, in this order. The reference uses
// `.devcontainer/<name>/devcontainer.json` only if it is named.
var wellKnown = []string{filepath.Join(".devcontainer", "devcontainer.json"), ".devcontainer.json"}

// Locate finds the configuration of a workspace folder. config, if not empty, is the path of the
// file, absolute or relative to the workspace; its name must be devcontainer.json or
// .devcontainer.json. It fails with workspace_not_found, no_devcontainer or invalid_request.
func Locate(workspace, config string) (Location, error) {
	if !filepath.IsAbs(workspace) {
		return Location{}, dray.Errorf(dray.CodeInvalidRequest,
			"the workspace folder %q is not an absolute path", workspace)
	}
	workspace = filepath.Clean(workspace)
	if err := checkFolder(workspace); err != nil {
		return Location{}, err
	}
	if config != "" {
		return locateConfig(workspace, config)
	}
	found, err := configIn(workspace)
	if err == nil && found == "" {
		err = noDevcontainer(workspace)
	}
	return Location{Workspace: workspace, Config: found}, err
}

// FindWorkspace finds the nearest directory with a configuration from dir upwards. It fails with
// workspace_not_found or no_devcontainer.
func FindWorkspace(dir string) (Location, error) {
	if !filepath.IsAbs(dir) {
		return Location{}, dray.Errorf(dray.CodeInvalidRequest,
			"the directory %q is not an absolute path", dir)
	}
	if err := checkFolder(filepath.Clean(dir)); err != nil {
		return Location{}, err
	}
	folder, found := Nearest(dir, string(filepath.Separator))
	if !found {
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"no devcontainer configuration in %s or any directory above it", dir).
			WithHint("create .devcontainer/devcontainer.json in the project, or use --workspace")
	}
	return Locate(folder, "")
}

// Nearest returns the nearest directory with a configuration from dir up to root, both included. A
// directory whose configuration cannot be examined counts: its error is returned where it is used.
func Nearest(dir, root string) (folder string, ok bool) {
	return NearestWithKnown(dir, root, func(string) bool { return false })
}

// NearestWithKnown is Nearest for a caller that has known workspaces. A known directory counts
// without its configuration: a tool in the container must not move the next call to the host by
// removing the file.
func NearestWithKnown(dir, root string, known func(folder string) bool) (folder string, ok bool) {
	dir, root = filepath.Clean(dir), filepath.Clean(root)
	for {
		if config, err := configIn(dir); config != "" || err != nil || known(dir) {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if dir == root || parent == dir {
			return "", false
		}
		dir = parent
	}
}

// configIn returns the configuration file of a directory, or "". It fails if that cannot be
// examined: treating it as absent would make a call run on the host.
func configIn(folder string) (string, error) {
	if dir := filepath.Join(folder, ".devcontainer"); lexists(dir) && !isFolder(dir) {
		return "", dray.Errorf(dray.CodeContainerFailed, "%s is not a directory", dir).
			WithHint("make it a directory with a devcontainer.json, or remove it")
	}
	unusable := ""
	for _, name := range wellKnown {
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		switch {
		case err == nil && info.Mode().IsRegular():
			return path, nil
		case err == nil || isAbsent(err) && lexists(path):
			unusable = path // the reference ignores it, but runs nothing on the host instead
		case !isAbsent(err):
			return "", dray.Errorf(dray.CodeContainerFailed,
				"look for the devcontainer configuration: %w", err).
				WithHint("make %s readable for the user that the daemon runs as", path)
		}
	}
	if unusable != "" {
		return "", dray.Errorf(dray.CodeContainerFailed,
			"the devcontainer configuration %s is not a readable file", unusable).
			WithHint("replace it by a regular file, or remove it")
	}
	return "", nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lexists reports whether path exists, a symlink without a target included.
func lexists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func locateConfig(workspace, config string) (Location, error) {
	if !filepath.IsAbs(config) {
		config = filepath.Join(workspace, config)
	}
	config = filepath.Clean(config)
	if name := filepath.Base(config); name != "devcontainer.json" && name != ".devcontainer.json" {
		return Location{}, dray.Errorf(dray.CodeInvalidRequest,
			"the name of %s is not devcontainer.json or .devcontainer.json", config).
			WithHint("rename the file, or move it to DIR/devcontainer.json")
	}
	info, err := os.Stat(config)
	switch {
	case err != nil && !isAbsent(err):
		return Location{}, dray.Errorf(dray.CodeContainerFailed,
			"look at the devcontainer configuration: %w", err)
	case err != nil || !info.Mode().IsRegular():
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"no such devcontainer configuration file: %s", config).
			WithHint("check the path; it is relative to the workspace %s", workspace)
	}
	return Location{Workspace: workspace, Config: config}, nil
}

func checkFolder(folder string) error {
	info, err := os.Stat(folder)
	switch {
	case err != nil && !isAbsent(err):
		return dray.Errorf(dray.CodeWorkspaceNotFound, "look at the workspace folder: %w", err)
	case err != nil:
		return dray.Errorf(dray.CodeWorkspaceNotFound, "the workspace folder %s does not exist", folder).
			WithHint("check the path on the daemon's host")
	case !info.IsDir():
		return dray.Errorf(dray.CodeWorkspaceNotFound, "%s is not a directory", folder).
			WithHint("use the directory of the project")
	}
	return nil
}

// noDevcontainer returns the error no_devcontainer. Its hint mentions a configuration that must be
// named, if there is one.
func noDevcontainer(workspace string) error {
	e := dray.Errorf(dray.CodeNoDevcontainer, "the workspace %s has no devcontainer configuration",
		workspace)
	named, _ := filepath.Glob(filepath.Join(globQuote(workspace), ".devcontainer", "*",
		"devcontainer.json"))
	if len(named) == 0 {
		return e.WithHint("create %s", filepath.Join(workspace, wellKnown[0]))
	}
	rel, err := filepath.Rel(workspace, named[0])
	if err != nil {
		rel = named[0]
	}
	return e.WithHint("select a configuration of .devcontainer: containers.NAME.config: %s", rel)
}

func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
