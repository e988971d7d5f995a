package devcontainer

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// Location is a workspace folder and its configuration file, both absolute and clean. Symlinks are
// kept, as the reference keeps them in the labels of its containers.
type Location struct {
	Workspace string
	Config    string
}

// Canonical returns the location with symlinks resolved, so that a workspace has one trust.
func (l Location) Canonical(ctx context.Context) (Location, error) {
	dir := linux.UntrustedDir(l.Workspace)
	folder, err := dir.RealPath(ctx, l.Workspace)
	if err != nil {
		return Location{}, dray.Errorf(dray.CodeWorkspaceNotFound,
			"resolve the workspace folder: %w", err).WithHint("check the path")
	}
	if rel, ok := lexical.Rel(l.Workspace, l.Config); ok {
		return Location{Workspace: folder, Config: filepath.Join(folder, rel)}, nil
	}
	config, err := dir.RealPath(ctx, l.Config)
	if err != nil {
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"resolve the configuration file: %w", err).WithHint("check the path")
	}
	return Location{Workspace: folder, Config: config}, nil
}

// FeatureLock returns the path of the reference's lock file of features.
func (l Location) FeatureLock() string {
	name := "devcontainer-lock.json"
	if strings.HasPrefix(filepath.Base(l.Config), ".") {
		name = "." + name
	}
	return filepath.Join(filepath.Dir(l.Config), name)
}

// wellKnown are the default paths of a configuration, in this order. The reference uses
// `.devcontainer/<name>/devcontainer.json` only if it is named.
var wellKnown = []string{filepath.Join(".devcontainer", "devcontainer.json"), ".devcontainer.json"}

// Locate finds the configuration of a workspace folder. config, if not empty, is the path of the
// file, absolute or relative to the workspace; its name must be devcontainer.json or
// .devcontainer.json. It fails with workspace_not_found, no_devcontainer or invalid_request.
func Locate(ctx context.Context, workspace, config string) (Location, error) {
	if !filepath.IsAbs(workspace) {
		return Location{}, dray.Errorf(dray.CodeInvalidRequest,
			"the workspace folder %q is not an absolute path", workspace).
			WithHint("use its absolute path on the daemon's host")
	}
	workspace = filepath.Clean(workspace)
	if err := checkFolder(ctx, workspace); err != nil {
		return Location{}, err
	}
	if config != "" {
		return locateConfig(ctx, workspace, config)
	}
	found, err := configIn(ctx, workspace)
	if err == nil && found == "" {
		err = noDevcontainer(ctx, workspace)
	}
	return Location{Workspace: workspace, Config: found}, err
}

// FindWorkspace finds the nearest directory with a configuration from dir upwards. It fails with
// workspace_not_found or no_devcontainer.
func FindWorkspace(ctx context.Context, dir string) (Location, error) {
	if !filepath.IsAbs(dir) {
		return Location{}, dray.Errorf(dray.CodeInvalidRequest,
			"the directory %q is not an absolute path", dir).
			WithHint("use its absolute path on the daemon's host")
	}
	if err := checkFolder(ctx, filepath.Clean(dir)); err != nil {
		return Location{}, err
	}
	folder, found := Nearest(ctx, dir, string(filepath.Separator))
	if !found {
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"no devcontainer configuration in %s or any directory above it", dir).
			WithHint("create .devcontainer/devcontainer.json in the project, " +
				"or name the project's directory")
	}
	return Locate(ctx, folder, "")
}

// Nearest returns the nearest directory with a configuration from dir up to root, both included. A
// directory whose configuration cannot be examined counts: its error is returned where it is used.
func Nearest(ctx context.Context, dir, root string) (folder string, ok bool) {
	return NearestWithKnown(ctx, dir, root, func(string) bool { return false })
}

