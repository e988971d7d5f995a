package up

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/lexical"
)

// runDirs are the directories of one `up`, all below the state directory, where no other user can
// write. By default the CLI uses a directory below TMPDIR whose name everybody knows: a user who
// creates it first decides what the CLI reads back from it, such as mounts of compose services.
type runDirs struct {
	// run is removed after the `up`. It contains the file pinned, the trusted configuration, and tmp,
	// the TMPDIR.
	run, pinned, tmp string
	// data contains the trusted compose project and the compose files that the CLI adds to it. Labels
	// of the containers have their paths. The next `up` reads the files of the CLI again.
	data string
}

// makeDirs creates the directories of an `up`, and removes the data of a container that no longer
// exists or that is replaced.
func (o Options) makeDirs(replace bool) (runDirs, error) {
	d := runDirs{data: filepath.Join(o.State, "devcontainer", fileName(o.Approval.Location()))}
	var err error
	if d.run, err = helper.MakeRunDir(o.State); err == nil {
		d.pinned, d.tmp = filepath.Join(d.run, "devcontainer.json"), filepath.Join(d.run, "tmp")
		err = os.Mkdir(d.tmp, 0o700)
	}
	if err == nil && (o.Container.ID == "" || replace) {
		err = os.RemoveAll(d.data)
	}
	if err == nil {
		err = os.MkdirAll(d.data, 0o700)
	}
	if err == nil {
		err = o.Approval.WriteConfig(d.pinned, d.data)
	}
	if err != nil {
		return d, fmt.Errorf("create the directories of devcontainer up: %w", err)
	}
	return d, nil
}

// env returns the variables of the CLI with its own TMPDIR.
func (d runDirs) env(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return name == "TMPDIR" || name == "TMP" || name == "TEMP"
	})
	return append(env, "TMPDIR="+d.tmp)
}

// checkComposeFiles fails if another user could write a compose file that the CLI added for the
// container in an `up` without dray: the CLI would read it again.
func (o Options) checkComposeFiles() error {
	for path := range strings.SplitSeq(o.Container.Label(devcontainer.LabelComposeFiles), ",") {
		if !strings.Contains(path, "docker-compose.devcontainer.") {
			continue
		}
		// If its directory was removed, another user could create it.
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err == nil && isPrivate(path) {
			continue
		}
		return dray.Errorf(dray.CodeContainerFailed,
			"another user can change a compose file of container %s: %s", o.Container.Name, path).
			WithHint("remove the container with `docker rm -f %s`, and repeat", o.Container.Name)
	}
	return nil
}

// isPrivate reports whether only this user and root can change what a path names. The path need not
// exist.
func isPrivate(path string) bool {
	return !slices.ContainsFunc(lexical.FollowSymlinks(os.Readlink, path), func(p string) bool {
		return !isPrivateEntry(p) || !areDirsPrivate(p)
	})
}

// isPrivateEntry reports whether other users can neither write to a file nor create it. Directories
// above its own are not examined.
func isPrivateEntry(path string) bool {
	var st syscall.Stat_t
	if syscall.Lstat(path, &st) == nil {
		return isOurs(st) && (st.Mode&syscall.S_IFMT == syscall.S_IFLNK || !isShared(st))
	}
	// in /tmp nobody else can replace a file, but everybody can create one
	return syscall.Lstat(filepath.Dir(path), &st) == nil && !isShared(st)
}

// areDirsPrivate reports whether no other user can replace a directory above a path.
func areDirsPrivate(path string) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		var st syscall.Stat_t
		if syscall.Lstat(dir, &st) != nil || !isOurs(st) ||
			isShared(st) && st.Mode&syscall.S_ISVTX == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

// isOurs reports whether a file belongs to this user or root.
func isOurs(st syscall.Stat_t) bool {
	return st.Uid == 0 || int64(st.Uid) == int64(os.Getuid())
}

// isShared reports whether other users can write to a file.
func isShared(st syscall.Stat_t) bool { return st.Mode&0o022 != 0 }

// fileName returns a name for files that belong to the location.
func fileName(l devcontainer.Location) string {
	sum := sha256.Sum256([]byte(l.Workspace + "\x00" + l.Config))
	return hex.EncodeToString(sum[:16])
}
