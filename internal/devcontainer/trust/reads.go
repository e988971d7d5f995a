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
	if in.readsOnHost() {
		for path := range in.files {
			add(path)
			if in.isHardLinked(path) {
				hardLinked = path
			}
		}
		for path := range in.folders {
			add(path)
		}
	}
	return slices.Sorted(maps.Keys(paths)), hardLinked
}

// readsOnHost reports whether `up` reads files on the host other than the pinned configuration.
func (in *inputs) readsOnHost() bool {
	values := in.file.Values
	features, _ := values["features"].(map[string]any)
	for name := range features {
		if strings.HasPrefix(name, ".") || filepath.IsAbs(name) {
			return true
		}
	}
	return values["initializeCommand"] != nil || values["build"] != nil ||
		values["dockerFile"] != nil || in.file.IsCompose() ||
		in.files[in.loc.FeatureLock()] != "absent"
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
