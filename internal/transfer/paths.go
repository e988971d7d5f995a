package transfer

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/pathmapper"
)

// pathResolver are the names of one container's folders on both sides.
type pathResolver struct {
	caps                       dray.Capabilities
	withConfigured, mountsOnly *pathmapper.Mapper // with the configured mappings, and by mounts alone
	// where relative paths begin; empty where they are none of a workspace
	dir string
	// the host's name of the workspace folder; may be empty
	workspace string
}

func newPaths(caps dray.Capabilities, dir, workspace string) (pathResolver, error) {
	p := pathResolver{caps: caps, dir: dir, workspace: workspace}
	var mounts []dray.Mount
	for _, m := range caps.Mounts {
		if !m.Configured {
			mounts = append(mounts, m)
		}
	}
	var err error
	if p.withConfigured, _, err = pathmapper.FromMounts(caps.Mounts, nil); err == nil {
		p.mountsOnly, _, err = pathmapper.FromMounts(mounts, nil)
	}
	return p, err
}

// inContainer gives the container's name of a path that a caller wrote: one of the host's that a
// mount, a configured mapping or the same step below the workspace folder leads to, or the
// container's own.
func (p pathResolver) inContainer(given string) (string, error) {
	if err := checkSource(given); err != nil {
		return "", err
	}
	t, err := p.withConfigured.ToContainer(given) // which refuses Windows paths, too
	if err != nil {
		return "", err
	}
	if t.Mapped {
		return t.Path, nil
	}
	if rest, ok := lexical.Rel(p.workspace, given); ok && p.caps.WorkspaceFolder != "" {
		return path.Join(p.caps.WorkspaceFolder, rest), nil
	}
	return absolute(given, p.dir)
}

// absolute gives the file that a path means where relative ones begin at a folder, which is empty
// where there is none.
func absolute(given, dir string) (string, error) {
	switch {
	case path.IsAbs(given):
		return path.Clean(given), nil
	case dir == "":
		return "", invalid("%s is relative, and the call has no workspace that it could begin at",
			quote(given)).WithHint("write it from / on")
	}
	return path.Join(dir, given), nil
}

// display gives the name of a container's path that the caller knows: the host's, where it has one.
func (p pathResolver) display(inContainer string) string {
	if t, err := p.mountsOnly.ToHost(inContainer); err == nil && t.Mapped {
		return t.Path
	}
	return inContainer
}

// mount gives the bind mount that shows a path of the container, and the path below it, "." for the
// mount itself.
func (p pathResolver) mount(inContainer string) (m dray.Mount, rest string, ok bool) {
	t, err := p.mountsOnly.ToHost(inContainer)
	if err != nil || !t.Mapped {
		return dray.Mount{}, "", false
	}
	for _, one := range p.caps.Mounts {
		if one.Configured || one.Host == "" {
			continue
		}
		if rest, ok := lexical.Rel(one.Container, inContainer); ok && path.Join(one.Host, rest) == t.Path {
			return one, rest, true
		}
	}
	return dray.Mount{}, "", false
}

// roots are the folders of the container that files may come from (SY-02).
func (p pathResolver) roots(configured []string) []string {
	roots := []string{"/tmp"}
	// a workspace of everything would allow everything
	if p.caps.WorkspaceFolder != "/" && p.caps.WorkspaceFolder != "" {
		roots = append(roots, p.caps.WorkspaceFolder)
	}
	for _, m := range p.caps.Mounts {
		if m.Host != "" && !m.Configured {
			roots = append(roots, m.Container)
		}
	}
	return append(roots, configured...)
}

// configuredDirs are the folders of the container that configuration maps to beneath a folder of
// the host: whoever configured that wants them there.
func (p pathResolver) configuredDirs(root string) []string {
	var folders []string
	for _, m := range p.caps.Mounts {
		if _, ok := lexical.Rel(root, m.Host); ok && m.Configured {
			folders = append(folders, m.Container)
		}
	}
	return folders
}

// configured gives where a configured mapping, and no mount, leads to beneath a root of the host.
func (p pathResolver) configured(inContainer, root string) (lands string, ok bool) {
	if t, err := p.mountsOnly.ToHost(inContainer); err != nil || t.Mapped {
		return "", false
	}
	t, err := p.withConfigured.ToHost(inContainer)
	if err != nil || !t.Mapped {
		return "", false
	}
	lands, ok = lexical.Rel(root, t.Path)
	return lands, ok && lands != "."
}

// relToWorkspace is the way to a path below the workspace folder, else from the top.
func (p pathResolver) relToWorkspace(inContainer string) string {
	if rest, ok := lexical.Rel(p.caps.WorkspaceFolder, inContainer); ok {
		return rest
	}
	return path.Join(".", inContainer)
}

// nearest gives the longest of some folders that a path lies in.
func nearest(p string, folders []string) (folder, rest string, ok bool) {
	for _, f := range folders {
		if r, in := lexical.Rel(f, p); in && (!ok || len(f) > len(folder)) {
			folder, rest, ok = f, r, true
		}
	}
	return folder, rest, ok
}

// checkSource refuses what is no clean path. A slash at the end says that a folder is meant, and is
// let be.
func checkSource(given string) error {
	trimmed := given
	if len(given) > 1 {
		trimmed = strings.TrimSuffix(given, "/")
	}
	switch {
	case given == "":
		return invalid("a path is empty").WithHint("name a file or folder")
	case strings.IndexByte(given, 0) >= 0:
		return invalid("%s has a NUL byte", quote(given)).
			WithHint("no file can have that name: remove the NUL")
	case slices.Contains(strings.Split(given, "/"), ".."):
		return invalid(`%s has a ".." segment`, quote(given)).WithHint("write the path that is meant without ..: links decide where .. leads")
	case path.Clean(trimmed) != trimmed:
		return invalid("%s is not a clean path", quote(given)).
			WithHint("write it as %s", quote(path.Clean(given)))
	}
	return nil
}

// checkDestination gives a clean name of a folder beneath the one that files come to, "." for that
// one itself.
func checkDestination(given, folder string) (string, error) {
	if given == "" {
		return ".", nil
	}
	trimmed := strings.TrimSuffix(given, "/")
	if strings.IndexByte(given, 0) >= 0 || !filepath.IsLocal(trimmed) ||
		path.Clean(trimmed) != trimmed {
		return "", invalid("the destination %s is not a clean path relative to %s", quote(given),
			quote(folder)).
			WithHint("name a folder in there, without a slash at the beginning and without ..")
	}
	return trimmed, nil
}

func invalid(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodePathInvalid, format, args...)
}
