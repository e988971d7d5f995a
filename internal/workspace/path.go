package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

// defaultPath is the PATH of helper programs if no element of the daemon's own is safe.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// SafePath returns the elements of a PATH in which nobody but root, the daemon's user and the owner
// of a directory can put a program, and the unsafe ones (EX-05). It drops
//
//   - empty and relative elements, which depend on the current directory: helper programs run in
//     workspaces,
//   - directories that everybody may write to, or that are beneath one where everybody may rename
//     entries,
//   - directories in one of the workspaces: tools in its container can write there,
//   - elements that do not exist, which are not reported: somebody might create them.
//
// Directories that a group may write to stay: /usr/local/bin is one on Debian.
func SafePath(value string, workspaces ...string) (safe string, unsafe []string) {
	var keep []string
	for _, dir := range filepath.SplitList(value) {
		switch _, err := os.Stat(dir); {
		case isSafeElement(dir, workspaces):
			keep = append(keep, dir)
		case err == nil || !filepath.IsAbs(dir):
			unsafe = append(unsafe, dir)
		}
	}
	if len(keep) == 0 {
		return defaultPath, unsafe
	}
	return strings.Join(keep, string(filepath.ListSeparator)), unsafe
}

func isSafeElement(dir string, workspaces []string) bool {
	if !filepath.IsAbs(dir) {
		return false
	}
	target, err := filepath.EvalSymlinks(dir)
	if err != nil || slices.ContainsFunc(workspaces, func(workspace string) bool {
		return lexical.Contains(workspace, dir) || lexical.Contains(workspace, target)
	}) {
		return false
	}
	return !isWritableByAll(target, true) && !isWritableByAll(dir, false)
}

// isWritableByAll reports whether everybody can replace entries of dir or a directory above it, or
// add some to dir itself. In a sticky directory everybody can only add.
func isWritableByAll(dir string, add bool) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			return true
		}
		if info.Mode().Perm()&0o002 != 0 && (add || info.Mode()&os.ModeSticky == 0) {
			return true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return false
		}
		dir, add = parent, false
	}
}
