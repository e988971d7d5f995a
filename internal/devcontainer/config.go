package devcontainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

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

// readConfig reads the configuration of a location. A file that cannot be used is container_failed,
// not no_devcontainer: nobody shall take a broken configuration for none and run elsewhere.
func readConfig(loc Location) (configFile, error) {
	raw, err := readRegular(loc.Config)
	switch {
	case err != nil && isAbsent(err):
		return configFile{}, dray.Errorf(dray.CodeNoDevcontainer,
			"the devcontainer configuration %s is gone", loc.Config).WithHint("restore the file")
	case err != nil:
		return configFile{}, dray.Errorf(dray.CodeContainerFailed,
			"read the devcontainer configuration: %w", err).
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

// isCompose and isDockerfile tell the three kinds of configuration apart, by presence alone as the
// reference does.
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

// GitFunc runs git in a folder and gives what it printed. The wiring lends one that starts
// processes under supervision.
type GitFunc func(ctx context.Context, dir string, args ...string) (string, error)

// mountRoot is the folder that `up` mounts for a workspace: the top of its git work tree, by the
// way that keeps links, else the workspace itself. Git refuses a repository of another owner; that,
// and having no git, falls back silently as in the reference.
//
// The repository decides this with core.worktree in its configuration, which a tool in the
// container can write, and any folder of the host may be the answer. So trust is bound to the
// answer, and up is told the mount instead of being left to ask again.
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

// defaultFolder is where a workspace is found in its container if its configuration does not say
// (CF-05).
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

// errNotFolder is what a path gives that leads through a file, errNameTooLong one that no file can
// have.
const (
	errNotFolder   = syscall.ENOTDIR
	errNameTooLong = syscall.ENAMETOOLONG
)

// errNotRegular is a file that is none: a FIFO would make its reader wait, a device can be endless.
var errNotRegular = errors.New("not a regular file")

// maxReadBytes bounds what is read of one file: the largest configuration that is taken.
const maxReadBytes = jsonc.MaxBytes

// readRegular reads a regular file of at most maxReadBytes. It never waits for the writer of a
// FIFO.
func readRegular(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxReadBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxReadBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxReadBytes)
	}
	return data, nil
}

// openRegular opens a file without waiting and makes sure that it is a regular one, decided on the
// open file.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, errNotRegular)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// metadataProperties of a configuration file count as an entry of metadata.
var metadataProperties = []string{
	"onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand", "waitFor", "customizations",
	"mounts", "containerEnv", "containerUser", "init", "privileged", "capAdd", "securityOpt", "remoteUser", "userEnvProbe", "remoteEnv",
	"overrideCommand", "portsAttributes", "otherPortsAttributes", "forwardPorts", "shutdownAction", "updateRemoteUserUID", "hostRequirements",
}

// updatableProperties are read again from today's file for a container that already carries the
// configuration in its label.
var updatableProperties = []string{"remoteUser", "userEnvProbe", "remoteEnv"}

// parseMetadata reads the metadata label: an array of entries, or one entry. A label that is
// neither is taken for an empty one, as the reference does, and the error says so.
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
		entries := make([]entry, 0, len(value))
		for _, v := range value {
			if e, ok := v.(entry); ok {
				entries = append(entries, e)
			}
		}
		return entries, nil
	}
	return nil, fmt.Errorf("it holds neither an array nor an object")
}

// metadataEntries gives the entries that make up the configuration of a container, lowest first:
// those of its label, then what counts of the configuration file.
func metadataEntries(label []entry, config entry, hasLabel, hasIDLabels bool) []entry {
	properties := metadataProperties
	if hasLabel && hasIDLabels {
		properties = updatableProperties
	}
	picked := entry{}
	for _, name := range properties {
		if value, ok := config[name]; ok {
			picked[name] = value
		}
	}
	var all []entry
	for _, e := range slices.Concat(label, []entry{picked}) {
		if len(e) > 0 {
			all = append(all, e)
		}
	}
	return all
}
