package transfer

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// completeReport is the report of a sync that was done.
func (j *syncJob) completeReport(root string, placed []dray.WrittenFile, from map[string]string) dray.SyncReport {
	r := j.empty(dray.SyncComplete)
	for _, p := range placed {
		r.Files = append(r.Files, dray.SyncedFile{
			Path: dray.PrintablePath(path.Join(root, p.Name)), Source: dray.PrintablePath(from[p.Name]), Size: p.Size, SHA256: p.SHA256, SHA256Before: p.SHA256Before,
			Mode: octal(p.Mode), Action: p.Action,
		})
		r.Bytes += p.Size
	}
	r.Targets = j.syncTargets(root, from)
	return r
}

// maxTargets bounds the list of what came to where.
const maxTargets = 1000

// syncTargets say where the sources came to: of one in which something was refused each file by itself, because the folder is not all there. What
// JSON cannot carry is left out.
func (j *syncJob) syncTargets(root string, from map[string]string) []dray.SyncTarget {
	var list []dray.SyncTarget
	add := func(source, lands string) {
		if at := path.Join(root, lands); utf8.ValidString(source) && utf8.ValidString(at) && len(list) < maxTargets {
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
			if _, in := beneath(lands, s.target); in {
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
	return dray.SyncReport{State: state, Files: []dray.SyncedFile{}, Refused: append([]dray.RefusedPath{}, j.refused...), DryRun: j.req.DryRun}
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }
