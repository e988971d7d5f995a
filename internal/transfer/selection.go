package transfer

import (
	"errors"
	"io"
	"path"

	"github.com/dray-dev/dray"
)

// filteredTree is the tree that is placed: what the sources hold, under the names at the destination, without what is refused. It keeps to the
// limits by itself, whoever it comes from.
type filteredTree struct {
	job  *syncJob
	tree *concatTree

	from  map[string]string // by the name at the destination, what a file is called where it comes from
	names map[string]bool   // that came
	last  string            // the name that came last
	ended bool
}

func newSelection(j *syncJob, tree *concatTree) *filteredTree {
	return &filteredTree{job: j, tree: tree, from: map[string]string{}, names: map[string]bool{}}
}

// errHasRefusals ends a tree in which something is refused.
var errHasRefusals = errors.New("something is refused")

// Next goes to the next entry that may be written. Where a refusal ends the sync, all that is refused is looked for first, so that the
// caller hears of it at once.
func (t *filteredTree) Next() (dray.TreeEntry, error) {
	for {
		e, err := t.tree.Next()
		switch {
		case atEnd(err):
			t.ended = true
			if t.job.endsByRefusal() {
				return dray.TreeEntry{}, dray.Errorf(dray.CodeSyncRefused, "%w", errHasRefusals)
			}
			return dray.TreeEntry{}, io.EOF
		case err != nil:
			return dray.TreeEntry{}, err
		}
		from, shown, lands := e.source.at(e.relPath)
		if err := t.job.weigh(e, shown); err != nil {
			return dray.TreeEntry{}, err
		}
		if why := t.refusal(e, lands); why != nil {
			t.job.refuseEntry(e.source, shown, why)
			continue
		}
		if t.job.endsByRefusal() || lands == "." {
			continue
		}
		if t.names[lands] {
			return dray.TreeEntry{}, dray.Errorf(dray.CodeTransferFailed, "%s would be written twice", quote(lands))
		}
		t.names[lands] = true
		if e.Type == "file" {
			t.from[lands] = from
			t.job.recordTaken(e.source)
		}
		t.last = shown
		e.Name = lands
		return e.TreeEntry, nil
	}
}

// weigh holds an entry against the limits, which are those of the whole sync.
func (j *syncJob) weigh(e entry, shown string) error {
	limits := j.s.cfg.Limits
	if e.Refused == nil {
		j.bytes += e.Size
	}
	switch {
	case limits.MaxFiles > 0 && j.done.Files >= limits.MaxFiles:
		return limitError("sandbox.max_files", "there are more than %d files and folders", limits.MaxFiles)
	case limits.MaxTotal > 0 && j.bytes > limits.MaxTotal:
		return limitError("sandbox.max_total", "the files have more than %d bytes in all", limits.MaxTotal)
	case e.Refused == nil && limits.MaxFile > 0 && e.Size > limits.MaxFile:
		return limitError("sandbox.max_file", "%s has %d bytes, more than %d", quote(shown), e.Size, limits.MaxFile)
	case e.Refused == nil && limits.MaxDepth > 0 && depth(e.relPath) > limits.MaxDepth:
		return limitError("sandbox.max_depth", "%s lies deeper than %d folders", quote(shown), limits.MaxDepth)
	}
	j.progress(1, 0)
	return nil
}

// refusal says why an entry is not written; nil if it is.
func (t *filteredTree) refusal(e entry, lands string) *dray.Error {
	if e.Refused != nil {
		return e.Refused
	}
	return t.job.mayWrite(lands, e.Type == "directory")
}

// Read reads the current file.
func (t *filteredTree) Read(p []byte) (int, error) {
	n, err := t.tree.Read(p)
	t.job.progress(0, int64(n))
	return n, err
}

// Close closes what is open.
func (t *filteredTree) Close() error { return t.tree.Close() }

func limitError(key, format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, format, args...).WithHint("move less at once, or raise %s in the configuration", key)
}

// isUnder says that a path is one of some folders, or lies in one.
func isUnder(p string, folders map[string]bool) bool {
	for at := p; ; at = path.Dir(at) {
		if folders[at] {
			return true
		}
		if at == "/" || at == "." {
			return false
		}
	}
}
