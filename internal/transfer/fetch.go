package transfer

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// Fetch brings files and folders of a container into the sandbox root. With an error nothing was
// written, and the report says what was refused. The error's code is sync_refused, limit_exceeded,
// disk_full or transfer_failed, shutting_down, or that of a container that cannot be reached.
func (s *Syncer) Fetch(ctx context.Context, env dray.Environment, req Request) (dray.SyncReport,
	error,
) {
	return s.run(ctx, env, req, (*syncJob).fetch)
}

// maxAttempts is how often a sync is begun in all when others of the same files overtake it.
const maxAttempts = 8

// run does a sync, and again where another one came between: the caller asked for files that are
// all there at the end, in one content.
func (s *Syncer) run(ctx context.Context, env dray.Environment, req Request,
	do func(*syncJob, context.Context, dray.Environment) (dray.SyncReport,
		error),
) (dray.SyncReport, error) {
	ctx, done := s.bounded(ctx)
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
			failed := j.failedReport(why)
			// what a mount shows is there all the same
			failed.Files, failed.Bytes = append(failed.Files, report.Files...), report.Bytes
			return failed, why
		}
	}
}

func (j *syncJob) fetch(ctx context.Context, env dray.Environment) (dray.SyncReport, error) {
	if err := j.checkFetchable(); err != nil {
		return dray.SyncReport{}, err
	}
	var err error
	if j.destination, err = checkDestination(j.req.Destination, j.s.cfg.Root); err != nil {
		return dray.SyncReport{}, j.refuseAll(j.req.Destination, err) // there is nowhere to go
	}
	j.findSources(j.req.Paths)
	j.dedupe()
	if j.endsByRefusal() {
		return dray.SyncReport{}, errHasRefusals
	}
	return j.copyTree(ctx, env.Files, j.s.root, j.s.cfg.Root)
}

// checkFetchable refuses what nothing can come of.
func (j *syncJob) checkFetchable() error {
	switch {
	case j.paths.caps.Kind == dray.KindHost:
		return dray.Errorf(dray.CodeSyncRefused,
			"the call runs on the host, where its files are already").
			WithHint("name a container, or a workspace that has one, to bring files home from")
	case j.s.root == nil:
		return dray.Errorf(dray.CodeSyncRefused, "there is no sandbox root that files could come to").
			WithHint("set sandbox.root in the configuration to a folder that is for these files alone, and restart the daemon")
	}
	return j.s.verifyRoot()
}

// copyTree collects the sources on one side and places them on the other, beneath a folder that is
// called root there.
func (j *syncJob) copyTree(ctx context.Context, open openFilesFunc, to dray.Files,
	root string,
) (dray.SyncReport, error) {
	tree := newSelection(j, &concatTree{
		ctx: ctx, open: open, limits: j.s.cfg.Limits,
		groups: groups(j.sources),
	})
	defer func() { _ = tree.Close() }()
	placed, err := to.WriteTree(ctx, tree,
		dray.WriteTreeOptions{Executable: j.s.cfg.Executable, DryRun: j.req.DryRun})
	if err != nil {
		return dray.SyncReport{}, j.placementRefusal(tree, root, err)
	}
	return j.completeReport(root, placed, tree.from), nil
}

// placementRefusal makes a refusal of a file that cannot be written where it would land, because of
// what is there.
func (j *syncJob) placementRefusal(tree *filteredTree, root string, err error) error {
	code := dray.CodeOf(err)
	if errors.Is(err, errHasRefusals) || code != dray.CodePathInvalid && code != dray.CodeDenied {
		return err
	}
	at := tree.last
	if tree.ended || at == "" {
		at = root // it turned out when all was there
	}
	return j.refuseAll(at, err)
}

// syncJob is one sync under way.
type syncJob struct {
	s     *Syncer
	req   Request
	paths pathResolver
	// declared are outputs that were declared, rather than named by a call of the tool sync.
	declared bool
	// destination is the request's, clean; "." is the folder that files come to.
	destination string
	// mayWrite says why a name at the destination is not written; nil if it is.
	mayWrite func(name string, folder bool) *dray.Error

	sources       []source
	taken         []source        // of which a file came
	partial       map[string]bool // sources, by their path, in which something was refused
	refused       []dray.RefusedPath
	folders       map[string]bool // that were refused: what lies in them is not listed on its own
	limitRefusals int             // refusals that are limits
	// what to do about a refusal that is of the place where files land, and cannot be skipped
	destinationHint string
	done            Progress
	bytes           int64 // that the files have which came, read or not
}

func (s *Syncer) newJob(env dray.Environment, req Request) (*syncJob, error) {
	j := &syncJob{
		s: s, req: req, folders: map[string]bool{}, partial: map[string]bool{},
		destination: ".",
	}
	j.mayWrite = s.deny.refusedName
	var err error
	j.paths, err = newPaths(env.Capabilities(), req.Dir, req.Workspace)
	return j, err
}

