package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
)

// Bounds of /etc/passwd and /etc/group and of one line of them, in bytes. The container controls
// these files.
const (
	maxUserFile = 16 << 20
	maxUserLine = 1 << 20
)

// user is the user that a process runs as.
type user struct {
	uid, gid    uint32
	groups      []uint32
	home, shell string
}

// userCache keeps resolved users until /etc/passwd or /etc/group changes, which every lookup
// checks.
type userCache struct {
	files users
	mu    sync.Mutex
	stamp string // the fingerprint of the files that entries are from
	users map[string]user
}

// maxUsers bounds the number of cached users.
const maxUsers = 64

// lookup is users.lookup.
func (c *userCache) lookup(ctx context.Context, arg string, further []string) (user, error) {
	f := newFingerprint() // before the files are read: a change in between shows in the next lookup
	f.add(c.files.passwd)
	f.add(c.files.group)
	key, settled := strings.Join(append([]string{arg}, further...), "\x00"), f.settled()
	c.mu.Lock()
	u, ok := c.users[key]
	ok = ok && settled && c.stamp == string(f.text)
	c.mu.Unlock()
	if ok {
		return u, nil
	}
	u, err := c.files.lookup(ctx, arg, further)
	if err != nil || !settled {
		return u, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == nil || c.stamp != string(f.text) || len(c.users) >= maxUsers {
		c.stamp, c.users = string(f.text), map[string]user{}
	}
	c.users[key] = u
	return u, nil
}

// users are the paths of the two files that define users and groups.
type users struct{ passwd, group string }

var containerUsers = users{passwd: "/etc/passwd", group: "/etc/group"}

// lookup resolves a user as the engine does for an exec:
//
//	""            uid 0
//	name, uid     the entry's group, and every group that lists the entry's name
//	name:group    that group alone
//	unknown uid   gid 0, home "/"
//	unknown name  an error, as is the unknown name of a group
//
// A number is always an id, never a name. The first entry of a file counts. further are the
// container's additional groups (--group-add). Unlike the engine, which reads an id that is not a
// number as 0 (root), lookup ignores such an entry.
func (f users) lookup(ctx context.Context, arg string, further []string) (user, error) {
	name, group, _ := strings.Cut(arg, ":")
	u, entry, err := f.find(ctx, name)
	if err != nil {
		return user{}, err
	}
	switch {
	case group != "":
		u.gid, err = f.findGroup(ctx, group)
	default:
		u.groups, err = f.groupsOf(ctx, entry)
	}
	if err != nil {
		return user{}, err
	}
	u.groups = append([]uint32{u.gid}, u.groups...)
	for _, name := range further {
		gid, err := f.findGroup(ctx, name)
		if err != nil {
			return user{}, err
		}
		u.groups = append(u.groups, gid)
	}
	u.groups = unique(u.groups)
	return u, nil
}

// unique returns a list without repetitions, in its order.
func unique(list []uint32) []uint32 {
	seen := make(map[uint32]struct{}, len(list))
	return slices.DeleteFunc(list, func(id uint32) bool {
		_, repeated := seen[id]
		seen[id] = struct{}{}
		return repeated
	})
}

// find returns the user and the name by which groups list it: that of its entry, or the number if
// it has none.
func (f users) find(ctx context.Context, name string) (user, string, error) {
	name = cmp.Or(name, "0")
	number, isNumber := parseID(name)
	found, entry := user{uid: number, home: "/"}, ""
	err := eachLine(ctx, f.passwd, func(line []string) bool {
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
	found.home = cmp.Or(found.home, "/")
	return found, entry, nil
}

// findGroup returns the gid of a group. A number needs no entry.
func (f users) findGroup(ctx context.Context, name string) (uint32, error) {
	gid, found := parseID(name)
	if found {
		return gid, nil
	}
	err := eachLine(ctx, f.group, func(line []string) bool {
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

// maxGroups is the kernel's maximum number of groups of a process (NGROUPS_MAX).
const maxGroups = 65536

// groupsOf returns the groups that list a name.
func (f users) groupsOf(ctx context.Context, name string) ([]uint32, error) {
	var groups []uint32
	err := eachLine(ctx, f.group, func(line []string) bool {
		if gid, ok := parseID(field(line, 2)); ok &&
			slices.Contains(strings.Split(field(line, 3), ","), name) {
			groups = append(groups, gid)
		}
		return len(groups) <= maxGroups
	})
	if err == nil && len(groups) > maxGroups {
		err = dray.Errorf(dray.CodeBadUser, "user %q has more than %d groups in %s", name, maxGroups,
			f.group)
	}
	return groups, err
}

// field returns a field of a line. A missing field is empty, as in the engine.
func field(line []string, i int) string {
	if i >= len(line) {
		return ""
	}
	return line[i]
}

// eachLine calls use with the fields of each line until it returns false. A missing file has no
// lines. It does not block on a FIFO, and ends with ctx: a call must not keep the agent busy after
// its end.
func eachLine(ctx context.Context, path string, use func(fields []string) bool) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return dray.Errorf(readCode(err), "read the container's users: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		return dray.Errorf(dray.CodeBadUser, "%s is not a regular file", path)
	case info.Size() > maxUserFile:
		return dray.Errorf(dray.CodeBadUser, "%s has %d bytes (limit %d)", path, info.Size(), maxUserFile)
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxUserFile))
	lines.Buffer(nil, maxUserLine)
	for lines.Scan() && ctx.Err() == nil {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		if !use(strings.Split(line, ":")) {
			break
		}
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, bufio.ErrTooLong):
		return dray.Errorf(dray.CodeBadUser, "%s has a line of more than %d bytes", path, maxUserLine)
	case err != nil:
		return dray.Errorf(readCode(err), "read %s: %w", path, err)
	}
	return nil
}

// readCode returns the code of a failed read of a user file.
func readCode(err error) dray.Code {
	if process.IsResourceLimit(err) {
		return dray.CodeLimitExceeded
	}
	return dray.CodeBadUser
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31) // as the engine: 0 to 1<<31-1
	return uint32(n), err == nil
}

// fingerprint describes files so that it differs when one of them has changed: by inode, size and
// times.
type fingerprint struct {
	text   []byte
	newest int64 // the latest change, in nanoseconds
}

func newFingerprint() *fingerprint { return &fingerprint{text: make([]byte, 0, 2<<10)} }

// add adds a file. One that does not exist adds nothing.
func (f *fingerprint) add(path string) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return
	}
	f.newest = max(f.newest, st.Ctim.Nano())
	f.text = append(f.text, path...)
	//nolint:gosec // any number does that differs
	for _, n := range []int64{int64(st.Dev), int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} {
		f.text = append(strconv.AppendInt(append(f.text, ' '), n, 36), ';')
	}
}

// settleTime is more than the granularity of file times. A file that changed within it can change
// again without a difference in its times.
const settleTime = 100 * time.Millisecond

// settled reports whether a later change of the files will make a difference.
func (f *fingerprint) settled() bool { return time.Now().UnixNano()-f.newest > int64(settleTime) }

// dirNames caches the names in one directory until it changes.
type dirNames struct {
	mu    sync.Mutex
	stamp string
	names []string
}

// maxNames bounds the number of names that are read of a directory.
const maxNames = 1000

// list returns the names in dir; none if it cannot be read.
func (d *dirNames) list(dir string) []string {
	f := newFingerprint()
	f.add(dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stamp != "" && d.stamp == string(f.text) {
		return d.names
	}
	d.stamp, d.names = "", nil
	file, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	d.names, _ = file.Readdirnames(maxNames)
	if f.settled() {
		d.stamp = string(f.text)
	}
	return d.names
}
