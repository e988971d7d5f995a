package audit

import (
	"encoding/json"
	"fmt"

	"github.com/dray-dev/dray"
)

// maxInlineEntries is how many entries of each of its lists of files a body has. All of them stand in a file beside the database where there are more: a
// sync of ten thousand files is megabytes, which nobody wants to read to see that there was one.
const maxInlineEntries = 10

// fileLists are the lists of a result's metadata that grow with what a call did.
type fileLists struct {
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Landed  []dray.SyncTarget  `json:"landed"`
	Changes []dray.FileChange  `json:"changes"`
}

// truncateLists gives metadata whose lists have at most maxInlineEntries entries and say how many more there are, and the whole lists; nil where all of them are
// that short.
func truncateLists(m dray.Metadata) (dray.Metadata, *fileLists) {
	var all fileLists
	all.Changes = m.Changes
	m.Changes, m.ChangesOmitted = truncate(m.Changes)
	omitted := m.ChangesOmitted
	if m.Sync != nil {
		all.Files, all.Refused, all.Landed = m.Sync.Files, m.Sync.Refused, m.Sync.Targets
		report := *m.Sync
		report.Files, report.FilesOmitted = truncate(report.Files)
		report.Refused, report.RefusedOmitted = truncate(report.Refused)
		report.Targets, report.TargetsOmitted = truncate(report.Targets)
		m.Sync = &report
		omitted += report.FilesOmitted + report.RefusedOmitted + report.TargetsOmitted
	}
	if omitted == 0 {
		return m, nil
	}
	return m, &all
}

func truncate[T any](list []T) (some []T, omitted int) {
	n := min(len(list), maxInlineEntries)
	return list[:n:n], len(list) - n
}

// storeLists gives the metadata for the body and the file that holds what was cut off, which is durable when storeLists returns.
func storeLists(m dray.Metadata, files *blobStore) (dray.Metadata, *blobRef, error) {
	m, all := truncateLists(m)
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

// loadLists puts the whole lists back.
func loadLists(m *dray.Metadata, ref *blobRef, files *blobStore) error {
	if ref == nil || files == nil {
		return nil
	}
	raw, err := files.get(*ref)
	if err != nil {
		return err
	}
	var all fileLists
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("read the lists of files: %w", err)
	}
	m.Changes, m.ChangesOmitted = all.Changes, 0
	if m.Sync != nil {
		m.Sync.Files, m.Sync.FilesOmitted = all.Files, 0
		m.Sync.Refused, m.Sync.RefusedOmitted = all.Refused, 0
		m.Sync.Targets, m.Sync.TargetsOmitted = all.Landed, 0
	}
	return nil
}
