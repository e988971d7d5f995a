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

// complete is the report of a sync that was done.
func (j *job) complete(root string, placed []dray.Placed, from map[string]string) dray.SyncReport {
	r := j.empty(dray.SyncComplete)
	for _, p := range placed {
		r.Files = append(r.Files, dray.SyncedFile{
			Path: dray.PrintablePath(path.Join(root, p.Name)), Source: dray.PrintablePath(from[p.Name]), Size: p.Size, SHA256: p.SHA256, Before: p.Before,
			Mode: octal(p.Mode), Action: p.Action,
		})
		r.Bytes += p.Size
	}
	r.Landed = j.landings(root, from)
	return r
}

// maxLandings bounds the list of what came to where.
const maxLandings = 1000

// landings say where the sources came to: of one in which something was refused each file by itself, because the folder is not all there. What
// JSON cannot carry is left out.
func (j *job) landings(root string, from map[string]string) []dray.Landing {
	var list []dray.Landing
	add := func(source, lands string) {
		if at := path.Join(root, lands); utf8.ValidString(source) && utf8.ValidString(at) && len(list) < maxLandings {
			list = append(list, dray.Landing{Source: source, Path: at})
		}
	}
	names := slices.Sorted(maps.Keys(from))
	for _, s := range j.taken {
		if !j.torn[s.path] {
			add(s.path, s.lands)
			continue
		}
		for _, lands := range names {
			if _, in := beneath(lands, s.lands); in {
				add(from[lands], lands)
			}
		}
	}
	return list
}

// failed is the report of a sync that has written nothing.
func (j *job) failed(why *dray.Error) dray.SyncReport {
	r := j.empty(dray.SyncFailed)
	if why.Code == dray.CodeSyncRefused {
		r.State = dray.SyncRefused
	}
	r.Error = why
	return r
}

func (j *job) empty(state dray.SyncState) dray.SyncReport {
	return dray.SyncReport{State: state, Files: []dray.SyncedFile{}, Refused: append([]dray.RefusedPath{}, j.refused...), DryRun: j.req.DryRun}
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }
