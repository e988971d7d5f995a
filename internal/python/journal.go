package python

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
)

// journalEntry is a line of the journal. With Prepared it is what operation prepare chose for a
// session, else whether the session has state.
type journalEntry struct {
	Key
	Generation uint32    `json:"generation"`
	State      bool      `json:"state"`
	Prepared   *Prepared `json:"prepared,omitempty"`
}

// isValid reports whether a line of the file could have been written by this package.
func (e journalEntry) isValid() bool {
	if e.Prepared != nil {
		return e.Name != "" && (e.Prepared.Executable == "" || isCleanPath(e.Prepared.Executable))
	}
	return e.Name != "" && e.Generation > 0
}

// journal is a file with the sessions that have state, or have lost it without a report, and with
// what operation prepare chose for sessions. A line is appended when that changes; the file is
// rewritten when most of its lines are obsolete. A failure is logged and ends the writing; the next
// daemon then does not report lost state. Methods are called with Sessions.mu locked.
type journal struct {
	path     string // empty: no file
	log      *zap.Logger
	file     *os.File // nil without a path, and after a failure
	live     map[Key]uint32
	prepared map[Key]Prepared
	lines    int
}

// openJournal reads the journal and rewrites it. It returns the entries that are not obsolete.
func openJournal(path string, log *zap.Logger) (*journal, []journalEntry) {
	j := &journal{path: path, log: log, live: map[Key]uint32{}, prepared: map[Key]Prepared{}}
	if path == "" {
		return j, nil
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("read list of python sessions failed", zap.String("path", path), zap.Error(err))
	}
	j.read(data)
	j.rewrite()
	entries := j.entries()
	return j, entries
}

// entries returns the lines that are not obsolete, sorted.
func (j *journal) entries() []journalEntry {
	entries := []journalEntry{}
	for _, key := range slices.SortedFunc(maps.Keys(j.live), compareKeys) {
		entries = append(entries, journalEntry{Key: key, Generation: j.live[key], State: true})
	}
	for _, key := range slices.SortedFunc(maps.Keys(j.prepared), compareKeys) {
		prepared := j.prepared[key]
		entries = append(entries, journalEntry{Key: key, Prepared: &prepared})
	}
	return entries
}

// read applies the lines of the file. A line that is damaged is skipped.
func (j *journal) read(data []byte) {
	damaged := 0
	for line := range bytes.Lines(data) {
		var e journalEntry
		if err := decode(bytes.TrimSpace(line), &e); err != nil || !e.isValid() {
			damaged++
			continue
		}
		j.apply(e)
	}
	if damaged > 0 {
		j.log.Warn("list of python sessions damaged: the loss of some state is not reported",
			zap.String("path", j.path), zap.Int("lines", damaged))
	}
}

func (j *journal) apply(e journalEntry) {
	switch {
	case e.Prepared != nil && e.Prepared.isNew():
		delete(j.prepared, e.Key)
	case e.Prepared != nil:
		j.prepared[e.Key] = *e.Prepared
	case e.State:
		j.live[e.Key] = e.Generation
	default:
		delete(j.live, e.Key)
	}
}

// maxObsolete is the number of obsolete lines after which the file is rewritten, if they are more
// than the others.
const maxObsolete = 1000

// record adds an entry: whether a session has state, or has lost it without a report.
func (j *journal) record(key Key, generation uint32, state bool) {
	if _, had := j.live[key]; !state && !had {
		return
	}
	j.add(journalEntry{Key: key, Generation: generation, State: state})
}

// recordPrepared adds an entry: what operation prepare chose for a session.
func (j *journal) recordPrepared(key Key, prepared Prepared) {
	if _, had := j.prepared[key]; had || !prepared.isNew() {
		j.add(journalEntry{Key: key, Prepared: &prepared})
	}
}

// add applies an entry and appends its line.
func (j *journal) add(e journalEntry) {
	j.apply(e)
	if j.file == nil {
		return
	}
	if j.lines > 2*(len(j.live)+len(j.prepared))+maxObsolete {
		j.rewrite()
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	j.lines++
	j.check(err)
}

// rewrite replaces the file by one without obsolete lines.
func (j *journal) rewrite() {
	j.close()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	entries := j.entries()
	for _, e := range entries {
		_ = enc.Encode(e) // never fails
	}
	j.lines = len(entries)
	j.check(j.replace(b.Bytes()))
}

// replace writes the file under another name and renames it.
func (j *journal) replace(content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(j.path), filepath.Base(j.path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = os.Rename(f.Name(), j.path)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return err
	}
	j.file = f // further lines are appended to it
	return nil
}

// check stops writing after a failure.
func (j *journal) check(err error) {
	if err != nil {
		j.log.Warn("write list of python sessions failed", zap.String("path", j.path), zap.Error(err))
		j.close()
	}
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
}
