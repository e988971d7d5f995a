package transfer

import (
	"github.com/dray-dev/dray"
)

// Request is one sync.
type Request struct {
	// ID is the invocation's; declared outputs land in a folder of that name.
	ID string
	// Paths are the sources as the caller wrote them. For what comes from a container they are the caller's own paths or the container's,
	// absolute or, where the call has a workspace, relative to Dir; for what goes there they are the host's.
	Paths []string
	// Dir is the call's working folder in the container.
	Dir string
	// Workspace is the host's name of the call's workspace folder; empty if it has none.
	Workspace string
	// Destination is a folder relative to the sandbox root, or for a push to the container's workspace folder; empty is where the paths lead.
	Destination string
	// DryRun says what would be done and writes nothing.
	DryRun bool
	// SkipRefused leaves out what is refused instead of ending the sync.
	SkipRefused bool
	// Progress is told from time to time how far the sync has come; nil is nobody.
	Progress func(Progress)
}

// Progress is how far a sync has come.
type Progress struct {
	Files int
	Bytes int64
}

// Direction says where files go.
type Direction string

// The directions. The empty one is ToHost.
const (
	ToHost      Direction = "to_host"
	ToContainer Direction = "to_container"
)

// Changes are the files of a report that were created or replaced, as the trail keeps them (AU-11). A dry run changed none.
func Changes(report dray.SyncReport, side dray.EnvironmentKind) []dray.FileChange {
	if report.DryRun {
		return nil
	}
	var changes []dray.FileChange
	for _, f := range report.Files {
		if f.Action == dray.FileCreated || f.Action == dray.FileReplaced {
			changes = append(changes, dray.FileChange{Environment: side, Path: f.Path, Action: f.Action, SHA256Before: f.SHA256Before, SHA256After: f.SHA256})
		}
	}
	return changes
}
