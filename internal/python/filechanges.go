package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// changeSet is what a run changes on the host, checked as a whole before anything is written.
type changeSet struct {
	FileChanges

	entries []change // to write, a directory before its entries
	remove  []string
	expect  map[string]string
	next    map[string]known // what is there afterwards
}

func (m *changeSet) isEmpty() bool { return len(m.entries)+len(m.remove) == 0 }

// newChangeSet compares what a worker sent with what it had. It fails with path_invalid for a name
// that cannot be written, and with limit_exceeded for too many.
func newChangeSet(list []change, has map[string]known) (*changeSet, error) {
	m := &changeSet{expect: map[string]string{}, next: maps.Clone(has)}
	added := 0
	for _, one := range list {
		if !isPlainName(one.name) {
			return nil, invalidChange(one.name, "its name is not printable UTF-8")
		}
		if _, ok := has[one.name]; one.removed && !ok {
			return nil, invalidChange(one.name, "it was removed and never there")
		}
		if !one.removed {
			added++
		}
	}
	if added > MaxEntries {
		return nil, dray.Errorf(dray.CodeLimitExceeded,
			"the code has changed more than %d files and directories", MaxEntries).
			WithHint("write them in several runs, or use the runtime %s", RuntimeContainer)
	}
	for _, one := range list {
		if one.removed {
			m.removeAll(one.name, has)
		}
	}
	for _, one := range list {
		if !one.removed {
			m.add(one, has)
		}
	}
	if err := m.checkExpected(has); err != nil {
		return nil, err
	}
	if err := m.checkParents(); err != nil {
		return nil, err
	}
	if err := m.checkCase(has); err != nil {
		return nil, err
	}
	for _, names := range []*[]string{&m.Created, &m.Modified, &m.Deleted, &m.remove} {
		slices.Sort(*names)
	}
	return m, nil
}

func invalidChange(name, why string) error {
	return dray.Errorf(dray.CodePathInvalid, "the code has changed %.200q, which is not possible: %s",
		name, why).WithHint("use another name; no change of the run was kept")
}

// removeAll removes a name with everything beneath it.
func (m *changeSet) removeAll(name string, has map[string]known) {
	for _, one := range append(beneath(has, name), name) {
		old, ok := has[one]
		if _, left := m.next[one]; !ok || !left {
			continue
		}
		delete(m.next, one)
		m.remove = append(m.remove, one)
		if m.expect[one] = old.sum; old.dir {
			m.expect[one] = dray.ExpectDirectory
		} else {
			m.Deleted = append(m.Deleted, one)
		}
	}
}

// add adds a file or directory that was made or changed.
func (m *changeSet) add(one change, has map[string]known) {
	old, existed := has[one.name]
	_, there := m.next[one.name]
	switch {
	case existed && there && old.dir && one.dir:
		return
	case existed && there && !old.dir && !one.dir:
		if old.sum == one.sum {
			return
		}
		m.Modified = append(m.Modified, one.name)
		m.expect[one.name] = old.sum
	default:
		if existed {
			m.removeAll(one.name, has) // a file and a directory change places
		} else {
			m.expect[one.name] = dray.ExpectAbsent
		}
		if !one.dir {
			m.Created = append(m.Created, one.name)
		}
	}
	one.mode = writtenMode(one, old)
	m.entries = append(m.entries, one)
	m.next[one.name] = known{dir: one.dir, sum: one.sum, size: one.size, mode: one.mode}
}

// writtenMode returns the permissions of an entry. A file stays executable, and none becomes it.
func writtenMode(one change, old known) fs.FileMode {
	if one.dir || old.mode&0o111 != 0 && !old.dir {
		return 0o700
	}
	return 0o600
}

// checkExpected fails for a file whose staged content is not known.
func (m *changeSet) checkExpected(has map[string]known) error {
	for name := range m.expect {
		if old, ok := has[name]; ok && !old.dir && old.sum == "" {
			return dray.Errorf(dray.CodeInternal,
				"the code changed %.200q, and its content before the run is not known; nothing was written",
				name).WithHint("repeat the call: it gets the files again")
		}
	}
	return nil
}

