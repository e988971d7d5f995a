package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// staleKillTimeout bounds how long what is left of one owner may take to end.
const staleKillTimeout = 2 * time.Second

// RemoveStale ends what owners that are gone left in the folder of a group, and removes their trees. The trees of those that live are locked,
// in whichever pid namespace they are, and not touched.
func RemoveStale(folder string) {
	trees, _ := filepath.Glob(filepath.Join(folder, dirPrefix+"*")) // the pattern is well-formed
	for _, dir := range trees {
		owner, err := lock(dir)
		if err != nil {
			continue
		}
		killStale(dir)
		_ = owner.Close()
	}
}

// killStale ends what is left in a tree, but for what calls were told to keep.
func killStale(dir string) {
	groups, err := openGroup(dir, filepath.Join(dir, procs))
	if err != nil {
		return
	}
	defer groups.Close()
	groups.KillAllAndWait(staleKillTimeout, func() ([]int, bool) { return pidsBelow(dir) })
	_ = remove(dir) // what is stuck in the kernel is tried again next time
}

// remove removes a group with those below it, the deepest first: the kernel takes one only when it is empty.
func remove(dir string) error {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	var failures []error
	for _, d := range slices.Backward(dirs) {
		if err := rmdir(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("removing groups: %w", errors.Join(failures...))
	}
	return nil
}

// rmdir is not os.Remove, which would try to unlink first.
func rmdir(dir string) error {
	if err := syscall.Rmdir(dir); err != nil {
		return &os.PathError{Op: "rmdir", Path: strings.TrimSuffix(dir, "/"), Err: err}
	}
	return nil
}
