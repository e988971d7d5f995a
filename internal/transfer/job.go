package transfer

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

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

	sources         []source
	taken           []source        // of which a file came
	partial         map[string]bool // sources, by their path, in which something was refused
	refused         []dray.RefusedPath
	folders         map[string]bool // that were refused: what lies in them is not listed on its own
	limitRefusals   int             // refusals that are limits
	destinationHint string          // what to do about a refusal that is of the place where files land, and cannot be skipped
	done            Progress
	bytes           int64 // that the files have which came, read or not
}

func (s *Syncer) newJob(env dray.Environment, req Request) (*syncJob, error) {
	j := &syncJob{s: s, req: req, folders: map[string]bool{}, partial: map[string]bool{}, destination: "."}
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
	j.refused = append(j.refused, dray.RefusedPath{Path: dray.PrintablePath(p), Code: e.Code, Message: e.Message})
}

// refuseAll lists a path because of the place where it lands. Nothing can come then, whatever may be skipped.
func (j *syncJob) refuseAll(p string, why error) error {
	j.refuse(p, why)
	j.destinationHint = cmp.Or(dray.AsError(why).Hint, "choose another destination")
	return errHasRefusals
}

// endsByRefusal says that something was refused that ends the sync.
func (j *syncJob) endsByRefusal() bool { return len(j.refused) > 0 && !j.req.SkipRefused }

// recordTaken notes that a file of a source was taken.
func (j *syncJob) recordTaken(s source) {
	if !slices.ContainsFunc(j.taken, func(t source) bool { return t.path == s.path && t.target == s.target }) {
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
	if j.req.Progress != nil && (j.done.Files/filesOfProgress > before.Files/filesOfProgress || j.done.Bytes/bytesOfProgress > before.Bytes/bytesOfProgress) {
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
		return dray.Errorf(dray.CodeTransferFailed, "the sync was given up: %w (%v), and %w", errDeadline, j.s.cfg.Timeout, stage.ErrLocked).
			WithHint("nothing was written; end that process (lsof shows it), and repeat it")
	case errors.Is(cause, errDeadline):
		return dray.Errorf(dray.CodeTransferFailed, "the sync was given up: %w (%v)", errDeadline, j.s.cfg.Timeout).
			WithHint("nothing was written; move less at once, or raise sandbox.timeout in the configuration")
	case errors.Is(cause, errStopped):
		return dray.Errorf(dray.CodeShuttingDown, "the sync was given up: %w", errStopped).WithHint("nothing was written; repeat it when the daemon is up again")
	case cause != nil:
		return dray.Errorf(dray.CodeTransferFailed, "the sync was given up: %w", cause).WithHint("nothing was written; repeat it")
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
	return dray.Errorf(code, "nothing was written, because %s is refused: %s%s", first.Path, first.Message, more).
		WithHint("%s", hint)
}
