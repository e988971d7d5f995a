package transfer

import (
	"cmp"
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/pathmapper"
)

// source is one file or directory to copy.
type source struct {
	// input is the path that the caller wrote; display is the path in the report: the caller's own.
	input, display string
	// path is its absolute path on its side: name beneath the directory root.
	path, root, name string
	// target is its path relative to the directory that is written to; "." is that directory.
	target string
	// order is its index in the request.
	order int
}

// at returns the path of an entry on its side, in the report, and at the target. relPath is
// relative to the source.
func (s source) at(relPath string) (from, display, target string) {
	return path.Join(s.path, relPath), path.Join(s.display, relPath), path.Join(s.target, relPath)
}

// findSources finds the sources in a container (SY-02), and refuses those that may not be copied.
func (j *syncJob) findSources() {
	roots := append(j.paths.roots(j.s.cfg.Sources), j.paths.configuredDirs(j.s.cfg.Root)...)
	for i, input := range j.req.Paths {
		src, err := j.source(input, roots)
		j.addSource(i, src, err)
	}
}

func (j *syncJob) addSource(order int, src source, err error) {
	if err != nil {
		j.refuse(src.input, err)
		return
	}
	src.order = order
	j.sources = append(j.sources, src)
}

func (j *syncJob) source(input string, roots []string) (source, error) {
	src := source{input: input, display: path.Clean(input)}
	p, err := j.paths.inContainer(input)
	if err != nil {
		return src, err
	}
	root, name, ok := nearest(p, roots)
	if !ok {
		return src, dray.Errorf(dray.CodeDenied, "%s is not in a directory that may be copied from",
			quote(input)).
			WithHint("use the workspace folder, a bind mount, /tmp, or a directory of sandbox.sources")
	}
	src.path, src.root, src.name = p, root, name
	if !path.IsAbs(input) {
		src.display = j.paths.display(p)
	}
	src.target, err = j.target(p)
	return src, err
}

// target returns the target of a path of the container beneath the sandbox root.
func (j *syncJob) target(p string) (string, error) {
	if j.req.Destination == "" {
		if target, ok := j.paths.configured(p, j.s.cfg.Root); ok {
			return target, nil
		}
	}
	if j.declared {
		return path.Join(j.req.ID, j.paths.relToWorkspace(p)), nil
	}
	if p == "/" {
		return "", invalid("the whole file system has no base name").WithHint("name directories in it")
	}
	return path.Join(j.destination, path.Base(p)), nil
}

// findHostSources finds the sources on the host.
func (j *syncJob) findHostSources(ctx context.Context) {
	roots := slices.Clone(j.s.cfg.HostRoots)
	if j.s.root != nil {
		roots = append(roots, j.s.cfg.Root)
	}
	if w := j.req.Workspace; w != "" && j.s.cfg.Trusted != nil && j.s.cfg.Trusted(ctx, w) {
		roots = append(roots, w)
	}
	for i, input := range j.req.Paths {
		src, err := j.hostSource(input, roots)
		if err == nil {
			if why := j.checkTarget(src.target, true); why != nil {
				err = why
			}
		}
		j.addSource(i, src, err)
	}
}

func (j *syncJob) hostSource(input string, roots []string) (source, error) {
	src := source{input: input}
	if err := checkSource(input); err != nil {
		return src, err
	}
	if _, err := j.paths.withConfigured.ToContainer(input); err != nil { // a Windows path
		return src, err
	}
	p, err := absolute(input, j.req.Workspace)
	if err != nil {
		return src, err
	}
	root, name, ok := nearest(p, roots)
	if !ok {
		return src, dray.Errorf(dray.CodeDenied,
			"%s is not in a directory of the host that may be copied from", quote(input)).
			WithHint("use the sandbox root, a directory of host.roots, " +
				"or the workspace of the call if it is trusted")
	}
	src.display, src.path, src.root, src.name = p, p, root, name
	src.target = path.Join(j.destination, path.Base(p))
	if rest, in := lexical.Rel(j.req.Workspace, p); in && j.req.Destination == "" {
		src.target = rest
	}
	return src, nil
}

