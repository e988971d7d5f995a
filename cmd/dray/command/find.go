package command

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// nearestWorkspace finds the workspace that a folder lies in, empty for none.
func nearestWorkspace(folder string) string {
	found, _ := devcontainer.Nearest(folder, string(filepath.Separator))
	return found
}

// currentFolder is where we were started.
func currentFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", dray.Errorf(dray.CodeBadCwd, "finding the current folder: %w", err).WithHint("change to a folder that exists")
	}
	return dir, nil
}

// workspaceFolder is the workspace that a command is about: the given folder, else the nearest one.
func workspaceFolder(current, given string) (string, error) {
	if given != "" {
		return absolute(current, given), nil
	}
	found, err := devcontainer.FindWorkspace(current)
	return found.Workspace, err
}

// maxConfiguration is how much of a configuration is looked through, in bytes.
const maxConfiguration = 1 << 20

// localVariable is a variable of the host in a configuration, wherever it stands: a name in a comment only sends a value that nobody asks for.
var localVariable = regexp.MustCompile(`\$\{(?:localEnv|env):([^:}\s]+)`)

// localEnv gives the values that the caller has for the ${localEnv:X} of a workspace's configuration. The daemon hands them on only if the workspace is
// trusted. A configuration that is missing or cannot be read uses none: what is wrong with it is said where it is used.
func localEnv(workspace string) map[string]string {
	found, err := devcontainer.Locate(workspace, "")
	if err != nil {
		return nil
	}
	f, err := os.OpenFile(found.Config, os.O_RDONLY|syscall.O_NONBLOCK, 0) // what became a FIFO meanwhile must not hold us up
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfiguration))
	if err != nil {
		return nil
	}
	return valuesOf(localVariable.FindAllSubmatch(text, -1))
}

func valuesOf(matches [][][]byte) map[string]string {
	values := map[string]string{}
	for _, m := range matches {
		if value, ok := os.LookupEnv(string(m[1])); ok {
			values[string(m[1])] = value
		}
	}
	return values
}
