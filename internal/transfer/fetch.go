package transfer

import (
	"context"
	"errors"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// Fetch brings files and folders of a container into the sandbox root. With an error nothing was written, and the report says what was refused.
// The error's code is sync_refused, limit_exceeded, disk_full or transfer_failed, shutting_down, or that of a container that
// cannot be reached.
func (s *Syncer) Fetch(ctx context.Context, env dray.Environment, req Request) (dray.SyncReport, error) {
	return s.run(ctx, env, req, (*syncJob).fetch)
}

// maxAttempts is how often a sync is begun in all when others of the same files overtake it.
const maxAttempts = 8

// run does a sync, and again where another one came between: the caller asked for files that are all there at the end, in one content.
func (s *Syncer) run(ctx context.Context, env dray.Environment, req Request, do func(*syncJob, context.Context, dray.Environment) (dray.SyncReport, error)) (dray.SyncReport, error) {
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
			failed.Files, failed.Bytes = append(failed.Files, report.Files...), report.Bytes // what a mount shows is there all the same
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
		return dray.Errorf(dray.CodeSyncRefused, "the call runs on the host, where its files are already").
			WithHint("name a container, or a workspace that has one, to bring files home from")
	case j.s.root == nil:
		return dray.Errorf(dray.CodeSyncRefused, "there is no sandbox root that files could come to").
			WithHint("set sandbox.root in the configuration to a folder that is for these files alone, and restart the daemon")
	}
	return j.s.verifyRoot()
}

// copyTree collects the sources on one side and places them on the other, beneath a folder that is called root there.
func (j *syncJob) copyTree(ctx context.Context, open openFilesFunc, to dray.Files, root string) (dray.SyncReport, error) {
	tree := newSelection(j, &concatTree{ctx: ctx, open: open, limits: j.s.cfg.Limits, groups: groups(j.sources)})
	defer func() { _ = tree.Close() }()
	placed, err := to.WriteTree(ctx, tree, dray.WriteTreeOptions{Executable: j.s.cfg.Executable, DryRun: j.req.DryRun})
	if err != nil {
		return dray.SyncReport{}, j.placementRefusal(tree, root, err)
	}
	return j.completeReport(root, placed, tree.from), nil
}

// placementRefusal makes a refusal of a file that cannot be written where it would land, because of what is there.
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