// refuseEntry refuses what a source holds.
func (j *syncJob) refuseEntry(s source, p string, why error) {
	j.partial[s.path] = true
	if !isUnder(p, j.folders) {
		j.folders[p] = true
		j.refuse(p, why)
	}
}

// refuse lists a path that is not taken, and why.
func (j *syncJob) refuse(p string, why error) {
	e := dray.AsError(why)
	if e.Code == dray.CodeLimitExceeded {
		j.limitRefusals++
	}
	j.refused = append(j.refused, dray.RefusedPath{
		Path: dray.PrintablePath(p), Code: e.Code,
		Message: e.Message,
	})
}

// refuseAll lists a path because of the place where it lands. Nothing can come then, whatever may
// be skipped.
func (j *syncJob) refuseAll(p string, why error) error {
	j.refuse(p, why)
	j.destinationHint = cmp.Or(dray.AsError(why).Hint, "choose another destination")
	return errHasRefusals
}

// endsByRefusal says that something was refused that ends the sync.
func (j *syncJob) endsByRefusal() bool { return len(j.refused) > 0 && !j.req.SkipRefused }

// recordTaken notes that a file of a source was taken.
func (j *syncJob) recordTaken(s source) {
	if !slices.ContainsFunc(j.taken,
		func(t source) bool { return t.path == s.path && t.target == s.target }) {
		j.taken = append(j.taken, s)
	}
}

// Between two words about the progress lie so many files or bytes.
const (
	filesOfProgress = 500
	bytesOfProgress = 16 << 20
)

func (j *syncJob) progress(files int, bytes int64) {
	before := j.done
	j.done.Files += files
	j.done.Bytes += bytes
	if j.req.Progress != nil && (j.done.Files/filesOfProgress > before.Files/filesOfProgress ||
		j.done.Bytes/bytesOfProgress > before.Bytes/bytesOfProgress) {
		j.req.Progress(j.done)
	}
}

// errDeadline is the end of a sync that took too long.
var errDeadline = errors.New("it took longer than sandbox.timeout")

// bounded gives a sync its time.
func (s *Syncer) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, errDeadline)
	ctx, stop := context.WithCancelCause(ctx)
	off := context.AfterFunc(s.ctx, func() { stop(context.Cause(s.ctx)) })
	return ctx, func() {
		off()
		stop(nil)
		cancel()
	}
}

// finalError gives the error of a sync the code that callers switch on.
func (j *syncJob) finalError(ctx context.Context, err error) *dray.Error {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errHasRefusals):
		return j.refusal()
	case errors.Is(err, stage.ErrCommitIncomplete):
		return dray.AsError(err) // the one case in which something was written, and it says so
	case errors.Is(cause, errDeadline) && errors.Is(err, stage.ErrLocked):
		return dray.Errorf(dray.CodeTransferFailed, "the sync was given up: %w (%v), and %w", errDeadline,
			j.s.cfg.Timeout, stage.ErrLocked).
			WithHint("nothing was written; end that process (lsof shows it), and repeat it")
	case errors.Is(cause, errDeadline):
		return dray.Errorf(dray.CodeTransferFailed, "the sync was given up: %w (%v)", errDeadline,
			j.s.cfg.Timeout).
			WithHint("nothing was written; move less at once, or raise sandbox.timeout in the configuration")
	case errors.Is(cause, errStopped):
		return dray.Errorf(dray.CodeShuttingDown, "the sync was given up: %w", errStopped).
			WithHint("nothing was written; repeat it when the daemon is up again")
	case cause != nil:
		return dray.Errorf(dray.CodeTransferFailed, "the sync was given up: %w", cause).
			WithHint("nothing was written; repeat it")
	}
	e := dray.AsError(err)
	if e.Code == dray.CodeAgentLost {
		e.Code = dray.CodeTransferFailed
	}
	if e.Hint == "" && e.Code == dray.CodeTransferFailed {
		e.Hint = "nothing was written; repeat it"
	}
	return e
}

// refusal is the error of a sync in which something is refused.
func (j *syncJob) refusal() *dray.Error {
	code, hint := dray.CodeSyncRefused, "leave out what is refused, or set on_refused to skip"
	if j.limitRefusals == len(j.refused) {
		code, hint = dray.CodeLimitExceeded, hint+"; or raise sandbox.max_file or sandbox.max_depth in the configuration"
	}
	first, more := j.refused[0], ""
	if n := len(j.refused); n > 1 {
		more = " (and more; the list has all)"
	}
	if j.destinationHint != "" { // what was refused before it may have been skipped
		first, hint = j.refused[len(j.refused)-1], j.destinationHint
	}
	return dray.Errorf(code, "nothing was written, because %s is refused: %s%s", first.Path,
		first.Message, more).
		WithHint("%s", hint)
}
