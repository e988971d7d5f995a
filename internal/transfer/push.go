package transfer

import (
	"context"
	"path"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/internal/lexical"
)

// Push takes files and folders of the host into a container, as its user, with the guarantees of
// Fetch: all of them or none. They land at the same step below the container's workspace folder if
// they come from the call's workspace, else there under their base name; with a destination, which
// is relative to that folder, in it under their base name. Where the container shows a folder of
// the host it is refused: the files are there already, or belong on the host. The errors are those
// of Fetch.
func (s *Syncer) Push(ctx context.Context, env dray.Environment, req Request) (dray.SyncReport,
	error,
) {
	return s.run(ctx, env, req, (*syncJob).push)
}

func (j *syncJob) push(ctx context.Context, env dray.Environment) (dray.SyncReport, error) {
	folder := j.paths.caps.WorkspaceFolder
	switch {
	case j.paths.caps.Kind == dray.KindHost:
		return dray.SyncReport{}, dray.Errorf(dray.CodeSyncRefused,
			"the call runs on the host, where its files are already").
			WithHint("name a container, or a workspace that has one, to take files to")
	case folder == "":
		return dray.SyncReport{}, dray.Errorf(dray.CodeSyncRefused,
			"the container has no workspace folder that files could come to").
			WithHint("name the workspace that the container belongs to, in the call or in the configuration")
	}
	var err error
	if j.destination, err = checkDestination(j.req.Destination, folder); err != nil {
		return dray.SyncReport{}, j.refuseAll(j.req.Destination, err)
	}
	j.mayWrite = j.checkPushTarget
	j.findHostSources(ctx, j.req.Paths)
	j.dedupe()
	if j.endsByRefusal() {
		return dray.SyncReport{}, errHasRefusals
	}
	to, err := env.Files(ctx, folder)
	if err != nil {
		return dray.SyncReport{}, err
	}
	defer func() { _ = to.Close() }()
	return j.copyTree(ctx, j.openHost, to, folder)
}

// checkPushTarget refuses names that are dray's own, and places in the container that are the
// host's. Names that would run code are the container's own matter.
func (j *syncJob) checkPushTarget(name string, folder bool) *dray.Error {
	if why := denyList(nil).refusedName(name, folder); why != nil {
		return why
	}
	at := path.Join(j.paths.caps.WorkspaceFolder, name)
	if m, _, ok := j.paths.mount(at); ok {
		return dray.Errorf(dray.CodeDenied, "%s is in the host's folder %s, which the container shows",
			quote(at), quote(m.Host)).
			WithHint("work on the files there: nothing has to be moved")
	}
	return nil
}

// findHostSources finds the sources on the host.
func (j *syncJob) findHostSources(ctx context.Context, given []string) {
	roots := append([]string(nil), j.s.cfg.HostRoots...)
	if j.s.root != nil {
		roots = append(roots, j.s.cfg.Root)
	}
	if w := j.req.Workspace; w != "" && j.s.cfg.Trusted != nil && j.s.cfg.Trusted(ctx, w) {
		roots = append(roots, w)
	}
	for i, g := range given {
		src, err := j.hostSource(g, roots)
		if err == nil {
			err = asError(j.mayWrite(src.target, true))
		}
		if err != nil {
			j.refuse(g, err)
			continue
		}
		src.order = i
		j.sources = append(j.sources, src)
	}
}

// asError keeps a nil pointer from becoming an error that is not nil.
func asError(e *dray.Error) error {
	if e == nil {
		return nil
	}
	return e
}

func (j *syncJob) hostSource(given string, roots []string) (source, error) {
	if err := checkSource(given); err != nil {
		return source{}, err
	}
	if _, err := j.paths.withConfigured.ToContainer(given); err != nil { // which refuses Windows paths
		return source{}, err
	}
	p, err := absolute(given, j.req.Workspace)
	if err != nil {
		return source{}, err
	}
	root, name, ok := nearest(p, roots)
	if !ok {
		return source{}, dray.Errorf(dray.CodeDenied,
			"%s is not in a folder of the host that files may be taken from", quote(given)).
			WithHint("they come from the sandbox root, host.roots, and the workspace of the call where it is trusted")
	}
	src := source{
		input: given, display: p, path: p, root: root, name: name,
		target: path.Join(j.destination, path.Base(p)),
	}
	if rest, in := lexical.Rel(j.req.Workspace, p); in && j.req.Destination == "" {
		src.target = rest
	}
	return src, nil
}

// openHost opens a folder of the host; the sandbox root is the one that was checked.
func (j *syncJob) openHost(_ context.Context, root string) (dray.Files, error) {
	if j.s.root != nil && root == j.s.cfg.Root {
		return sharedFiles{j.s.root}, nil
	}
	return files.Open(root)
}

// sharedFiles are files that stay open for others.
type sharedFiles struct{ *files.Local }

// Close leaves them open.
func (sharedFiles) Close() error { return nil }
