package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/files/stage"
	"github.com/dray-dev/dray/internal/lexical"
)

// Fetch copies files and directories of a container to the sandbox root. If it returns an error,
// nothing was written, and the report has what was refused. The code is sync_refused,
// limit_exceeded, disk_full, transfer_failed, shutting_down, or that of a container that cannot be
// reached.
func (s *Syncer) Fetch(
	ctx context.Context, env dray.Environment, req Request,
) (dray.SyncReport, error) {
	return s.run(ctx, env, req, (*syncJob).fetch)
}

// Push copies files and directories of the host to a container, as its user, all of them or none.
// The target of a source in the call's workspace is the same path beneath the container's workspace
// folder; that of another source is its base name there. With a destination it is the base name in
// the destination. Targets in bind mounts are refused: those files are on the host. The errors are
// those of Fetch.
func (s *Syncer) Push(
	ctx context.Context, env dray.Environment, req Request,
) (dray.SyncReport, error) {
	return s.run(ctx, env, req, (*syncJob).push)
}

// maxAttempts is how often a sync is started at most if concurrent syncs change the same files.
const maxAttempts = 8

// run runs a sync, and repeats it after a conflict with another one, so that all files have the
// content of one sync.
func (s *Syncer) run(ctx context.Context, env dray.Environment, req Request,
	do func(*syncJob, context.Context, dray.Environment) (dray.SyncReport, error),
) (dray.SyncReport, error) {
	ctx, done := s.withTimeout(ctx)
	defer done()
	for attempt := 1; ; attempt++ {
		var report dray.SyncReport
		j, err := s.newJob(env, req)
		if err == nil {
			report, err = do(j, ctx, env)
		}
		if err == nil {
			return report, nil
		}
		if attempt == maxAttempts || !errors.Is(err, stage.ErrConflict) {
			why := j.finalError(ctx, err)
			failed := j.emptyReport(dray.SyncFailed)
			if failed.Error = why; why.Code == dray.CodeSyncRefused {
				failed.State = dray.SyncRefused
			}
			// files in mounts are there all the same
			failed.Files, failed.Bytes = append(failed.Files, report.Files...), report.Bytes
			return failed, why
		}
	}
}

var errTimeout = errors.New("it took longer than sandbox.timeout")

// withTimeout returns a context that ends with the timeout, or when the daemon shuts down.
func (s *Syncer) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, errTimeout)
	ctx, stop := context.WithCancelCause(ctx)
	off := context.AfterFunc(s.ctx, func() { stop(context.Cause(s.ctx)) })
	return ctx, func() {
		off()
		stop(nil)
		cancel()
	}
}

type syncJob struct {
	s     *Syncer
	req   Request
	paths pathResolver
	// declared is set for declared outputs.
	declared bool
	// destination is the request's, clean; "." for none.
	destination string
	// checkTarget returns why a target is refused; nil if it is not.
	checkTarget func(name string, dir bool) *dray.Error

	sources []source
	copied  []source // of which at least one file was read
	refusals
	done     Progress
	bytes    int64 // total size of the files, read or not
	missing  []string
	manifest int // size of the list of files in JSON
}

func (s *Syncer) newJob(env dray.Environment, req Request) (*syncJob, error) {
	paths, err := newPathResolver(env.Capabilities(), req)
	return &syncJob{
		s: s, req: req, paths: paths, destination: ".", checkTarget: s.deny.check,
		refusals: refusals{skip: req.SkipRefused, dirs: map[string]bool{}, partial: map[string]bool{}},
	}, err
}

func (j *syncJob) fetch(ctx context.Context, env dray.Environment) (dray.SyncReport, error) {
	if j.paths.caps.Kind == dray.KindHost {
		return dray.SyncReport{}, onHostError("from")
	}
	if err := j.checkRootUsable(); err != nil {
		return dray.SyncReport{}, err
	}
	if err := j.prepare(j.s.cfg.Root, j.findSources); err != nil {
		return dray.SyncReport{}, err
	}
	return j.copyTree(ctx, env.Files, j.s.root, j.s.cfg.Root)
}

// prepare checks the destination beneath dir and finds the sources. It fails if a refusal ends the
// sync.
func (j *syncJob) prepare(dir string, findSources func()) error {
	var err error
	if j.destination, err = checkDestination(j.req.Destination, dir); err != nil {
		return j.refuseTarget(j.req.Destination, err)
	}
	findSources()
	j.dedupe()
	if j.endSync() {
		return errHasRefusals
	}
	return nil
}

func (j *syncJob) checkRootUsable() error {
	if j.s.root == nil {
		return dray.Errorf(dray.CodeSyncRefused, "there is no sandbox root to write files to").
			WithHint("set sandbox.root in %s to a directory for these files alone, and run `dray stop`",
				cmp.Or(j.s.cfg.ConfigFile, "the configuration"))
	}
	return j.s.verifyRoot()
}

func onHostError(preposition string) error {
	return dray.Errorf(dray.CodeSyncRefused, "the call runs on the host, where its files are already").
		WithHint("name a container, or a workspace with one, to copy files %s", preposition)
}

func (j *syncJob) push(ctx context.Context, env dray.Environment) (dray.SyncReport, error) {
	dir := j.paths.caps.WorkspaceFolder
	switch {
	case j.paths.caps.Kind == dray.KindHost:
		return dray.SyncReport{}, onHostError("to")
	case dir == "":
		return dray.SyncReport{}, dray.Errorf(dray.CodeSyncRefused,
			"the container has no workspace folder to write files to").
			WithHint("name the workspace of the container, in the call or in the configuration")
	}
	j.checkTarget = j.checkPushTarget
	if err := j.prepare(dir, func() { j.findHostSources(ctx) }); err != nil {
		return dray.SyncReport{}, err
	}
	to, err := env.Files(ctx, dir)
	if err != nil {
		return dray.SyncReport{}, err
	}
	defer func() { _ = to.Close() }()
	return j.copyTree(ctx, j.openSource, to, dir)
}

// checkPushTarget refuses names of staging directories, and targets in bind mounts. Names that run
// code are allowed in a container.
func (j *syncJob) checkPushTarget(name string, dir bool) *dray.Error {
	if why := denyList(nil).check(name, dir); why != nil {
		return why
	}
	at := path.Join(j.paths.caps.WorkspaceFolder, name)
	if m, _, ok := j.paths.mount(at); ok {
		return dray.Errorf(dray.CodeDenied,
			"%s is in the directory %s of the host, which the container mounts", quote(at), quote(m.Host)).
			WithHint("change the files there: they need not be copied")
	}
	return nil
}

// openSource opens a directory of the host. The sandbox root is the one that was checked.
func (j *syncJob) openSource(_ context.Context, root string) (dray.Files, error) {
	if j.s.root != nil && root == j.s.cfg.Root {
		return sharedFiles{j.s.root}, nil
	}
	return files.Open(root)
}

// sharedFiles are files that Close leaves open.
type sharedFiles struct{ *files.Local }

func (sharedFiles) Close() error { return nil }

// copyTree reads the sources on one side and writes them on the other, beneath the directory root.
func (j *syncJob) copyTree(
	ctx context.Context, open openFilesFunc, to dray.Files, root string,
) (dray.SyncReport, error) {
	all := &concatTree{ctx: ctx, open: open, limits: j.s.cfg.Limits, groups: groups(j.sources)}
	tree := &filteredTree{
		job: j, tree: all, from: map[string]string{}, names: map[string]bool{},
	}
	defer func() { _ = tree.Close() }()
	opts := dray.WriteTreeOptions{
		Executable: j.s.cfg.Executable, DryRun: j.req.DryRun, RefuseRepositories: to == j.s.root,
	}
	if to == j.s.root && j.s.cfg.Record != nil {
		opts.BeforeCommit = func(files []dray.WrittenFile) error {
			planned := Changes(j.completeReport(root, files, tree.from), dray.KindHost)
			return j.s.cfg.Record(ctx, j.req.ID, planned)
		}
	}
	written, err := to.WriteTree(ctx, tree, opts)
	if err != nil {
		return dray.SyncReport{}, j.writeRefusal(tree, root, err)
	}
	return j.completeReport(root, written, tree.from), nil
}

// writeRefusal turns an error about a target into a refusal.
func (j *syncJob) writeRefusal(tree *filteredTree, root string, err error) error {
	code := dray.CodeOf(err)
	if errors.Is(err, errHasRefusals) || code != dray.CodePathInvalid && code != dray.CodeDenied {
		return err
	}
	at := tree.last
	if tree.ended || at == "" {
		at = root // the commit failed
	}
	return j.refuseTarget(at, err)
}

func (j *syncJob) recordCopied(s source) {
	isSame := func(c source) bool { return c.path == s.path && c.target == s.target }
	if !slices.ContainsFunc(j.copied, isSame) {
		j.copied = append(j.copied, s)
	}
}

// Progress is called after so many files or bytes.
const (
	progressFiles = 500
	progressBytes = 16 << 20
)

func (j *syncJob) progress(files int, bytes int64) {
	before := j.done
	j.done.Files += files
	j.done.Bytes += bytes
	if j.req.Progress != nil && (j.done.Files/progressFiles > before.Files/progressFiles ||
		j.done.Bytes/progressBytes > before.Bytes/progressBytes) {
		j.req.Progress(j.done)
	}
}

