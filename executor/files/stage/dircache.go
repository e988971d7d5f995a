package stage

import (
	"strings"
	"syscall"
)

// maxCachedDirs is how many descriptors of folders are kept while contents arrive. Trees come
// folder by folder, so that few are in use at a time.
const maxCachedDirs = 128

// maxName is how long a path may be for the kernel. What goes deeper step by step nobody could open
// by its name.
const maxName = 4095

// dirCache are descriptors of the folders beneath one, by name: either got, each by its whole name
// from there, or held until the end.
type dirCache struct {
	resolver
	base    int
	open    map[string]int
	maxOpen int // of those that are got and not held: beyond so many all are let go and opened again
}

func newFolders(w resolver, base, most int) *dirCache {
	return &dirCache{resolver: w, base: base, open: map[string]int{}, maxOpen: most}
}

// get gives the descriptor of a folder, for use until the next call. The empty name is the base.
func (f *dirCache) get(name string) (int, error) {
	if name == "" {
		return f.base, nil
	}
	if fd, ok := f.open[name]; ok {
		return fd, nil
	}
	if len(f.open) >= f.maxOpen {
		f.close()
	}
	fd, err := f.folder(f.base, name)
	if err != nil {
		return -1, err
	}
	f.open[name] = fd
	return fd, nil
}

// hold opens a folder from the one above it, which is held too, so that all that are held are one
// hierarchy.
func (f *dirCache) hold(name string) (int, error) {
	if name == "" {
		return f.base, nil
	}
	if fd, ok := f.open[name]; ok {
		return fd, nil
	}
	above, base := split(name)
	parent, err := f.hold(above)
	if err != nil {
		return -1, err
	}
	fd, err := f.folder(parent, base)
	if err != nil {
		return -1, err
	}
	f.open[name] = fd
	return fd, nil
}

// verifyUnmoved fails if a folder that is held has another place by now.
func (f *dirCache) verifyUnmoved() error {
	for name, fd := range f.open {
		above, base := split(name)
		parent, err := f.hold(above)
		if err != nil {
			return opError("opening the folder", above, err)
		}
		now, err := f.folder(parent, base)
		if err != nil {
			return opError("opening the folder", name, err)
		}
		same := sameFile(fd, now)
		_ = syscall.Close(now)
		if !same {
			return invalid(name, "was exchanged for another folder meanwhile")
		}
	}
	return nil
}

func sameFile(a, b int) bool {
	var one, two syscall.Stat_t
	return syscall.Fstat(a, &one) == nil && syscall.Fstat(b, &two) == nil && one.Dev == two.Dev &&
		one.Ino == two.Ino
}

func (f *dirCache) close() {
	for name, fd := range f.open {
		_ = syscall.Close(fd)
		delete(f.open, name)
	}
}

// split gives the folder of a name, empty for the root's own, and what it is called there.
func split(name string) (folder, base string) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}

// checkName refuses what is not a clean name beneath a root, and names that a later recovery would
// take for a stage folder.
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.IndexByte(name, 0) >= 0 {
		return invalid(name[:min(len(name), 100)],
			"is empty, longer than a path may be, or has a NUL in it")
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == "." || part == "..":
			return invalid(name, "is not a clean name beneath a folder")
		case len(part) >= len(Prefix) && strings.EqualFold(part[:len(Prefix)], Prefix):
			return invalid(name, "is a name that only dray itself gives")
		}
	}
	return nil
}
