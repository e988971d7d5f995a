package transfer

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// complete is the report of a sync that was done.
func (j *job) complete(root string, placed []dray.Placed, from map[string]string) dray.SyncReport {
	r := j.empty(dray.SyncComplete)
	for _, p := range placed {
		r.Files = append(r.Files, dray.SyncedFile{
			Path: printable(path.Join(root, p.Name)), Source: printable(from[p.Name]), Size: p.Size, SHA256: p.SHA256, Before: p.Before,
			Mode: octal(uint32(p.Mode.Perm())), Action: p.Action,
		})
		r.Bytes += p.Size
	}
	for _, l := range j.homes {
		r.Landed = append(r.Landed, dray.Landing{Source: printable(l.Source), Path: printable(path.Join(root, l.Path))})
	}
	return r
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

func octal(mode uint32) string { return fmt.Sprintf("%04o", mode) }

// printable writes bytes that are not UTF-8 as \xNN, so that JSON can carry a path.
func printable(p string) string {
	if utf8.ValidString(p) {
		return p
	}
	var b strings.Builder
	for len(p) > 0 {
		r, n := utf8.DecodeRuneInString(p)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, p[0])
		} else {
			b.WriteString(p[:n])
		}
		p = p[n:]
	}
	return b.String()
}