// checkLimits counts an entry against the limits of the whole sync.
func (j *syncJob) checkLimits(e entry, display string) error {
	limits := j.s.cfg.Limits
	if e.Refused == nil {
		j.bytes += e.Size
	}
	switch {
	case limits.MaxFiles > 0 && j.done.Files >= limits.MaxFiles:
		return limitError("sandbox.max_files", "there are more than %d files and directories",
			limits.MaxFiles)
	case limits.MaxTotal > 0 && j.bytes > limits.MaxTotal:
		return limitError("sandbox.max_total", "the files have more than %d bytes in total",
			limits.MaxTotal)
	case e.Refused == nil && limits.MaxFile > 0 && e.Size > limits.MaxFile:
		return limitError("sandbox.max_file", "%s has %d bytes (maximum %d)", quote(display), e.Size,
			limits.MaxFile)
	case e.Refused == nil && limits.MaxDepth > 0 && strings.Count(e.relPath, "/") > limits.MaxDepth:
		return limitError("sandbox.max_depth", "%s is deeper than %d directories", quote(display),
			limits.MaxDepth)
	}
	j.progress(1, 0)
	return nil
}

// Bounds of the lists of a report in bytes of JSON. A container chooses the names in them.
const (
	maxManifest = 16 << 20
	maxRefused  = 1 << 20
	maxTargets  = 1 << 20
	// entrySize is the size of an entry without its names.
	entrySize = 300
)

// addToManifest counts a file against the bound of the manifest, which lists every file.
func (j *syncJob) addToManifest(from, target string) error {
	j.manifest += entrySize + lexical.JSONSize(from) + lexical.JSONSize(target)
	if j.manifest > maxManifest {
		return dray.Errorf(dray.CodeLimitExceeded,
			"the names of the files need a manifest of more than %d bytes", maxManifest).
			WithHint("copy fewer files at once, or give them shorter names")
	}
	return nil
}

func limitError(key, format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, format, args...).
		WithHint("copy fewer files at once, or raise %s in the configuration", key)
}

// finalError returns the error of a sync with the code that callers handle.
func (j *syncJob) finalError(ctx context.Context, err error) *dray.Error {
	cancelled := func(code dray.Code, format string, args ...any) *dray.Error {
		return dray.Errorf(code, "the sync was cancelled: "+format, args...)
	}
	timeout, cause := j.s.cfg.Timeout, context.Cause(ctx)
	switch {
	case errors.Is(err, errHasRefusals):
		return j.error()
	case errors.Is(err, stage.ErrCommitIncomplete):
		return dray.AsError(err) // the only error after which something was written
	case errors.Is(cause, errTimeout) && errors.Is(err, stage.ErrLocked):
		locked := stage.ErrLocked
		return cancelled(dray.CodeTransferFailed, "%w (%v), and %w", errTimeout, timeout, locked).
			WithHint("nothing was written; end that process (lsof shows it), then repeat the sync")
	case errors.Is(cause, errTimeout):
		return dray.Errorf(dray.CodeTransferFailed,
			"the sync timed out after %v (sandbox.timeout); nothing was written", timeout).
			WithHint("sync fewer files, or raise sandbox.timeout")
	case errors.Is(cause, errStopped):
		return cancelled(dray.CodeShuttingDown, "%w", errStopped).
			WithHint("nothing was written; repeat the sync when the daemon runs again")
	case cause != nil:
		return cancelled(dray.CodeTransferFailed, "%w", cause).
			WithHint("nothing was written; repeat the sync")
	}
	e := dray.AsError(err)
	if e.Code == dray.CodeAgentLost {
		e.Code = dray.CodeTransferFailed
	}
	if e.Hint == "" && e.Code == dray.CodeTransferFailed {
		e.Hint = "nothing was written; repeat the sync"
	}
	return e
}

// completeReport returns the report of a completed sync. from has the source paths by target name.
func (j *syncJob) completeReport(
	root string, written []dray.WrittenFile, from map[string]string,
) dray.SyncReport {
	r := j.emptyReport(dray.SyncComplete)
	for _, f := range written {
		r.Files = append(r.Files, dray.SyncedFile{
			Path:   dray.PrintablePath(path.Join(root, f.Name)),
			Source: dray.PrintablePath(from[f.Name]), Size: f.Size, SHA256: f.SHA256,
			SHA256Before: f.SHA256Before, Mode: octal(f.Mode), Action: f.Action,
		})
		r.Bytes += f.Size
	}
	r.Targets, r.TargetsOmitted = j.syncTargets(root, from)
	return r
}

