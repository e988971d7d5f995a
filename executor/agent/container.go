package agent

import (
	"cmp"
	"context"
	"io"

	"github.com/dray-dev/dray"
)

// Container is one start of a running container. Its fields do not change.
type Container struct {
	// ID and StartedAt identify the start: after a restart StartedAt differs.
	ID, StartedAt string
	// User is the user of calls that name none.
	User string
	// Env are the variables that the engine gives every process, except PATH, HOSTNAME and HOME.
	Env      []string
	Hostname string
	// Workdir is the directory in which the user's shell is probed.
	Workdir string
	// Groups are added to the groups of every user, as names or gids.
	Groups []string
	// Metadata is the part of the metadata of every call that does not depend on the call: ID, Name,
	// Image, ImageDigest and Engine.
	Metadata dray.ContainerMetadata
	Access
}

// Access reaches a container. Its methods are safe for concurrent use.
type Access interface {
	// Start puts the agent's program into the container and starts `dray-agent serve` as user.
	Start(ctx context.Context, user string) (Conn, error)
	// CgroupPath returns the cgroup of the container, in which process pid of this machine is. It
	// fails if this machine has no such cgroup.
	CgroupPath(pid int) (string, error)
	// State inspects the container. It fails with container_not_found or engine_unavailable.
	State(ctx context.Context) (State, error)
}

// State is what a container does now. Status is for messages.
type State struct {
	Running           bool
	StartedAt, Status string
}

// Conn is the stdin and stdout of a started agent. Close releases both and need not end the agent.
type Conn interface {
	io.ReadWriteCloser
	// PID returns the agent's pid on the container's machine.
	PID(ctx context.Context) (int, error)
	// Stderr returns what the agent has written there, for error texts. It may be truncated.
	Stderr() string
}

// Spec defines how calls run in a container.
type Spec struct {
	// User is as the engine takes it: name, uid, name:group, uid:gid. Empty is Container.User.
	User string
	// WorkspaceFolder is the working directory of calls that name none. Empty is the user's home.
	WorkspaceFolder string
	RemoteEnv       map[string]string
	// Probe is a devcontainer userEnvProbe. Empty is none.
	Probe      string
	ConfigHash string
	Mounts     []dray.Mount
	// Warnings are added to the result of every call.
	Warnings []string
}

// Capabilities returns the capabilities that every environment of the container has, whatever
// starts its processes.
func (s Spec) Capabilities(c Container, transport, channel string) dray.Capabilities {
	metadata := c.Metadata
	metadata.WorkspaceFolder, metadata.User = s.WorkspaceFolder, cmp.Or(s.User, "root")
	metadata.ConfigHash, metadata.Transport, metadata.Channel = s.ConfigHash, transport, channel
	return dray.Capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: s.WorkspaceFolder, Mounts: s.Mounts,
		Container: &metadata, Warnings: s.Warnings,
	}
}
