package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
)

// maxUserFile bounds what is read of /etc/passwd and /etc/group: they are the container's, and may be anything.
const maxUserFile = 16 << 20

// user is who a process becomes.
type user struct {
	uid, gid    uint32
	groups      []uint32
	home, shell string
}

// lookupUser resolves a user as the engine does for an exec, from the container's files as they are now:
//
//	""            uid 0
//	name, uid     the entry's group, and every group that lists the name
//	name:group    that group alone
//	unknown uid   gid 0, home "/"
//	unknown name  an error
func lookupUser(arg string) (user, error) {
	name, group, hasGroup := strings.Cut(arg, ":")
	u, entry, err := findUser(name)
	if err != nil {
		return user{}, err
	}
	switch {
	case hasGroup && group != "":
		if u.gid, err = findGroup(group); err != nil {
			return user{}, err
		}
	case entry != "":
		u.groups = groupsOf(entry)
	}
	if !slices.Contains(u.groups, u.gid) {
		u.groups = slices.Insert(u.groups, 0, u.gid)
	}
	return u, nil
}

// findUser gives the user and the name of its entry, empty where there is none.
func findUser(name string) (user, string, error) {
	if name == "" {
		name = "0"
	}
	number, isNumber := parseID(name)
	var found *user
	var entry string
	err := eachLine("/etc/passwd", func(f []string) bool {
		if len(f) < 7 || (f[0] != name && (!isNumber || f[2] != name)) {
			return true
		}
		uid, ok1 := parseID(f[2])
		gid, ok2 := parseID(f[3])
		if ok1 && ok2 {
			found, entry = &user{uid: uid, gid: gid, home: f[5], shell: f[6]}, f[0]
		}
		return found == nil
	})
	switch {
	case err != nil:
		return user{}, "", err
	case found != nil:
		if found.home == "" {
			found.home = "/"
		}
		return *found, entry, nil
	case isNumber:
		return user{uid: number, home: "/"}, "", nil
	default:
		return user{}, "", dray.Errorf(dray.CodeBadUser, "the container has no user %q", name)
	}
}

func findGroup(name string) (uint32, error) {
	number, isNumber := parseID(name)
	gid, found := number, false
	err := eachLine("/etc/group", func(f []string) bool {
		if len(f) < 3 || (f[0] != name && (!isNumber || f[2] != name)) {
			return true
		}
		n, ok := parseID(f[2])
		if ok {
			gid, found = n, true
		}
		return !found
	})
	if err == nil && !found && !isNumber {
		err = dray.Errorf(dray.CodeBadUser, "the container has no group %q", name)
	}
	return gid, err
}

func groupsOf(name string) []uint32 {
	var groups []uint32
	_ = eachLine("/etc/group", func(f []string) bool { // no file, no groups: as the engine sees it
		if len(f) >= 4 && slices.Contains(strings.Split(f[3], ","), name) {
			if gid, ok := parseID(f[2]); ok && !slices.Contains(groups, gid) {
				groups = append(groups, gid)
			}
		}
		return true
	})
	return groups
}

// eachLine gives the fields of every line until the function says false. A file that is not there has no lines; one that is not a
// regular file is not opened for long: a FIFO in its place must not hold us.
func eachLine(path string, use func(fields []string) bool) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return dray.Errorf(dray.CodeBadUser, "reading the container's users: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return dray.Errorf(dray.CodeBadUser, "%s is not a regular file", path)
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxUserFile))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if !use(strings.Split(line, ":")) {
			break
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31) // as the engine: 0 to 1<<31-1
	return uint32(n), err == nil
}
