package devcontainer

import (
	"context"
	"path"
	"path/filepath"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
)

// entry is a JSON object: a configuration file, or one entry of the metadata label.
type entry = map[string]any

// configFile is a configuration file as it stands on disk.
type configFile struct {
	raw    []byte
	values entry
	faults []jsonc.SyntaxError
}

// readConfig reads the configuration of a location. A file that cannot be used is container_failed, not no_devcontainer: nobody shall
// take a broken configuration for none and run elsewhere.
func readConfig(loc Location) (configFile, error) {
	raw, err := readRegular(loc.Config)
	switch {
	case err != nil && isAbsent(err):
		return configFile{}, dray.Errorf(dray.CodeNoDevcontainer, "the devcontainer configuration %s is gone", loc.Config).WithHint("restore the file")
	case err != nil:
		return configFile{}, dray.Errorf(dray.CodeContainerFailed, "read the devcontainer configuration: %w", err).
			WithHint("make %s a readable regular file", loc.Config)
	}
	doc, err := jsonc.Parse(raw)
	if err != nil {
		return configFile{}, broken(loc, "%w", err)
	}
	return configFile{raw: raw, values: doc.Value, faults: doc.Errors}, nil
}

// broken is the error of a configuration that the reference could not use either.
func broken(loc Location, format string, args ...any) error {
	e := dray.Errorf(dray.CodeContainerFailed, format, args...)
	if loc.Config == "" {
		e.Message = "the metadata label of the container is not usable: " + e.Message
		return e.WithHint("build the container's image again without what the message names")
	}
	e.Message = "the devcontainer configuration " + loc.Config + " is not usable: " + e.Message
	return e.WithHint("correct the file")
}

// isCompose and isDockerfile tell the three kinds of configuration apart, by presence alone as the reference does.
func isCompose(values entry) bool {
	_, ok := values["dockerComposeFile"]
	return ok
}

func isDockerfile(values entry) bool {
	if _, ok := values["dockerFile"]; ok {
		return true
	}
	build, _ := values["build"].(entry)
	_, ok := build["dockerfile"]
	return ok
}

// GitFunc runs git in a folder and gives what it printed. The wiring lends one that starts processes under supervision.
type GitFunc func(ctx context.Context, dir string, args ...string) (string, error)

// mountRoot is the folder that `up` mounts for a workspace: the top of its git work tree, by the way that keeps links, else the
// workspace itself. Git refuses a repository of another owner; that, and having no git, falls back silently as in the reference.
//
// The repository decides this with core.worktree in its configuration, which a tool in the container can write, and any folder of the
// host may be the answer. So trust is bound to the answer, and up is told the mount instead of being left to ask again.
func mountRoot(ctx context.Context, git GitFunc, workspace string) string {
	if git == nil {
		return workspace
	}
	out, err := git(ctx, workspace, "rev-parse", "--show-cdup")
	if err != nil {
		return workspace
	}
	up := strings.TrimSpace(out)
	if filepath.IsAbs(up) {
		return filepath.Clean(up)
	}
	return filepath.Join(workspace, up)
}

// defaultFolder is where a workspace is found in its container if its configuration does not say (CF-05).
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

// baseName is the last segment; of the root it is empty.
func baseName(p string) string {
	p = strings.TrimRight(p, "/")
	return p[strings.LastIndexByte(p, '/')+1:]
}