// checkParents fails for an entry that is not in a directory.
func (m *changeSet) checkParents() error {
	for _, one := range m.entries {
		dir := path.Dir(one.name)
		if above, ok := m.next[dir]; dir != "." && (!ok || !above.dir) {
			return invalidChange(one.name, fmt.Sprintf("%.200q is not a directory", dir))
		}
	}
	return nil
}

// checkCase fails for a new name that is the same as another one where case is ignored.
func (m *changeSet) checkCase(has map[string]known) error {
	folded := make(map[string]string, len(m.next))
	for name := range m.next {
		if _, ok := has[name]; ok {
			folded[stage.Fold(name)] = name
		}
	}
	for _, one := range m.entries {
		if _, ok := has[one.name]; ok {
			continue
		}
		key := stage.Fold(one.name)
		if other, ok := folded[key]; ok {
			return invalidChange(one.name, fmt.Sprintf("it differs from %.200q only in case", other))
		}
		folded[key] = one.name
	}
	return nil
}

// tree returns the entries with their contents.
func (m *changeSet) tree(content io.ReaderAt) dray.Tree {
	entries := slices.Clone(m.entries)
	slices.SortFunc(entries, func(a, b change) int { return strings.Compare(a.name, b.name) })
	return &changedTree{entries: entries, content: content}
}

// changedTree is a tree of changed files.
type changedTree struct {
	entries []change
	content io.ReaderAt
	current io.Reader
}

// Next implements dray.Tree.
func (t *changedTree) Next() (dray.TreeEntry, error) {
	if len(t.entries) == 0 {
		return dray.TreeEntry{}, io.EOF
	}
	one := t.entries[0]
	t.entries = t.entries[1:]
	e := dray.TreeEntry{Name: one.name, Type: "file", Size: one.size, Mode: one.mode}
	if one.dir {
		e.Type = "directory"
	}
	t.current = strings.NewReader("")
	if one.size > 0 {
		t.current = io.NewSectionReader(t.content, one.offset, one.size)
	}
	return e, nil
}

// Read implements io.Reader.
func (t *changedTree) Read(p []byte) (int, error) { return t.current.Read(p) }

// Close implements io.Closer.
func (*changedTree) Close() error { return nil }

// ErrReadOnly is the error of a run that may not change files, and did (PY-18).
var ErrReadOnly = fmt.Errorf("%s: the run is read-only", CodeAccess)

// Commit implements Committer. It fails with denied if the run may not change what it changed, with
// conflict if a file of the host has changed since it was staged, and with path_invalid and
// limit_exceeded for what cannot be written. Then nothing was written. It fails with
// stage.ErrCommitIncomplete if a part was written: the next commit there, or the next start of the
// daemon, completes it.
func (e *pyodideExecution) Commit(ctx context.Context) (FileChanges, error) {
	none := FileChanges{Created: []string{}, Modified: []string{}, Deleted: []string{}}
	if e.files == nil {
		return none, nil
	}
	c := e.changes
	<-c.done
	if e.reply.Error != nil && c.violation != nil {
		e.discarded = true
		e.files.forget()
		return none, nil //nolint:nilerr // the interpreter has failed, as the reply says, and sent none
	}
	m, err := e.changeSet()
	if err != nil {
		return none, err
	}
	if !m.isEmpty() {
		if err := e.write(ctx, m); err != nil {
			return none, err
		}
	}
	e.discarded = true
	e.files.known = m.next
	for _, names := range []*[]string{&m.Created, &m.Modified, &m.Deleted} {
		*names = append([]string{}, *names...) // JSON has no null
	}
	return m.FileChanges, nil
}

func (e *pyodideExecution) changeSet() (*changeSet, error) {
	c, s := e.changes, e.files
	switch {
	case c.violation != nil:
		return nil, c.violation
	case c.failure != nil:
		return nil, s.refusal(c.failure)
	}
	m, err := newChangeSet(c.list, s.known)
	if err != nil {
		return nil, s.refusal(err)
	}
	if m.isEmpty() {
		return m, nil
	}
	if s.readOnly {
		return nil, readOnlyError("its code changed %s", m.firstNames())
	}
	if err := s.check(m); err != nil {
		return nil, err
	}
	return m, nil
}

