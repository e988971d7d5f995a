package transfer

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// Request is one sync.
type Request struct {
	// ID is the invocation's; declared outputs land in a folder of that name.
	ID string
	// Paths are the sources as the caller wrote them. For what comes from a container they are the
	// caller's own paths or the container's, absolute or, where the call has a workspace, relative to
	// Dir; for what goes there they are the host's.
	Paths []string
	// Dir is the call's working folder in the container.
	Dir string
	// Workspace is the host's name of the call's workspace folder; empty if it has none.
	Workspace string
	// Destination is a folder relative to the sandbox root, or for a push to the container's workspace
	// folder; empty is where the paths lead.
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

// Changes are the files of a report that were created or replaced, as the trail keeps them (AU-11).
// A dry run changed none.
func Changes(report dray.SyncReport, side dray.EnvironmentKind) []dray.FileChange {
	if report.DryRun {
		return nil
	}
	var changes []dray.FileChange
	for _, f := range report.Files {
		if f.Action == dray.FileCreated || f.Action == dray.FileReplaced {
			changes = append(changes, dray.FileChange{
				Environment: side, Path: f.Path, Action: f.Action,
				SHA256Before: f.SHA256Before, SHA256After: f.SHA256,
			})
		}
	}
	return changes
}

// completeReport is the report of a sync that was done.
func (j *syncJob) completeReport(root string, placed []dray.WrittenFile,
	from map[string]string,
) dray.SyncReport {
	r := j.empty(dray.SyncComplete)
	for _, p := range placed {
		r.Files = append(r.Files, dray.SyncedFile{
			Path: dray.PrintablePath(path.Join(root,
				p.Name)), Source: dray.PrintablePath(from[p.Name]), Size: p.Size, SHA256: p.SHA256, SHA256Before: p.SHA256Before,
			Mode: octal(p.Mode), Action: p.Action,
		})
		r.Bytes += p.Size
	}
	r.Targets = j.syncTargets(root, from)
	return r
}

// maxTargets bounds the list of what came to where.
const maxTargets = 1000

// syncTargets say where the sources came to: of one in which something was refused each file by
// itself, because the folder is not all there. What JSON cannot carry is left out.
func (j *syncJob) syncTargets(root string, from map[string]string) []dray.SyncTarget {
	var list []dray.SyncTarget
	add := func(source, lands string) {
		if at := path.Join(root, lands); utf8.ValidString(source) && utf8.ValidString(at) &&
			len(list) < maxTargets {
			list = append(list, dray.SyncTarget{Source: source, Path: at})
		}
	}
	names := slices.Sorted(maps.Keys(from))
	for _, s := range j.taken {
		if !j.partial[s.path] {
			add(s.path, s.target)
			continue
		}
		for _, lands := range names {
			if _, in := lexical.Rel(s.target, lands); in {
				add(from[lands], lands)
			}
		}
	}
	return list
}

// failedReport is the report of a sync that has written nothing.
func (j *syncJob) failedReport(why *dray.Error) dray.SyncReport {
	r := j.empty(dray.SyncFailed)
	if why.Code == dray.CodeSyncRefused {
		r.State = dray.SyncRefused
	}
	r.Error = why
	return r
}

func (j *syncJob) empty(state dray.SyncState) dray.SyncReport {
	return dray.SyncReport{
		State: state, Files: []dray.SyncedFile{},
		Refused: append([]dray.RefusedPath{}, j.refused...), DryRun: j.req.DryRun,
	}
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }
