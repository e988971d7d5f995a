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
// them between Approve and their use: files, directories, and the symlinks that lead to them. It
// is empty if the workspace is always trusted.
func (a Approval) Reads() []string { return a.reads }

// Root returns the directory that contains what `up` mounts and reads, with symlinks resolved.
func (a Approval) Root() string { return a.root }

// Starts reports whether `up` of this approval has made the container, as one of the services of
// its compose project or as that of the workspace.
func (a Approval) Starts(ctx context.Context, c ContainerInfo) bool {
	if _, ok := a.loc.Match(ctx, []ContainerInfo{c}); ok {
		return true
	}
	project := c.Label(LabelComposeProject)
	return project != "" && project == a.model.project
}

// bind adds what Reads, Root and Starts return.
func (f *trustInputs) bind(a *Approval) {
	a.root = f.loc.Workspace
	paths := map[string]bool{}
	if f.root != "" { // its content is used in the container only
		a.root = f.realRoot
		addHops(f.readlink, paths, f.root)
		delete(paths, a.root)
		paths[filepath.Dir(a.root)] = true
	}
	for _, source := range f.sources {
		for hop := range strings.SplitSeq(source, "\x00") {
			paths[filepath.Dir(hop)] = true
		}
	}
	if f.readOnHost() {
		for path := range f.files {
			addHops(f.readlink, paths, path)
			if f.hardLinked(path) {
				a.linked = path
			}
		}
		for path := range f.folders {
			addHops(f.readlink, paths, path)
		}
	}
	a.reads = slices.Sorted(maps.Keys(paths))
}

// readOnHost reports whether `up` reads files on the host other than the pinned configuration.
func (f *trustInputs) readOnHost() bool {
	values := f.file.values
	features, _ := values["features"].(entry)
	for name := range features {
		if strings.HasPrefix(name, ".") || filepath.IsAbs(name) {
			return true
		}
	}
	return values["initializeCommand"] != nil || values["build"] != nil ||
		values["dockerFile"] != nil || isCompose(values) || f.files[lockFile(f.loc.Config)] != "absent"
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
			hops := map[string]bool{}
			addHops(f.readlink, hops, path)
			f.sources[filepath.Clean(path)] = strings.Join(slices.Sorted(maps.Keys(hops)), "\x00")
		}
	}
}

// hardLinked reports whether a file has another name, by which a container that cannot reach this
// one could change it.
func (f *trustInputs) hardLinked(path string) bool {
	stats, err := f.dir.StatAll(f.ctx, []string{path})
	return err == nil && stats[0].Mode&syscall.S_IFMT == syscall.S_IFREG && stats[0].Nlink > 1
}

// readlinkFunc returns the target of a symlink, like os.Readlink.
type readlinkFunc = func(name string) (string, error)

func (f *trustInputs) readlink(name string) (string, error) { return f.dir.Readlink(f.ctx, name) }

// maxHops bounds the symlinks of a path, as the kernel does.
const maxHops = 40

// addHops adds what decides where a path leads to: each symlink on the way and the last path, which
// has none and need not exist.
func addHops(readlink readlinkFunc, paths map[string]bool, path string) {
	for range maxHops {
		link, target := firstLink(readlink, path)
		if link == "" {
			break
		}
		paths[link] = true
		path = resolvePath(filepath.Dir(link), target) + path[len(link):]
	}
	paths[filepath.Clean(path)] = true
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
