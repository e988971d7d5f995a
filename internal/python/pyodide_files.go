package python

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
	"github.com/dray-dev/dray/internal/lexical"
)

// The limits of the files of one run (PY-10), for what is staged and for what comes back.
const (
	MaxFile    = 32 << 20  // bytes of one file
	MaxFiles   = 128 << 20 // bytes of all files
	MaxEntries = 10_000    // files and directories
	maxNesting = 128       // directories above an entry
)

// Workspace is where the code of a runtime that stages files finds them (PY-10).
type Workspace struct {
	// Open opens a directory of the environment that code may read. It fails with denied for another
	// one. The runtime closes what it opens.
	Open func(ctx context.Context, dir string) (Directory, error)
	// Skip reports whether an entry of the working directory is not staged, and everything beneath it.
	// Nil stages all.
	Skip func(name string, dir bool) bool
	// CheckChange returns why an absolute path must not be written or removed. It is called with the
	// path that the caller knows and, if the directory was reached by a symlink, with the real one.
	// Nil refuses all.
	CheckChange func(path string, dir bool) error
	// BeforeCommit is called with the changes of a run when all of them are staged and none is made.
	// If it fails, none is made. Nil is none.
	BeforeCommit func(ctx context.Context, planned []dray.FileChange) error
}

// Directory has the files of a directory of the host.
type Directory interface {
	dray.Files
	// RealPath returns the absolute path of the directory without symlinks, wherever it is by now.
	RealPath() (string, error)
}

// known is what a worker has under a name.
type known struct {
	dir bool
	// sum is the hexadecimal SHA-256 of a file. It is empty if the worker may have anything there.
	sum     string
	version string // as dray.TreeEntry has it; empty if it is not known
	size    int64
	mode    fs.FileMode
}

// workerFiles are the files that a worker has. Only the call that has the session uses them.
type workerFiles struct {
	root  string
	known map[string]known // by names relative to root
	clear bool             // the worker must remove all that it has
}

// forget makes the next call stage everything.
func (f *workerFiles) forget() { f.known, f.clear = map[string]known{}, true }

// staged are the files of one run.
type staged struct {
	*workerFiles
	files     Directory // beneath root; nil without a root
	workspace Workspace
	readOnly  bool
	warnings  []string
}

func (s *staged) close() {
	if s.files != nil {
		_ = s.files.Close()
	}
}

// stagingSettings are the first frame of a tree of files to stage. The limits are those of the
// changes that the worker may send.
type stagingSettings struct {
	Root  string `json:"root"`  // absolute; empty for none
	Clear bool   `json:"clear"` // remove what is beneath root first
	// Apart has the paths of files outside of root, by their names in the tree.
	Apart      map[string]string `json:"apart"`
	MaxFile    int64             `json:"max_file"`
	MaxTotal   int64             `json:"max_total"`
	MaxEntries int               `json:"max_entries"`
}

// stage sends the worker the files of a call that it does not have yet. If it fails, the request
// cannot run, and the next call stages everything.
func (w *pyodideWorker) stage(ctx context.Context, req Request, ws Workspace) (*staged, error) {
	root, err := stagingRoot(req.Cwd)
	if err != nil {
		return nil, err
	}
	s := &staged{
		workerFiles: &w.files, workspace: ws, readOnly: req.ReadOnly || w.permissions.FS != FSWrite,
	}
	if root != s.root {
		s.root = root
		s.forget()
	}
	if err := s.send(ctx, w.conn, req); err != nil {
		s.forget()
		s.close()
		return nil, err
	}
	return s, nil
}

// stagingRoot returns the directory whose files are staged for a working directory. The root of the
// file system has too many: it is empty for the code.
func stagingRoot(cwd string) (string, error) {
	cwd = path.Clean(cwd)
	if cwd == "/" {
		return "", nil
	}
	for _, own := range []string{"/dev", "/lib", "/proc"} {
		if lexical.Contains(own, cwd) {
			return "", dray.Errorf(dray.CodeBadCwd,
				"the runtime %s has its own files in %s, so code cannot work in %s", RuntimePyodide, own, cwd).
				WithHint("use another working directory")
		}
	}
	return cwd, nil
}

