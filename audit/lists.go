package audit

import (
	"encoding/json"
	"fmt"

	"github.com/dray-dev/dray"
)

// maxListed is how many entries of each of its lists of files a body has. All of them stand in a file beside the database where there are more: a
// sync of ten thousand files is megabytes, which nobody wants to read to see that there was one.
const maxListed = 10

// lists are the lists of a result's metadata that grow with what a call did.
type lists struct {
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Landed  []dray.Landing     `json:"landed"`
	Changes []dray.FileChange  `json:"changes"`
}

// shorten gives metadata whose lists have at most maxListed entries and say how many more there are, and the whole lists; nil where all of them are
// that short.
func shorten(m dray.Metadata) (dray.Metadata, *lists) {
	var all lists
	all.Changes = m.Changes
	m.Changes, m.ChangesOmitted = cut(m.Changes)
	omitted := m.ChangesOmitted
	if m.Sync != nil {
		all.Files, all.Refused, all.Landed = m.Sync.Files, m.Sync.Refused, m.Sync.Landed
		report := *m.Sync
		report.Files, report.FilesOmitted = cut(report.Files)
		report.Refused, report.RefusedOmitted = cut(report.Refused)
		report.Landed, report.LandedOmitted = cut(report.Landed)
		m.Sync = &report
		omitted += report.FilesOmitted + report.RefusedOmitted + report.LandedOmitted
	}
	if omitted == 0 {
		return m, nil
	}
	return m, &all
}

func cut[T any](list []T) (some []T, omitted int) {
	n := min(len(list), maxListed)
	return list[:n:n], len(list) - n
}

// placeShortened gives the metadata for the body and the file that holds what was cut off, which is durable when placeShortened returns.
func placeShortened(m dray.Metadata, files *files) (dray.Metadata, *fileRef, error) {
	m, all := shorten(m)
	if all == nil {
		return m, nil, nil
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return m, nil, fmt.Errorf("encode the lists of files: %w", err)
	}
	ref, err := files.put(raw)
	return m, &ref, err
}

// restore puts the whole lists back.
func restore(m *dray.Metadata, ref *fileRef, files *files) error {
	if ref == nil || files == nil {
		return nil
	}
	raw, err := files.get(*ref)
	if err != nil {
		return err
	}
	var all lists
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("read the lists of files: %w", err)
	}
	m.Changes, m.ChangesOmitted = all.Changes, 0
	if m.Sync != nil {
		m.Sync.Files, m.Sync.FilesOmitted = all.Files, 0
		m.Sync.Refused, m.Sync.RefusedOmitted = all.Refused, 0
		m.Sync.Landed, m.Sync.LandedOmitted = all.Landed, 0
	}
	return nil
}