// NearestWithKnown is Nearest for a caller that has known workspaces. A known directory counts
// without its configuration: a tool in the container must not move the next call to the host by
// removing the file.
func NearestWithKnown(ctx context.Context, dir, root string, known func(folder string) bool,
) (folder string, ok bool) {
	dir, root = filepath.Clean(dir), filepath.Clean(root)
	for {
		if config, err := configIn(ctx, dir); config != "" || err != nil || known(dir) {
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
func configIn(ctx context.Context, folder string) (string, error) {
	workspace := linux.UntrustedDir(folder)
	dir := filepath.Join(folder, ".devcontainer")
	if _, err := workspace.Lstat(ctx, dir); err == nil {
		if info, err := workspace.Stat(ctx, dir); linux.IsAbsent(err) || err == nil && !info.IsDir() {
			return "", dray.Errorf(dray.CodeContainerFailed, "%s is not a directory", dir).
				WithHint("make it a directory with a devcontainer.json, or remove it")
		}
	}
	unusable := ""
	for _, name := range wellKnown {
		path := filepath.Join(folder, name)
		info, err := workspace.Stat(ctx, path)
		if linux.IsAbsent(err) {
			if _, linkErr := workspace.Lstat(ctx, path); linkErr != nil {
				continue
			}
		}
		switch {
		case err == nil && info.Mode().IsRegular():
			return path, nil
		case err == nil || linux.IsAbsent(err):
			unusable = path // the reference ignores it, but runs nothing on the host instead
		default:
			return "", dray.Errorf(dray.CodeContainerFailed,
				"look for the devcontainer configuration: %w", err).
				WithHint("make %s a regular file that the daemon's user can read", path)
		}
	}
	if unusable != "" {
		return "", dray.Errorf(dray.CodeContainerFailed,
			"the devcontainer configuration %s is not a readable file", unusable).
			WithHint("replace it by a regular file, or remove it")
	}
	return "", nil
}

func locateConfig(ctx context.Context, workspace, config string) (Location, error) {
	if !filepath.IsAbs(config) {
		config = filepath.Join(workspace, config)
	}
	config = filepath.Clean(config)
	if name := filepath.Base(config); name != "devcontainer.json" && name != ".devcontainer.json" {
		return Location{}, dray.Errorf(dray.CodeInvalidRequest,
			"the name of %s is not devcontainer.json or .devcontainer.json", config).
			WithHint("rename the file, or move it to DIR/devcontainer.json")
	}
	info, err := linux.UntrustedDir(workspace).Stat(ctx, config)
	switch {
	case err != nil && !linux.IsAbsent(err):
		return Location{}, dray.Errorf(dray.CodeContainerFailed,
			"look at the devcontainer configuration: %w", err).
			WithHint("make %s a regular file that the daemon's user can read", config)
	case err != nil || !info.Mode().IsRegular():
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"no such devcontainer configuration file: %s", config).
			WithHint("check the path; it is relative to the workspace %s", workspace)
	}
	return Location{Workspace: workspace, Config: config}, nil
}

func checkFolder(ctx context.Context, folder string) error {
	info, err := linux.UntrustedDir(folder).StatDir(ctx)
	switch {
	case err != nil && !linux.IsAbsent(err):
		return dray.Errorf(dray.CodeWorkspaceNotFound, "look at the workspace folder: %w", err).
			WithHint("make %s a directory that the daemon's user can read", folder)
	case err != nil:
		return dray.Errorf(dray.CodeWorkspaceNotFound, "the workspace folder %s does not exist", folder).
			WithHint("check the path on the daemon's host")
	case !info.IsDir():
		return dray.Errorf(dray.CodeWorkspaceNotFound, "%s is not a directory", folder).
			WithHint("use the directory of the project")
	}
	return nil
}

// maxNamedConfigs bounds the entries of .devcontainer in which a configuration is looked for.
const maxNamedConfigs = 100

// noDevcontainer returns the error no_devcontainer. Its hint mentions a configuration that must be
// named, if there is one.
func noDevcontainer(ctx context.Context, workspace string) error {
	e := dray.Errorf(dray.CodeNoDevcontainer, "the workspace %s has no devcontainer configuration",
		workspace)
	dir := linux.UntrustedDir(workspace)
	entries, _ := dir.ReadDir(ctx, filepath.Join(workspace, ".devcontainer"), maxNamedConfigs)
	for _, entry := range entries {
		config := filepath.Join(".devcontainer", entry.Name(), "devcontainer.json")
		if _, err := dir.Lstat(ctx, filepath.Join(workspace, config)); err == nil {
			return e.WithHint("select a configuration of .devcontainer: containers.NAME.config: %s", config)
		}
	}
	return e.WithHint("create %s", filepath.Join(workspace, wellKnown[0]))
}