// dedupe removes the sources that are inside another one, and refuses those whose target is inside
// the target of another one.
func (j *syncJob) dedupe() {
	var kept []source
	byTarget := func(a, b source) int { return cmp.Compare(a.target, b.target) }
	for _, s := range slices.SortedStableFunc(slices.Values(j.sources), byTarget) {
		i := slices.IndexFunc(kept, func(k source) bool { return lexical.Contains(k.target, s.target) })
		if i < 0 {
			kept = append(kept, s)
			continue
		}
		rest, _ := lexical.Rel(kept[i].target, s.target)
		if path.Join(kept[i].path, rest) != s.path {
			j.refuse(s.input, invalid("%s would be written to the target of %s", quote(s.input),
				quote(kept[i].input)).
				WithHint("copy them one at a time, each to a destination of its own"))
		}
	}
	slices.SortFunc(kept, func(a, b source) int { return cmp.Compare(a.order, b.order) })
	j.sources = kept
}

// sourceGroup has sources beneath one directory, none of which is inside another.
type sourceGroup struct {
	root    string
	sources []source
}

// groups groups the sources by the directory beneath which they are opened.
func groups(sources []source) []sourceGroup {
	var all []sourceGroup
	for _, s := range sources {
		i := slices.IndexFunc(all, func(g sourceGroup) bool { return g.root == s.root && g.accepts(s) })
		if i < 0 {
			i, all = len(all), append(all, sourceGroup{root: s.root})
		}
		all[i].sources = append(all[i].sources, s)
	}
	return all
}

func (g sourceGroup) accepts(s source) bool {
	return !slices.ContainsFunc(g.sources, func(o source) bool {
		return lexical.Contains(o.path, s.path) || lexical.Contains(s.path, o.path)
	})
}

// of returns the source of an entry, and the path of the entry relative to it.
func (g sourceGroup) of(name string) (s source, relPath string, ok bool) {
	for _, s := range g.sources {
		if rest, ok := lexical.Rel(s.name, name); ok {
			return s, rest, true
		}
	}
	return source{}, "", false
}

func (g sourceGroup) names() []string {
	names := make([]string, len(g.sources))
	for i, s := range g.sources {
		names[i] = s.name
	}
	return names
}

// pathResolver converts paths between the host and one container.
type pathResolver struct {
	caps                       dray.Capabilities
	withConfigured, mountsOnly *pathmapper.Mapper // with configured mappings, and without
	dir                        string             // of relative paths; may be empty
	workspace                  string             // the workspace folder on the host, or empty
	containerOnly              bool               // a caller's paths are never the host's
}

func newPathResolver(caps dray.Capabilities, req Request) (pathResolver, error) {
	p := pathResolver{
		caps: caps, dir: req.Dir, workspace: req.Workspace, containerOnly: req.ContainerPaths,
	}
	mounts := slices.DeleteFunc(slices.Clone(caps.Mounts),
		func(m dray.Mount) bool { return m.Configured })
	var err error
	if p.withConfigured, _, err = pathmapper.FromMounts(caps.Mounts, nil); err == nil {
		p.mountsOnly, _, err = pathmapper.FromMounts(mounts, nil)
	}
	return p, err
}

// inContainer returns the container's path for a path that a caller wrote: one of the host in a
// mount, in a configured mapping or in the workspace, or one of the container.
func (p pathResolver) inContainer(input string) (string, error) {
	if err := checkSource(input); err != nil {
		return "", err
	}
	t, err := p.withConfigured.ToContainer(input) // fails for a Windows path
	if err != nil {
		return "", err
	}
	if p.containerOnly {
		return absolute(input, p.dir)
	}
	if t.Mapped {
		return t.Path, nil
	}
	if rest, ok := lexical.Rel(p.workspace, input); ok && p.caps.WorkspaceFolder != "" {
		return path.Join(p.caps.WorkspaceFolder, rest), nil
	}
	return absolute(input, p.dir)
}

// absolute returns an absolute path. It fails for a relative one if dir is empty.
func absolute(input, dir string) (string, error) {
	switch {
	case path.IsAbs(input):
		return path.Clean(input), nil
	case dir == "":
		return "", invalid("relative path %s cannot be used without a workspace", quote(input)).
			WithHint("use an absolute path")
	}
	return path.Join(dir, input), nil
}