func (s *staged) send(ctx context.Context, c *conn, req Request) error {
	t := &stagedTree{staged: s, hash: sha256.New(), next: map[string]known{}}
	defer t.Close()
	if s.root != "" {
		var err error
		if s.files, err = s.workspace.Open(ctx, s.root); err != nil {
			return err
		}
		if err := t.plan(ctx, req.File); err != nil {
			return err
		}
	}
	if err := t.openTrees(ctx, req.File); err != nil {
		return err
	}
	out := &stagingWriter{conn: c, ctx: ctx, request: c.nextRequest()}
	settings, err := json.Marshal(stagingSettings{
		Root: s.root, Clear: s.clear, Apart: t.apart,
		MaxFile: MaxFile, MaxTotal: MaxFiles, MaxEntries: MaxEntries,
	})
	if err != nil {
		return err
	}
	defer out.close()
	if _, err := out.Write(settings); err != nil {
		return err
	}
	if err := tree.Send(out, t); err != nil {
		return stagingError(err)
	}
	s.known, s.clear = t.next, false
	return nil
}

// stagingError returns an error of a tree without the hints of a sync.
func stagingError(err error) error {
	e := dray.AsError(err)
	if e.Code == dray.CodeTransferFailed {
		return dray.Errorf(e.Code, "stage the files of the call: %w", err).
			WithHint("repeat the call when no program writes to the files, or leave them out with " +
				"files.exclude")
	}
	return err
}

// stagingWriter sends a tree before its request. It must not be used concurrently.
type stagingWriter struct {
	conn    *conn
	ctx     context.Context //nolint:containedctx // of the one call that it writes for
	request uint32
}

// Write blocks until the bytes are written to the worker, or the context or the worker has ended.
func (w *stagingWriter) Write(p []byte) (int, error) {
	m := message{
		request: w.request, part: kindFiles, last: kindFiles, body: bytes.Clone(p),
		until: w.ctx.Done(), sent: make(chan struct{}),
	}
	w.conn.out.add(m)
	select {
	case <-m.sent:
	case <-w.ctx.Done():
	case <-w.conn.done:
	}
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return len(p), nil
}

// close sends the end. It does not block.
func (w *stagingWriter) close() {
	w.conn.out.add(message{request: w.request, last: kindFilesEnd})
}

// stagedTree is the tree that a worker gets: the names that it has and must not have, the
// directories, and the files that differ from its own.
type stagedTree struct {
	*staged
	infos map[string]dray.FileInfo
	names []string // of the files beneath root
	total int64    // bytes of the files
	queue []dray.TreeEntry
	// trees are read one after the other: the files beneath root, then those outside of it, whose
	// names have prefixes.
	trees    []dray.Tree
	prefixes []string
	apart    map[string]string

	next    map[string]known // what the worker has afterwards
	current string
	hash    hash.Hash
	buffer  *bytes.Reader // the current file, if it was read to be compared
}

// plan decides what the worker must have. A script is staged even if it is skipped.
func (t *stagedTree) plan(ctx context.Context, script string) error {
	t.infos = map[string]dray.FileInfo{}
	scriptName, _ := lexical.Rel(t.root, script)
	err := t.files.Walk(ctx, ".", func(name string, info dray.FileInfo) error {
		dir := info.Type == "directory"
		if name == "." {
			return refusedDir(t.root, info)
		}
		switch {
		case name == scriptName, scriptName != "" && dir && lexical.Contains(name, scriptName):
		case t.workspace.Skip != nil && t.workspace.Skip(name, dir), strings.HasPrefix(path.Base(name),
			stagePrefix):
			return skipEntry(dir)
		}
		if why := notStaged(name, info); why != "" {
			t.warn(name, why)
			return skipEntry(dir)
		}
		t.infos[name] = info
		if dir {
			t.planDir(name, info)
			return refusedDir(name, info)
		}
		t.names = append(t.names, name)
		t.total += info.Size
		return checkStaged(name, info.Size, t.total, len(t.infos))
	})
	if err != nil {
		return err
	}
	for name, has := range t.known {
		if info, ok := t.infos[name]; !ok || has.dir != (info.Type == "directory") {
			t.queue = append(t.queue, removal(name))
		}
	}
	// Directories come after removals and before files.
	slices.SortStableFunc(t.queue, func(a, b dray.TreeEntry) int { return order(a) - order(b) })
	return nil
}

func order(e dray.TreeEntry) int {
	if e.Refused != nil {
		return 0
	}
	return 1
}

func (t *stagedTree) planDir(name string, info dray.FileInfo) {
	has := known{dir: true, mode: info.Mode.Perm()}
	t.next[name] = has
	if before, ok := t.known[name]; !ok || before != has {
		t.queue = append(t.queue, dray.TreeEntry{Name: name, Type: "directory", Mode: has.mode})
	}
}

// removal is the entry of a name that the worker must not have.
func removal(name string) dray.TreeEntry {
	return dray.TreeEntry{Name: name, Refused: dray.Errorf(dray.CodeNotFound, "")}
}

