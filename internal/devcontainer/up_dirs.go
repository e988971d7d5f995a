package devcontainer

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
)

// upDirs are the directories of one `up`, all below the state directory, where no other user can
// write. By default the CLI uses a directory below TMPDIR whose name everybody knows: whoever
// creates it first decides what the CLI reads back from it, such as mounts of compose services.
type upDirs struct {
	// run is removed after the `up`. It has the trusted configuration and the TMPDIR.
	run, pinned, tmp string
	// data has the trusted compose project and the compose files that the CLI adds. The labels of the
	// container name them, and the next `up` reads the latter again.
	data string
}

// makeDirs creates the directories of an `up`. Files for a container that no longer exists are
// removed.
func (o UpOptions) makeDirs(replace bool) (upDirs, error) {
	loc := o.Approval.loc
	sum := sha256.Sum256([]byte(loc.Workspace + "\x00" + loc.Config))
	d := upDirs{data: filepath.Join(o.State, "devcontainer", hex.EncodeToString(sum[:16]))}
	parent := filepath.Join(o.State, "run")
	err := os.MkdirAll(parent, 0o700)
	if err == nil {
		d.run, err = os.MkdirTemp(parent, "up-")
		d.pinned, d.tmp = filepath.Join(d.run, "devcontainer.json"), filepath.Join(d.run, "tmp")
	}
	if err == nil {
		err = os.Mkdir(d.tmp, 0o700)
	}
	if err == nil && (o.Container.ID == "" || replace) {
		err = os.RemoveAll(d.data)
	}
	if err == nil {
		err = os.MkdirAll(d.data, 0o700)
	}
	if err == nil {
		err = o.Approval.write(d.pinned, d.data)
	}
	if err != nil {
		return d, fmt.Errorf("create the directories of devcontainer up: %w", err)
	}
	return d, nil
}

// env returns the variables of the CLI with its own TMPDIR.
func (d upDirs) env(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return name == "TMPDIR" || name == "TMP" || name == "TEMP"
	})
	return append(env, "TMPDIR="+d.tmp)
}

// checkComposeFiles refuses a container whose compose files of the CLI, from an `up` without dray,
// are where another user could write them: the CLI would read them again.
func (o UpOptions) checkComposeFiles() error {
	for path := range strings.SplitSeq(o.Container.Label(labelComposeFiles), ",") {
		if !strings.Contains(path, "docker-compose.devcontainer.") {
			continue
		}
		// Where it was removed, nobody else may create it.
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
	hops := map[string]bool{}
	addHops(os.Readlink, hops, path)
	for hop := range hops {
		var st syscall.Stat_t
		err := syscall.Lstat(hop, &st)
		if err == nil && (!isOurs(st) || st.Mode&syscall.S_IFMT != syscall.S_IFLNK && isShared(st)) {
			return false
		}
		// in /tmp nobody else can replace it, but whoever comes first creates it
		if err != nil && (syscall.Lstat(filepath.Dir(hop), &st) != nil || isShared(st)) {
			return false
		}
		for dir := filepath.Dir(hop); ; dir = filepath.Dir(dir) {
			if syscall.Lstat(dir, &st) != nil || !isOurs(st) ||
				isShared(st) && st.Mode&syscall.S_ISVTX == 0 {
				return false
			}
			if dir == "/" {
				break
			}
		}
	}
	return true
}

// isOurs reports whether a file belongs to this user or root.
func isOurs(st syscall.Stat_t) bool {
	return st.Uid == 0 || int64(st.Uid) == int64(os.Getuid())
}

// isShared reports whether other users can write to a file.
func isShared(st syscall.Stat_t) bool { return st.Mode&0o022 != 0 }
