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

// FetchDeclared copies the declared outputs of a call that has ended (SY-11). Files in mounts, and
// those of a call on the host, are listed with the action "mounted" and not copied. Refused and
// missing files are listed and do not end the sync. The report has the error, if any.
func (s *Syncer) FetchDeclared(
	ctx context.Context, env dray.Environment, req Request,
) dray.SyncReport {
	req.SkipRefused = true
	report, _ := s.run(ctx, env, req, (*syncJob).fetchDeclared)
	return report
}

func (j *syncJob) fetchDeclared(
	ctx context.Context, env dray.Environment,
) (dray.SyncReport, error) {
	j.declared = true
	j.findSources()
	j.refuseShared()
	j.dedupe()
	mounted, err := j.listMounted(ctx, env)
	j.addResultsDir()
	report := j.emptyReport(dray.SyncComplete)
	for _, f := range mounted {
		report.Files, report.Bytes = append(report.Files, f), report.Bytes+f.Size
	}
	if err != nil || len(j.sources) == 0 {
		return report, err
	}
	if err := j.checkRootUsable(); err != nil {
		return report, err
	}
	copied, err := j.copyTree(ctx, env.Files, j.s.root, j.s.cfg.Root)
	if err != nil {
		return report, err
	}
	copied.Files, copied.Bytes = slices.Concat(report.Files, copied.Files), report.Bytes+copied.Bytes
	return copied, nil
}

// errDifferentFile is returned if a source is not visible on the host.
var errDifferentFile = errors.New("not the same file")

// listMounted lists the files of the sources that are visible on the host, and removes those from
// the sources to copy.
func (j *syncJob) listMounted(
	ctx context.Context, env dray.Environment,
) ([]dray.SyncedFile, error) {
	var rest []source
	var list []dray.SyncedFile
	for _, s := range j.sources {
		onHost, err := j.findOnHost(ctx, env, s)
		switch name := quote(s.display); {
		case errors.Is(err, errDifferentFile):
			rest = append(rest, s)
			continue
		case errors.Is(err, fs.ErrNotExist):
			j.addMissing(s)
			j.refuse(s.display, dray.Errorf(dray.CodeNotFound, "%s does not exist", name))
			continue
		case errors.Is(err, fs.ErrPermission):
			j.refuse(s.display, dray.Errorf(dray.CodeDenied, "the user that tools run as may not stat %s",
				name))
			continue
		case dray.CodeOf(err) == dray.CodePathInvalid:
			j.refuse(s.display, dray.Errorf(dray.CodePathInvalid,
				"%s leads through a symlink, or through a file that is no directory", name))
			continue
		case err != nil:
			return list, err
		}
		found, err := j.readMounted(ctx, onHost)
		list = append(list, found...)
		if err != nil {
			return list, err
		}
	}
	j.sources = rest
	return list, nil
}

// findOnHost returns a source by its directory and name on the host, in a mount. It compares the
// file on both sides: if the engine runs on another machine, the host's path is another file.
func (j *syncJob) findOnHost(ctx context.Context, env dray.Environment, s source) (source, error) {
	if j.paths.caps.Kind == dray.KindHost {
		return s, nil
	}
	mount, name, ok := j.paths.mount(s.path)
	if !ok {
		return s, errDifferentFile
	}
	inside, err := stat(ctx, env.Files, s.root, s.name)
	if err != nil {
		return s, err
	}
	root := mount.Host
	if info, err := os.Stat(root); err == nil && !info.IsDir() { // a mounted file
		root, name = path.Dir(root), path.Base(root)
	}
	onHost, err := stat(ctx, openHostDir, root, name)
	if err != nil || onHost.Type != inside.Type || onHost.Size != inside.Size ||
		onHost.Mode != inside.Mode || !onHost.Modified.Equal(inside.Modified) {
		return s, errDifferentFile
	}
	s.root, s.name = root, name
	return s, nil
}

func stat(ctx context.Context, open openFilesFunc, root, name string) (dray.FileInfo, error) {
	f, err := open(ctx, root)
	if err != nil {
		return dray.FileInfo{}, err
	}
	info, err := f.Stat(name)
	return info, errors.Join(err, f.Close())
}

// readMounted reads the files of a source in a mount. No symlink leads out of the mount.
func (j *syncJob) readMounted(ctx context.Context, s source) ([]dray.SyncedFile, error) {
	tree := &concatTree{
		ctx: ctx, limits: j.s.cfg.Limits, open: openHostDir,
		groups: []sourceGroup{{root: s.root, sources: []source{s}}},
	}
	defer func() { _ = tree.Close() }()
	var list []dray.SyncedFile
	for {
		e, err := tree.Next()
		if isEOF(err) {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		from, display, _ := s.at(e.relPath)
		if err := j.checkLimits(e, display); err != nil {
			return list, err
		}
		if e.Refused != nil {
			j.refuseInTree(e, display, e.Refused)
			continue
		}
		if e.Type != "file" {
			continue
		}
		if err := j.addToManifest(from, path.Join(s.root, e.Name)); err != nil {
			return list, err
		}
		h := sha256.New()
		if _, err := io.Copy(h, tree); err != nil {
			return list, err
		}
		list = append(list, dray.SyncedFile{
			Path:   dray.PrintablePath(path.Join(s.root, e.Name)),
			Source: dray.PrintablePath(from), Size: e.Size, SHA256: hex.EncodeToString(h.Sum(nil)),
			Mode: octal(e.Mode), Action: dray.FileMounted,
		})
	}
}

func openHostDir(_ context.Context, root string) (dray.Files, error) { return files.Open(root) }