// syncTargets returns the targets of the sources. A source with refusals is listed by its files,
// because the directory is incomplete. Names that JSON cannot represent are omitted.
func (j *syncJob) syncTargets(root string, from map[string]string,
) (list []dray.SyncTarget, omitted int) {
	size := 0
	add := func(source, target string) {
		at := path.Join(root, target)
		size += entrySize + lexical.JSONSize(source) + lexical.JSONSize(at)
		switch {
		case !utf8.ValidString(source) || !utf8.ValidString(at):
		case size > maxTargets:
			omitted++
		default:
			list = append(list, dray.SyncTarget{Source: source, Path: at})
		}
	}
	names := slices.Sorted(maps.Keys(from))
	for _, s := range j.copied {
		if !j.partial[s.path] {
			add(s.path, s.target)
			continue
		}
		for _, target := range names {
			if lexical.Contains(s.target, target) {
				add(from[target], target)
			}
		}
	}
	return list, omitted
}

func (j *syncJob) emptyReport(state dray.SyncState) dray.SyncReport {
	return dray.SyncReport{
		State: state, Files: []dray.SyncedFile{}, DryRun: j.req.DryRun,
		Refused: append([]dray.RefusedPath{}, j.refused...), RefusedOmitted: j.omitted,
		Missing: j.missing,
	}
}

func octal(mode fs.FileMode) string { return fmt.Sprintf("%04o", mode.Perm()) }

// refusals collects what a sync refuses.
type refusals struct {
	skip    bool // refusals do not end the sync
	refused []dray.RefusedPath
	size    int              // of refused in JSON
	omitted int              // number of refusals that are not in refused
	last    dray.RefusedPath // in refused or not
	limits  int              // number of refusals because of a limit
	partial map[string]bool  // paths of sources with refusals
	dirs    map[string]bool  // refused directories, whose content is not listed
	// targetHint is the hint of a refusal because of the target, which cannot be skipped.
	targetHint string
}

// maxNameInMessage is the maximum length of a path in the message of an error, in bytes.
const maxNameInMessage = 1000

// errHasRefusals ends a sync in which something was refused.
var errHasRefusals = errors.New("something is refused")

func (r *refusals) refuse(p string, why error) {
	e := dray.AsError(why)
	if e.Code == dray.CodeLimitExceeded {
		r.limits++
	}
	r.last = dray.RefusedPath{Path: dray.PrintablePath(p), Code: e.Code, Message: e.Message}
	r.size += entrySize + lexical.JSONSize(r.last.Path) + lexical.JSONSize(e.Message)
	if len(r.refused) > 0 && r.size > maxRefused {
		r.omitted++
		return
	}
	r.refused = append(r.refused, r.last)
}

// refuseEntry adds an entry of a source, unless its directory is in the list.
func (r *refusals) refuseEntry(s source, p string, why error) {
	r.partial[s.path] = true
	if !isUnder(p, r.dirs) {
		r.dirs[p] = true
		r.refuse(p, why)
	}
}

// refuseTarget adds a path that cannot be written. It ends the sync, even if refusals are skipped.
func (r *refusals) refuseTarget(p string, why error) error {
	r.refuse(p, why)
	r.targetHint = cmp.Or(dray.AsError(why).Hint, "choose another destination")
	return errHasRefusals
}

// endSync reports whether a refusal ends the sync.
func (r *refusals) endSync() bool { return len(r.refused) > 0 && !r.skip }

// error returns the error of a sync that was ended by refusals.
func (r *refusals) error() *dray.Error {
	code, hint := dray.CodeSyncRefused, "omit the refused paths, or set on_refused to skip"
	if r.limits == len(r.refused)+r.omitted {
		code = dray.CodeLimitExceeded
		hint += "; or raise sandbox.max_file or sandbox.max_depth in the configuration"
	}
	first, more := r.refused[0], ""
	if len(r.refused) > 1 {
		more = " (and more; see the list)"
	}
	if r.targetHint != "" { // earlier refusals may have been skipped
		first, hint = r.last, r.targetHint
	}
	return dray.Errorf(code, "nothing was written, because %s is refused: %s%s",
		lexical.Truncate(first.Path, maxNameInMessage), first.Message, more).WithHint("%s", hint)
}

// isUnder reports whether a clean absolute path is one of the directories or beneath one.
func isUnder(p string, dirs map[string]bool) bool {
	for !dirs[p] {
		if p = p[:max(strings.LastIndexByte(p, '/'), 0)]; p == "" {
			return dirs["/"]
		}
	}
	return true
}