// display returns the host's path of a container's path if there is one, else the path itself.
func (p pathResolver) display(inContainer string) string {
	if t, err := p.mountsOnly.ToHost(inContainer); err == nil && t.Mapped {
		return t.Path
	}
	return inContainer
}

// mount returns the bind mount of a container's path, and the path relative to it.
func (p pathResolver) mount(inContainer string) (m dray.Mount, rest string, ok bool) {
	t, err := p.mountsOnly.ToHost(inContainer)
	if err != nil || !t.Mapped {
		return dray.Mount{}, "", false
	}
	for _, m := range p.caps.Mounts {
		rest, ok := lexical.Rel(m.Container, inContainer)
		if ok && !m.Configured && m.Host != "" && path.Join(m.Host, rest) == t.Path {
			return m, rest, true
		}
	}
	return dray.Mount{}, "", false
}

// roots returns the directories of the container that may be copied from (SY-02).
func (p pathResolver) roots(configured []string) []string {
	roots := []string{"/tmp"}
	// a workspace of "/" would allow everything
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

// configuredDirs returns the directories of the container with a configured mapping beneath a
// directory of the host.
func (p pathResolver) configuredDirs(root string) []string {
	var dirs []string
	for _, m := range p.caps.Mounts {
		if m.Configured && lexical.Contains(root, m.Host) {
			dirs = append(dirs, m.Container)
		}
	}
	return dirs
}

// configured returns the path beneath root to which a configured mapping, and no mount, leads.
func (p pathResolver) configured(inContainer, root string) (target string, ok bool) {
	if t, err := p.mountsOnly.ToHost(inContainer); err != nil || t.Mapped {
		return "", false
	}
	t, err := p.withConfigured.ToHost(inContainer)
	if err != nil || !t.Mapped {
		return "", false
	}
	target, ok = lexical.Rel(root, t.Path)
	return target, ok && target != "."
}

// relToWorkspace returns a path relative to the workspace folder, or else to "/".
func (p pathResolver) relToWorkspace(inContainer string) string {
	if rest, ok := lexical.Rel(p.caps.WorkspaceFolder, inContainer); ok {
		return rest
	}
	return path.Join(".", inContainer)
}

// nearest returns the longest of the directories that contain a path.
func nearest(p string, dirs []string) (dir, rest string, ok bool) {
	for _, d := range dirs {
		if r, in := lexical.Rel(d, p); in && (!ok || len(d) > len(dir)) {
			dir, rest, ok = d, r, true
		}
	}
	return dir, rest, ok
}

// checkSource fails for a path that is not clean. A slash at the end is allowed.
func checkSource(input string) error {
	trimmed := input
	if len(input) > 1 {
		trimmed = strings.TrimSuffix(input, "/")
	}
	switch {
	case input == "":
		return invalid("a path is empty").WithHint("name a file or directory")
	case strings.IndexByte(input, 0) >= 0:
		return invalid("%s contains NUL", quote(input)).WithHint("remove the NUL")
	case slices.Contains(strings.Split(input, "/"), ".."):
		return invalid(`%s has a ".." segment`, quote(input)).
			WithHint("use a path without ..: it may lead elsewhere through symlinks")
	case path.Clean(trimmed) != trimmed:
		return invalid("%s is not a clean path", quote(input)).
			WithHint("use %s", quote(path.Clean(input)))
	}
	return nil
}

// checkDestination returns a clean relative path, "." for an empty destination.
func checkDestination(destination, dir string) (string, error) {
	if destination == "" {
		return ".", nil
	}
	trimmed := strings.TrimSuffix(destination, "/")
	if strings.IndexByte(destination, 0) >= 0 || !filepath.IsLocal(trimmed) ||
		path.Clean(trimmed) != trimmed {
		return "", invalid("the destination %s is not a clean path relative to %s", quote(destination),
			quote(dir)).
			WithHint("name a directory in there, without a slash at the beginning and without ..")
	}
	return trimmed, nil
}

func invalid(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodePathInvalid, format, args...)
}
