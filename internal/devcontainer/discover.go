package devcontainer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dray-dev/dray"
)

// Location is a workspace folder and its configuration file, both absolute and clean. Links in them
// are kept: the reference keeps them in the labels of its containers.
type Location struct {
	Workspace string
	Config    string
}

// wellKnown are the places where a configuration is looked for, in this order.
// `.devcontainer/<folder>/devcontainer.json` is not among them: the reference takes it only by
// name.
var wellKnown = []string{filepath.Join(".devcontainer", "devcontainer.json"), ".devcontainer.json"}

// Locate finds the configuration of a workspace folder. A config that is not empty names the file
// itself, absolute or relative to the workspace; its name has to be devcontainer.json or
// .devcontainer.json. Errors: workspace_not_found, no_devcontainer, invalid_request.
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
	if err != nil {
		return Location{}, err
	}
	if found == "" {
		return Location{}, noDevcontainer(workspace)
	}
	return Location{Workspace: workspace, Config: found}, nil
}

// FindWorkspace finds the nearest folder with a configuration, from dir upwards to the root of the
// file system. Errors: workspace_not_found, no_devcontainer.
func FindWorkspace(dir string) (Location, error) {
	if !filepath.IsAbs(dir) {
		return Location{}, dray.Errorf(dray.CodeInvalidRequest, "the folder %q is not an absolute path",
			dir)
	}
	if err := checkFolder(filepath.Clean(dir)); err != nil {
		return Location{}, err
	}
	folder, found := Nearest(dir, string(filepath.Separator))
	if !found {
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"no devcontainer configuration in %s or any folder above it", dir).
			WithHint("create .devcontainer/devcontainer.json in the project's folder, or name another folder with --workspace")
	}
	return Locate(folder, "")
}

// Nearest finds the closest folder with a configuration from dir up to root, both included. A
// folder whose configuration cannot be looked at counts as found, so that its error is met where it
// is used instead of being passed over.
func Nearest(dir, root string) (folder string, ok bool) {
	return NearestWithKnown(dir, root, func(string) bool { return false })
}

// NearestWithKnown is Nearest for one who remembers workspaces. A folder that is known counts as
// found although its configuration is gone: a tool in its container can remove the file, and must
// not move the next call to the host by that.
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

// configIn gives the configuration file of a folder, or nothing. What cannot be looked at is an
// error: taking it for absent would make a call run elsewhere.
func configIn(folder string) (string, error) {
	if dir := filepath.Join(folder, ".devcontainer"); lexists(dir) && !isFolder(dir) {
		return "", dray.Errorf(dray.CodeContainerFailed, "%s is no folder", dir).
			WithHint("make it a folder with a devcontainer.json in it, or remove it")
	}
	unusable := ""
	for _, name := range wellKnown {
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		switch {
		case err == nil && info.Mode().IsRegular():
			return path, nil
		case err == nil || isAbsent(err) && lexists(path):
			unusable = path // the reference passes over it too, but does not run anything on the host for it
		case !isAbsent(err):
			return "", dray.Errorf(dray.CodeContainerFailed, "look for the devcontainer configuration: %w",
				err).
				WithHint("make %s readable for the user that the daemon runs as", path)
		}
	}
	if unusable != "" {
		return "", dray.Errorf(dray.CodeContainerFailed,
			"the devcontainer configuration %s is no file that can be read", unusable).
			WithHint("replace it by a regular file, or remove it")
	}
	return "", nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lexists says that something is there, be it a link that leads nowhere.
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
			"the configuration file %s has another name than devcontainer.json or .devcontainer.json", config).
			WithHint("rename the file, or put it as devcontainer.json into a folder of its own")
	}
	info, err := os.Stat(config)
	switch {
	case err != nil && !isAbsent(err):
		return Location{}, dray.Errorf(dray.CodeContainerFailed,
			"look at the devcontainer configuration: %w", err)
	case err != nil || !info.Mode().IsRegular():
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"there is no devcontainer configuration file %s", config).
			WithHint("check the path of the configuration; a relative one begins at the workspace %s",
				workspace)
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
			WithHint("check the path; it is a folder on the host where the daemon runs")
	case !info.IsDir():
		return dray.Errorf(dray.CodeWorkspaceNotFound, "%s is not a folder", folder).
			WithHint("name the folder that holds the project")
	}
	return nil
}

// noDevcontainer names the configurations that the reference would only take by name, if there are
// any.
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
	return e.WithHint("choose one of the configurations in .devcontainer by naming it: containers.NAME.config: %s", rel)
}

func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFolder)
}