func skipEntry(dir bool) error {
	if dir {
		return fs.SkipDir
	}
	return nil
}

// stagePrefix is that of the directories in which a write of a tree is staged.
const stagePrefix = ".dray-stage-"

// notStaged returns why code cannot have an entry, empty if it can. Whatever code writes there is a
// conflict later, so nothing is lost.
func notStaged(name string, info dray.FileInfo) string {
	switch {
	case !isPlainName(name):
		return "its name is not printable UTF-8"
	case info.Type == "symlink":
		return "it is a symlink"
	case info.Type != "file" && info.Type != "directory":
		return "it is neither a file nor a directory"
	case path.Base(name) == "__proto__":
		return "the runtime cannot have this name" // of Emscripten's directories
	default:
		return ""
	}
}

// isPlainName reports whether a name is UTF-8 without control characters.
func isPlainName(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

const excludeHint = "leave it out with files.exclude, or use another working directory"

// refusedDir returns the error for a directory whose entries cannot be read.
func refusedDir(name string, info dray.FileInfo) error {
	if info.Refused == nil {
		return nil
	}
	return dray.Errorf(info.Refused.Code, "stage the files of the call: %q: %w", name, info.Refused).
		WithHint(excludeHint)
}

func checkStaged(name string, size, total int64, entries int) error {
	var e *dray.Error
	switch {
	case size > MaxFile:
		e = dray.Errorf(dray.CodeLimitExceeded, "%q has %d bytes, and code can have files of up to %d",
			name, size, MaxFile)
	case total > MaxFiles:
		e = dray.Errorf(dray.CodeLimitExceeded,
			"the files up to %q have %d bytes, and code can have %d in total", name, total, MaxFiles)
	case entries > MaxEntries:
		e = dray.Errorf(dray.CodeLimitExceeded,
			"the working directory has more than %d files and directories; %q is one too many",
			MaxEntries, name)
	default:
		return nil
	}
	return e.WithHint("leave large directories out with files.exclude, name what is needed with " +
		"files.include, or use another working directory")
}

// maxWarnings bounds the entries that are named in warnings.
const maxWarnings = 10

func (s *staged) warn(name, why string) {
	switch n := len(s.warnings); {
	case n < maxWarnings:
		s.warnings = append(s.warnings, fmt.Sprintf("%q was not staged: %s", name, why))
	case n == maxWarnings:
		s.warnings = append(s.warnings, "more entries were not staged")
	}
}

// openTrees opens the files to read.
func (t *stagedTree) openTrees(ctx context.Context, script string) error {
	if len(t.names) > 0 {
		partial := map[string]dray.PartialFile{}
		for _, name := range t.names {
			if has := t.known[name]; has.version != "" {
				partial[name] = dray.PartialFile{Version: has.version, Bytes: has.size}
			}
		}
		files, err := t.files.ReadTree(ctx, dray.ReadTreeOptions{
			Names: t.names, Partial: partial,
			Limits: dray.TreeLimits{MaxFile: MaxFile, MaxTotal: MaxFiles},
		})
		if err != nil {
			return err
		}
		t.trees, t.prefixes = append(t.trees, files), append(t.prefixes, "")
	}
	t.apart = map[string]string{}
	if script == "" || t.root != "" && lexical.Contains(t.root, script) {
		return nil
	}
	return t.openScript(ctx, script)
}

// apartPrefix begins the names of files outside of the root. No other name has it, because it is a
// control character.
const apartPrefix = "\x01"

// openScript adds a script outside of the working directory, with the Python files beside it. They
// count for the limits of the run. The worker reports that a script is missing (PY-13).
func (t *stagedTree) openScript(ctx context.Context, script string) error {
	dir, base := path.Split(path.Clean(script))
	if _, err := stagingRoot(dir); err != nil {
		return err
	}
	files, err := t.workspace.Open(ctx, path.Clean(dir))
	if dray.CodeOf(err) == dray.CodeBadCwd {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }()
	names := []string{base}
	before := t.total
	entries, _, err := files.List(".", MaxEntries)
	if err != nil {
		return fmt.Errorf("list the directory of the script: %w", err)
	}
	for _, e := range entries {
		switch {
		case e.Type != "file":
			continue
		case e.Name == base:
		case path.Ext(e.Name) == ".py" && isPlainName(e.Name):
			names = append(names, e.Name)
		default:
			continue
		}
		t.total += e.Size
		if err := checkStaged(e.Name, e.Size, t.total, len(t.infos)+len(names)); err != nil {
			return err
		}
	}
	beside, err := files.ReadTree(ctx, dray.ReadTreeOptions{
		Names: names, Limits: dray.TreeLimits{MaxFile: MaxFile, MaxTotal: max(1, MaxFiles-before)},
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		t.apart[apartPrefix+name] = path.Join(dir, name)
	}
	t.trees, t.prefixes = append(t.trees, beside), append(t.prefixes, apartPrefix)
	return nil
}

// Next implements dray.Tree.
func (t *stagedTree) Next() (dray.TreeEntry, error) {
	if len(t.queue) > 0 {
		e := t.queue[0]
		t.queue = t.queue[1:]
		return e, nil
	}
	for len(t.trees) > 0 {
		e, err := t.trees[0].Next()
		if errors.Is(err, io.EOF) {
			_ = t.trees[0].Close()
			t.trees, t.prefixes = t.trees[1:], t.prefixes[1:]
			continue
		}
		if err != nil {
			return e, err
		}
		send, err := t.file(&e)
		if err != nil || send {
			return e, err
		}
	}
	return dray.TreeEntry{}, io.EOF
}

// file prepares an entry, and reports whether the worker needs it.
func (t *stagedTree) file(e *dray.TreeEntry) (bool, error) {
	name := e.Name
	if t.prefixes[0] != "" {
		return t.fileApart(e)
	}
	if e.Refused != nil {
		return t.refused(e)
	}
	has := t.known[name]
	if has.sum != "" && has.version == e.Version && e.Offset == e.Size {
		t.next[name] = has
		return false, nil
	}
	now := known{version: e.Version, size: e.Size, mode: e.Mode.Perm()}
	if e.Offset > 0 {
		return false, dray.Errorf(dray.CodeInternal, "%q was not read from its start", name)
	}
	t.buffer = nil
	if has.sum != "" && has.size == e.Size { // touched, or written by the last run
		content, err := io.ReadAll(t.trees[0])
		if err != nil {
			return false, err
		}
		sum := sha256.Sum256(content)
		if now.sum = hex.EncodeToString(sum[:]); now.sum == has.sum && now.mode == has.mode {
			t.next[name] = now
			return false, nil
		}
		t.buffer = bytes.NewReader(content)
	}
	t.next[name], t.current = now, name
	t.hash.Reset()
	e.Version = milliseconds(t.infos[name])
	return true, nil
}

func (t *stagedTree) fileApart(e *dray.TreeEntry) (bool, error) {
	name := e.Name
	e.Name = t.prefixes[0] + name
	if e.Refused != nil {
		delete(t.apart, e.Name)
		if e.Refused.Code != dray.CodeNotFound {
			return false, unreadable(name, e.Refused)
		}
		return false, nil
	}
	t.current, t.buffer = "", nil
	e.Version = "0"
	return true, nil
}

// milliseconds returns when a file was modified, in milliseconds since 1970: the version of a
// staged file.
func milliseconds(info dray.FileInfo) string {
	return strconv.FormatInt(max(0, info.Modified.UnixMilli()), 10)
}

// refused handles a file that was not read.
func (t *stagedTree) refused(e *dray.TreeEntry) (bool, error) {
	switch e.Refused.Code {
	case dray.CodeNotFound: // it vanished
	case dray.CodePathInvalid:
		t.warn(e.Name, "it has hard links, or is not a file any more")
	default:
		return false, unreadable(e.Name, e.Refused)
	}
	_, has := t.known[e.Name]
	*e = removal(e.Name)
	return has, nil
}

func unreadable(name string, why *dray.Error) error {
	return dray.Errorf(why.Code, "stage the files of the call: %q: %w", name, why).
		WithHint(excludeHint)
}

// Read implements io.Reader for the current file.
func (t *stagedTree) Read(p []byte) (int, error) {
	if t.buffer != nil {
		return t.buffer.Read(p)
	}
	n, err := t.trees[0].Read(p)
	if t.current == "" {
		return n, err
	}
	t.hash.Write(p[:n])
	if errors.Is(err, io.EOF) {
		has := t.next[t.current]
		has.sum = hex.EncodeToString(t.hash.Sum(nil))
		t.next[t.current] = has
	}
	return n, err
}

// Close implements io.Closer.
func (t *stagedTree) Close() error {
	for _, one := range t.trees {
		_ = one.Close()
	}
	t.trees = nil
	return nil
}

// beneath returns the names in the directory dir, at any depth.
func beneath(names map[string]known, dir string) []string {
	var found []string
	for name := range maps.Keys(names) {
		if strings.HasPrefix(name, dir+"/") {
			found = append(found, name)
		}
	}
	return found
}