func readOnlyError(format string, args ...any) error {
	return dray.Errorf(dray.CodeDenied, "%w, and %s; nothing was written", ErrReadOnly,
		fmt.Sprintf(format, args...)).
		WithHint("leave read_only out, and use a session with the permission fs write " +
			"(python.permissions.fs in the configuration)")
}

// refusal returns the error for changes that cannot be made: of a read-only run, that it has made
// any.
func (s *staged) refusal(err error) error {
	e := dray.AsError(err)
	if s.readOnly && (e.Code == dray.CodePathInvalid || e.Code == dray.CodeLimitExceeded) {
		return readOnlyError("%s", e.Message)
	}
	return err
}

// check fails for changes of names that code must not change (SY-08). The names hold for the real
// path too: the working directory can be a symlink, and a container may have made it.
func (s *staged) check(m *changeSet) error {
	if s.files == nil || s.workspace.CheckChange == nil {
		return dray.Errorf(dray.CodeDenied, "the code changed %s, and nothing may be written in %s",
			m.firstNames(), cmp.Or(s.root, "/")).WithHint("use another working directory")
	}
	realRoot, err := s.files.RealPath()
	if err != nil {
		return fmt.Errorf("find the real path of the working directory: %w", err)
	}
	for _, root := range slices.Compact([]string{s.root, realRoot}) {
		for _, one := range m.entries {
			if err := s.workspace.CheckChange(path.Join(root, one.name), one.dir); err != nil {
				return err
			}
		}
		for _, name := range m.remove {
			if err := s.workspace.CheckChange(path.Join(root, name), s.known[name].dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// firstNames lists some of the changed names.
func (m *changeSet) firstNames() string {
	names := slices.Clone(m.remove)
	for _, one := range m.entries {
		names = append(names, one.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 5
	text := fmt.Sprintf("%q", names[:min(most, len(names))])
	text = strings.Trim(text, "[]")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// write writes changes to the host: all of it, or nothing.
func (e *pyodideExecution) write(ctx context.Context, m *changeSet) error {
	s := e.files
	how := dray.WriteTreeOptions{
		Executable: true, RefuseRepositories: true, Remove: m.remove, Expect: m.expect,
	}
	if before := s.workspace.BeforeCommit; before != nil {
		how.BeforeCommit = func(planned []dray.WrittenFile) error {
			return before(ctx, s.audited(planned))
		}
	}
	written, err := s.files.WriteTree(ctx, m.tree(e.changes.content), how)
	switch {
	case errors.Is(err, stage.ErrCommitIncomplete):
		return err // the only error after which something was written
	case err != nil:
		return dray.Errorf(dray.CodeOf(err), "no change of a file was kept: %w", err).
			WithHint("%s", dray.AsError(err).Hint)
	}
	m.Audit = s.audited(written)
	return nil
}

// audited returns files as the audit log has them.
func (s *staged) audited(files []dray.WrittenFile) []dray.FileChange {
	var list []dray.FileChange
	for _, f := range files {
		if f.Action != dray.FileUnchanged {
			list = append(list, dray.FileChange{
				Environment: dray.KindHost, Path: path.Join(s.root, f.Name), Action: f.Action,
				SHA256Before: f.SHA256Before, SHA256After: f.SHA256,
			})
		}
	}
	return list
}

// Discard implements Committer. The worker has what was not committed: the next call replaces it.
func (e *pyodideExecution) Discard() {
	if e.files == nil {
		return
	}
	e.changes.close()
	if !e.discarded {
		e.discarded = true
		e.revert()
	}
	e.files.close()
}

// revert forgets what the worker has under the names that it changed.
func (e *pyodideExecution) revert() {
	c, s := e.changes, e.files
	if c.violation != nil || c.failure != nil {
		s.forget()
		return
	}
	for _, one := range c.list {
		if _, was := s.known[one.name]; was {
			for _, name := range beneath(s.known, one.name) {
				delete(s.known, name)
			}
		}
		if delete(s.known, one.name); !one.removed {
			s.known[one.name] = known{dir: one.dir}
		}
	}
}
