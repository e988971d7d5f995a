package main

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
)

// maxUserFile bounds what is read of /etc/passwd and /etc/group: they are the container's, and may
// be anything.
const maxUserFile = 16 << 20

// user is who a process becomes.
type user struct {
	uid, gid    uint32
	groups      []uint32
	home, shell string
}

// users are the two files that say who is who.
type users struct{ passwd, group string }

var containerUsers = users{passwd: "/etc/passwd", group: "/etc/group"}

// lookup resolves a user as the engine does for an exec, from the container's files as they are
// now:
//
//	""            uid 0
//	name, uid     the entry's group, and every group that lists the entry's name
//	name:group    that group alone
//	unknown uid   gid 0, home "/"
//	unknown name  an error, as an unknown name of a group
//
// A number is always an id, never a name; the first entry of the file counts. The container's
// further groups are added whatever the form. In one thing the engine is not followed: it reads an
// id that is no number as 0, which is root; here such an entry does not exist.
func (f users) lookup(arg string, further []string) (user, error) {
	name, group, _ := strings.Cut(arg, ":")
	u, entry, err := f.find(name)
	if err != nil {
		return user{}, err
	}
	switch {
	case group != "":
		u.gid, err = f.findGroup(group)
	default:
		u.groups, err = f.groupsOf(entry)
	}
	if err != nil {
		return user{}, err
	}
	u.groups = appendNew([]uint32{u.gid}, u.groups...)
	for _, name := range further {
		gid, err := f.findGroup(name)
		if err != nil {
			return user{}, err
		}
		u.groups = appendNew(u.groups, gid)
	}
	return u, nil
}

func appendNew(list []uint32, more ...uint32) []uint32 {
	for _, id := range more {
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// find gives the user and the name that groups list it by: its entry's, or the number where it has
// no entry.
func (f users) find(name string) (user, string, error) {
	if name == "" {
		name = "0"
	}
	number, isNumber := parseID(name)
	found, entry := user{uid: number, home: "/"}, ""
	err := eachLine(f.passwd, func(line []string) bool {
		uid, ok1 := parseID(field(line, 2))
		gid, ok2 := parseID(field(line, 3))
		if !ok1 || !ok2 || line[0] == "" || (isNumber && uid != number) ||
			(!isNumber && line[0] != name) {
			return true
		}
		found, entry = user{uid: uid, gid: gid, home: field(line, 5), shell: field(line, 6)}, line[0]
		return false
	})
	switch {
	case err != nil:
		return user{}, "", err
	case entry == "" && !isNumber:
		return user{}, "", dray.Errorf(dray.CodeBadUser, "the container has no user %q", name)
	case entry == "":
		entry = name
	}
	if found.home == "" {
		found.home = "/"
	}
	return found, entry, nil
}

// findGroup gives a group's number. A number needs no entry.
func (f users) findGroup(name string) (uint32, error) {
	gid, found := parseID(name)
	if found {
		return gid, nil
	}
	err := eachLine(f.group, func(line []string) bool {
		if line[0] == name {
			gid, found = parseID(field(line, 2))
		}
		return !found
	})
	if err == nil && !found {
		err = dray.Errorf(dray.CodeBadUser, "the container has no group %q", name)
	}
	return gid, err
}

// groupsOf gives the groups that list a name.
func (f users) groupsOf(name string) ([]uint32, error) {
	var groups []uint32
	err := eachLine(f.group, func(line []string) bool {
		if gid, ok := parseID(field(line, 2)); ok &&
			slices.Contains(strings.Split(field(line, 3), ","), name) {
			groups = append(groups, gid)
		}
		return true
	})
	return groups, err
}

// field gives a field of a line; one that is not there is empty, as the engine has it.
func field(line []string, i int) string {
	if i >= len(line) {
		return ""
	}
	return line[i]
}

// eachLine gives the fields of every line until the function says false. A file that is not there
// has no lines; one that is not a regular file is not opened for long: a FIFO in its place must not
// hold us.
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
		if line == "" {
			continue
		}
		if !use(strings.Split(line, ":")) {
			break
		}
	}
	if err := lines.Err(); err != nil {
		return dray.Errorf(dray.CodeBadUser, "reading %s: %w", path, err)
	}
	return nil
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31) // as the engine: 0 to 1<<31-1
	return uint32(n), err == nil
}
