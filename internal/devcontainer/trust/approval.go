package trust

import (
	"context"
	"os"
	"path/filepath"

	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/compose"
)

// Approval permits `up` for one workspace with one configuration. The zero Approval permits
// nothing.
type Approval struct {
	loc    devcontainer.Location
	config devcontainer.PinnedConfig
	// project is the compose project that was trusted, if it was not trusted by configuration.
	project compose.Project
	// root and reads are those of Root and Reads, hardLinked that of HardLinked.
	root       string
	reads      []string
	hardLinked string
}

// IsZero reports whether the approval permits nothing.
func (a Approval) IsZero() bool { return a.config.IsZero() }

// Location returns the workspace that may be brought up.
func (a Approval) Location() devcontainer.Location { return a.loc }

// Reads returns the paths of the trust inputs that `up` uses on the host, so that nobody may change
// them between Approve and their use: files, directories, and the symlinks that lead to them. It is
// empty if the workspace is always trusted.
func (a Approval) Reads() []string { return a.reads }

// Root returns the directory that contains what `up` mounts and reads, with symlinks resolved. It
// is empty if the workspace is always trusted.
func (a Approval) Root() string { return a.root }

// Owns reports whether a container is one of those that `up` of this approval creates or starts:
// that of the workspace, or a service of its compose project.
func (a Approval) Owns(ctx context.Context, c devcontainer.ContainerInfo) bool {
	if _, ok := a.loc.Match(ctx, []devcontainer.ContainerInfo{c}); ok {
		return true
	}
	project := c.Label(devcontainer.LabelComposeProject)
	return project != "" && project == a.project.Name
}

// HardLinked returns one of the files to read that has a further hard link, by which a container
// that cannot reach its path could change it, or "".
func (a Approval) HardLinked() string { return a.hardLinked }

// WriteConfig writes the approved configuration to path, and the compose project to a directory
// below data with the name of the project: compose 1.x has the name from the directory.
func (a Approval) WriteConfig(path, data string) error {
	if a.project.Text == "" {
		return a.config.Write(path, "")
	}
	file := filepath.Join(data, a.project.Name, "compose.yml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(a.project.Text), 0o600); err != nil {
		return err
	}
	return a.config.Write(path, file)
}
