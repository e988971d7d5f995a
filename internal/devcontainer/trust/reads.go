package trust

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dray-dev/dray/internal/lexical"
)

// reads returns the paths for Approval.Reads, and one of the files that has a further hard link.
func (in *inputs) reads() (reads []string, hardLinked string) {
	paths := map[string]bool{}
	add := func(path string) {
		for _, p := range lexical.FollowSymlinks(in.readlink, path) {
			paths[p] = true
		}
	}
	if in.root != "" { // its content is used in the container only
		add(in.root)
		delete(paths, in.realRoot)
		paths[filepath.Dir(in.realRoot)] = true
	}
	for _, followed := range in.sources {
		for _, path := range followed {
			paths[filepath.Dir(path)] = true
		}
	}
	for _, path := range in.readOnHost() {
		add(path)
		if in.isHardLinked(path) {
			hardLinked = path
		}
	}
	return slices.Sorted(maps.Keys(paths)), hardLinked
}

// readOnHost returns the files and directories that `up` reads on the host, besides the pinned
// configuration. Which files the programs read that it runs there is unknown, so it returns all
// inputs if it runs one.
func (in *inputs) readOnHost() []string {
	features, _ := in.file.Values["features"].(map[string]any)
	isLocal := func(name string) bool { return strings.HasPrefix(name, ".") || filepath.IsAbs(name) }
	switch {
	case in.file.Values["initializeCommand"] != nil, in.file.Values["build"] != nil,
		in.file.Values["dockerFile"] != nil, in.project.Builds(),
		slices.ContainsFunc(slices.Collect(maps.Keys(features)), isLocal),
		in.compose != nil && len(features) > 0, // it builds an image
		in.files[in.loc.FeatureLock()] != "absent":
		return slices.Concat(slices.Collect(maps.Keys(in.files)),
			slices.Collect(maps.Keys(in.folders)))
	case in.compose != nil:
		// compose reads its settings there; the other files are in the model of the project
		return []string{filepath.Join(in.loc.Workspace, ".env")}
	}
	return nil
}

// addSources adds the paths of the workspace among the words of mounts. The engine follows their
// symlinks when a container starts, and a tool can put a symlink to "/" where a directory was.
func (in *inputs) addSources(value any) {
	for _, word := range commandWords(value) {
		for path := range strings.SplitSeq(word, ":") {
			path, err := in.expand(path)
			if _, ok := lexical.Rel(in.loc.Workspace, path); err != nil || !ok {
				continue
			}
			followed := slices.Sorted(slices.Values(lexical.FollowSymlinks(in.readlink, path)))
			in.sources[filepath.Clean(path)] = slices.Compact(followed)
		}
	}
}

// isHardLinked reports whether a file has a further hard link, by which a container that cannot
// reach this path could change it.
func (in *inputs) isHardLinked(path string) bool {
	stats, err := in.dir.StatAll(in.ctx, []string{path})
	return err == nil && stats[0].Mode&syscall.S_IFMT == syscall.S_IFREG && stats[0].Nlink > 1
}

func (in *inputs) readlink(name string) (string, error) { return in.dir.Readlink(in.ctx, name) }
