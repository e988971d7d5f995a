package devcontainer

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dray-dev/dray/internal/lexical"
)

// Reads returns the paths of the trust inputs that `up` uses on the host, so that nobody may change
// them between Approve and their use: files, directories, and the symlinks that lead to them. Files
// that compose has read for its model are among them, though `up` uses the model. It is empty if
// the workspace is always trusted.
func (a Approval) Reads() []string { return a.reads }

// Root returns the directory that contains what `up` mounts and reads, with symlinks resolved. It
// is empty if the workspace is always trusted.
func (a Approval) Root() string { return a.root }

// Owns reports whether a container is one of those that `up` of this approval creates or starts:
// that of the workspace, or a service of its compose project.
func (a Approval) Owns(ctx context.Context, c ContainerInfo) bool {
	if _, ok := a.loc.Match(ctx, []ContainerInfo{c}); ok {
		return true
	}
	project := c.Label(LabelComposeProject)
	return project != "" && project == a.model.project
}

// reads returns the paths for Approval.Reads, and one of the files that has a further hard link.
func (f *trustInputs) reads() (reads []string, hardLinked string) {
	paths := map[string]bool{}
	add := func(path string) {
		for _, p := range followSymlinks(f.readlink, path) {
			paths[p] = true
		}
	}
	if f.root != "" { // its content is used in the container only
		add(f.root)
		delete(paths, f.realRoot)
		paths[filepath.Dir(f.realRoot)] = true
	}
	for _, followed := range f.sources {
		for _, path := range followed {
			paths[filepath.Dir(path)] = true
		}
	}
	if f.readsOnHost() {
		for path := range f.files {
			add(path)
			if f.isHardLinked(path) {
				hardLinked = path
			}
		}
		for path := range f.folders {
			add(path)
		}
	}
	return slices.Sorted(maps.Keys(paths)), hardLinked
}

// readsOnHost reports whether `up` reads files on the host other than the pinned configuration.
func (f *trustInputs) readsOnHost() bool {
	values := f.file.values
	features, _ := values["features"].(entry)
	for name := range features {
		if strings.HasPrefix(name, ".") || filepath.IsAbs(name) {
			return true
		}
	}
	return values["initializeCommand"] != nil || values["build"] != nil ||
		values["dockerFile"] != nil || isCompose(values) ||
		f.files[featureLockPath(f.loc.Config)] != "absent"
}

// addSources adds the paths of the workspace among the words of mounts. The engine follows their
// symlinks when a container starts, and a tool can put a symlink to "/" where a directory was.
func (f *trustInputs) addSources(value any) {
	for _, word := range commandWords(value) {
		for path := range strings.SplitSeq(word, ":") {
			path, err := f.expand(path)
			if _, ok := lexical.Rel(f.loc.Workspace, path); err != nil || !ok {
				continue
			}
			followed := slices.Sorted(slices.Values(followSymlinks(f.readlink, path)))
			f.sources[filepath.Clean(path)] = slices.Compact(followed)
		}
	}
}

// isHardLinked reports whether a file has a further hard link, by which a container that cannot
// reach this path could change it.
func (f *trustInputs) isHardLinked(path string) bool {
	stats, err := f.dir.StatAll(f.ctx, []string{path})
	return err == nil && stats[0].Mode&syscall.S_IFMT == syscall.S_IFREG && stats[0].Nlink > 1
}

// readlinkFunc returns the target of a symlink, like os.Readlink.
type readlinkFunc = func(name string) (string, error)

func (f *trustInputs) readlink(name string) (string, error) { return f.dir.Readlink(f.ctx, name) }

// maxSymlinks bounds the symlinks of a path, as the kernel does.
const maxSymlinks = 40

// followSymlinks returns the symlinks that an absolute path leads through, and last the path
// without symlinks, which need not exist. A program that can replace one of them decides where the
// path leads.
func followSymlinks(readlink readlinkFunc, path string) []string {
	var followed []string
	for range maxSymlinks {
		link, target := firstLink(readlink, path)
		if link == "" {
			break
		}
		followed = append(followed, link)
		path = resolvePath(filepath.Dir(link), target) + path[len(link):]
	}
	return append(followed, filepath.Clean(path))
}

// firstLink returns the first symlink of an absolute path and its target.
func firstLink(readlink readlinkFunc, path string) (link, target string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if target, err := readlink(path[:i]); err == nil {
			return path[:i], target
		}
	}
	return "", ""
}
