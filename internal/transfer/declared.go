package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// FetchDeclared brings home what a tool or a call declared as its outputs (SY-11), when the call
// has ended. What the host sees through a mount, or because the call ran there, is named with the
// action "mounted" and not copied. What is refused, or was never written, is listed, and does not
// keep the rest. The report tells how it went: there is no error beside it.
func (s *Syncer) FetchDeclared(ctx context.Context, env dray.Environment,
	req Request,
) dray.SyncReport {
	req.SkipRefused = true
	report, _ := s.run(ctx, env, req, (*syncJob).fetchDeclared) // whose error the report has, too
	return report
}

func (j *syncJob) fetchDeclared(ctx context.Context, env dray.Environment) (dray.SyncReport,
	error,
) {
	j.declared = true
	j.findSources(j.req.Paths)
	j.dedupe()
	seen, err := j.mounted(ctx, env)
	report := j.empty(dray.SyncComplete)
	for _, f := range seen {
		report.Files, report.Bytes = append(report.Files, f), report.Bytes+f.Size
	}
	if err != nil || len(j.sources) == 0 {
		report.Refused = append([]dray.RefusedPath{}, j.refused...)
		return report, err
	}
	if err := j.checkFetchable(); err != nil {
		return report, err
	}
	copied, err := j.copyTree(ctx, env.Files, j.s.root, j.s.cfg.Root)
	if err != nil {
		return report, err
	}
	copied.Files, copied.Bytes = slices.Concat(report.Files, copied.Files), report.Bytes+copied.Bytes
	return copied, nil
}

// errDifferentFile says that the host does not see a source through the mount that should show it.
var errDifferentFile = errors.New("it is not the same file")

// mountedSource is a source that the host sees.
type mountedSource struct {
	source source
	// root is the host's folder of the mount, name the way from there.
	root, name string
}

// mounted names the sources that the host sees through a mount, and takes them from the list of
// those that are to be moved. A mount is believed when both sides find the same file there: with an
// engine on another machine the folder of that name here is another.
func (j *syncJob) mounted(ctx context.Context, env dray.Environment) ([]dray.SyncedFile, error) {
	var rest []source
	var list []dray.SyncedFile
	for _, s := range j.sources {
		seen, err := j.findOnHost(ctx, env, s)
		switch {
		case errors.Is(err, errDifferentFile):
			rest = append(rest, s)
			continue
		case errors.Is(err, fs.ErrNotExist):
			j.refuse(s.display, dray.Errorf(dray.CodeNotFound, "%s does not exist", quote(s.display)))
			continue
		case errors.Is(err, fs.ErrPermission):
			j.refuse(s.display, dray.Errorf(dray.CodeDenied, "the user that tools run as may not look at %s",
				quote(s.display)))
			continue
		case dray.CodeOf(err) == dray.CodePathInvalid: // of one that leads astray, which is no reason to lose the others
			j.refuse(s.display, dray.Errorf(dray.CodePathInvalid,
				"a link, or what is no folder, stands in %s", quote(s.display)))
			continue
		case err != nil:
			return list, err
		}
		found, err := j.readMounted(ctx, seen)
		list = append(list, found...)
		if err != nil {
			return list, err
		}
	}
	j.sources = rest
	return list, nil
}

// findOnHost finds a source on the host.
func (j *syncJob) findOnHost(ctx context.Context, env dray.Environment, s source) (mountedSource,
	error,
) {
	if j.paths.caps.Kind == dray.KindHost {
		return mountedSource{s, s.root, s.name}, nil
	}
	mount, rest, ok := j.paths.mount(s.path)
	if !ok {
		return mountedSource{}, errDifferentFile
	}
	there, err := stat(ctx, env.Files, s.root, s.name)
	if err != nil {
		return mountedSource{}, err
	}
	root, name := mount.Host, rest
	if info, err := os.Stat(root); err == nil && !info.IsDir() { // one file that is mounted
		root, name = path.Dir(root), path.Base(root)
	}
	ours, err := stat(ctx, openHostDir, root, name)
	if err != nil || ours.Type != there.Type || ours.Size != there.Size || ours.Mode != there.Mode ||
		!ours.Modified.Equal(there.Modified) {
		return mountedSource{}, errDifferentFile
	}
	return mountedSource{s, root, name}, nil
}

// stat looks at a file of one side.
func stat(ctx context.Context, open openFilesFunc, root, name string) (dray.FileInfo, error) {
	f, err := open(ctx, root)
	if err != nil {
		return dray.FileInfo{}, err
	}
	info, err := f.Stat(name)
	return info, errors.Join(err, f.Close())
}

// readMounted reads what a mount shows, beneath its folder on the host and through no link out of
// it.
func (j *syncJob) readMounted(ctx context.Context, s mountedSource) ([]dray.SyncedFile, error) {
	one := s.source
	one.name = s.name
	tree := &concatTree{
		ctx: ctx, limits: j.s.cfg.Limits,
		groups: []sourceGroup{{root: s.root, sources: []source{one}}}, open: openHostDir,
	}
	defer func() { _ = tree.Close() }()
	var list []dray.SyncedFile
	for {
		e, err := tree.Next()
		if atEnd(err) {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		from, shown, _ := one.at(e.relPath)
		if err := j.weigh(e, shown); err != nil {
			return list, err
		}
		switch {
		case e.Refused != nil:
			j.refuseEntry(one, shown, e.Refused)
		case e.Type == "file":
			sum, err := digest(tree)
			if err != nil {
				return list, err
			}
			list = append(list, dray.SyncedFile{
				Path: dray.PrintablePath(path.Join(s.root,
					e.Name)), Source: dray.PrintablePath(from), Size: e.Size, SHA256: sum,
				Mode: octal(e.Mode), Action: dray.FileMounted,
			})
		}
	}
}

// openHostDir opens a folder of the host.
func openHostDir(_ context.Context, root string) (dray.Files, error) { return files.Open(root) }

func digest(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
