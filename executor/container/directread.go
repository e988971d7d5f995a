package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// containerFiles are the files of a container: what its helper serves, and trees that are read
// directly where this daemon may.
type containerFiles struct {
	*files.Client
	env    *environment
	helper *agentProcess
	root   string
}

// ReadTree reads the tree through the root folder of the agent's process where that is open to us,
// with the rights of the helper and no others, and else lets the helper stream it. Both give the
// same.
func (f *containerFiles) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree,
	error,
) {
	log := f.env.engine.log.With(zap.String("container", f.env.target.Container.Name),
		zap.String("root", f.root))
	t, err := f.readDirect(ctx, what)
	if err == nil {
		log.Debug("files are read directly")
		return t, nil
	}
	log.Debug("files are streamed by the helper", zap.Error(err))
	t, err = f.Client.ReadTree(ctx, what)
	if err != nil {
		return nil, err
	}
	return &lossTree{t, f.lost}, nil
}

// lost gives a stream that broke off its reason, where the agent went with it.
func (f *containerFiles) lost(err error) error {
	cause := f.helper.agent.mux.Err()
	if cause == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return f.env.engine.lossError(f.env.target.Container, cause)
}

// lossTree is a tree whose errors are looked into.
type lossTree struct {
	dray.Tree
	lost func(error) error
}

// Next goes to the next entry.
func (t *lossTree) Next() (dray.TreeEntry, error) {
	e, err := t.Tree.Next()
	return e, t.explain(err)
}

// Read reads the current file.
func (t *lossTree) Read(p []byte) (int, error) {
	n, err := t.Tree.Read(p)
	return n, t.explain(err)
}

func (t *lossTree) explain(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // a tree's end is never wrapped
		return err
	}
	return t.lost(err)
}

// errDirectUnsupported says that direct reading was not wanted, or cannot be thought of.
var errDirectUnsupported = errors.New("the container's files are not to be read directly")

// readDirect fails wherever anything is unusual: the helper can do all that it can.
func (f *containerFiles) readDirect(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree,
	error,
) {
	pid := f.helper.agent.pid
	if f.env.engine.opts.FilesByHelper || pid == 0 || os.Geteuid() != 0 {
		return nil, errDirectUnsupported
	}
	v, err := openProcRoot(f.env.target.Container, pid)
	if err != nil {
		return nil, err
	}
	defer v.close()
	r, err := v.credentialsOf(f.helper.pid)
	if err != nil {
		return nil, err
	}
	return files.ReadTreeOnThread(ctx, what, func() (*os.File, error) {
		if err := r.applyToThread(); err != nil {
			return nil, err
		}
		root, err := v.open(f.root, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			err = v.requirePlainFS(root, what.Names)
		}
		if err != nil {
			closeFile(root)
			return nil, err
		}
		return root, nil
	})
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}

// fsCredentials are what decides which files a process may open.
type fsCredentials struct {
	uid, gid uint32
	groups   []uint32
	caps     uint64
}

// credentialsOf reads what a process in the container has, by its number there. The container could
// lie about it, and would open no more with that than what it can open itself: its own files, by
// users of its own, with capabilities that it may have.
func (v *procRoot) credentialsOf(pid int) (fsCredentials, error) {
	if pid <= 0 {
		return fsCredentials{}, errors.New("the helper has no number")
	}
	f, err := v.open("/proc/"+strconv.Itoa(pid)+"/status", unix.O_RDONLY)
	if err != nil {
		return fsCredentials{}, err
	}
	defer closeFile(f)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return fsCredentials{}, fmt.Errorf("looking at the container's /proc: %w", err)
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return fsCredentials{}, errors.New("what the container has for a /proc is none")
	}
	status, err := io.ReadAll(io.LimitReader(f, maxProcFile))
	if err != nil {
		return fsCredentials{}, fmt.Errorf("reading the helper's rights: %w", err)
	}
	r, err := parseRights(status)
	r.caps &= v.bound
	return r, err
}

// parseRights reads /proc/PID/status (proc(5)).
func parseRights(status []byte) (r fsCredentials, err error) {
	uids, err1 := ids(status, "Uid")
	gids, err2 := ids(status, "Gid")
	groups, err3 := ids(status, "Groups")
	caps, err4 := capabilities(status, "CapEff")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return fsCredentials{}, err
	}
	if len(uids) != 4 || len(gids) != 4 { // real, effective, saved, and that for files
		return fsCredentials{}, fmt.Errorf("the helper has %d user ids and %d group ids", len(uids),
			len(gids))
	}
	return fsCredentials{uid: uids[3], gid: gids[3], groups: groups, caps: caps}, nil
}

func field(status []byte, name string) (string, error) {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return strings.TrimSpace(string(value)), nil
		}
	}
	return "", fmt.Errorf("a process's status has no %s", name)
}

func ids(status []byte, name string) ([]uint32, error) {
	value, err := field(status, name)
	if err != nil {
		return nil, err
	}
	var list []uint32
	for word := range strings.FieldsSeq(value) {
		id, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("reading %s of a process: %w", name, err)
		}
		list = append(list, uint32(id))
	}
	return list, nil
}

func capabilities(status []byte, name string) (uint64, error) {
	value, err := field(status, name)
	if err != nil {
		return 0, err
	}
	caps, err := strconv.ParseUint(value, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s of a process: %w", name, err)
	}
	return caps, nil
}

// applyToThread gives the current thread these rights over files, and no other. It must be locked,
// and thrown away afterwards: there is no way back. The calls are raw, because those of the Go
// runtime would change every thread.
func (r fsCredentials) applyToThread() error {
	groups := slices.Clone(r.groups)
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first),
		0); errno != 0 {
		return fmt.Errorf("taking on the groups of the container's user: %w", errno)
	}
	for _, set := range []struct {
		call uintptr
		id   uint32
	}{{unix.SYS_SETFSGID, r.gid}, {unix.SYS_SETFSUID, r.uid}} {
		_, _, _ = unix.RawSyscall(set.call, uintptr(set.id), 0, 0)
		// it tells of no failure, but what was set before
		now, _, _ := unix.RawSyscall(set.call, uintptr(^uint32(0)), 0, 0)
		if uint32(now) != set.id { //nolint:gosec // an id
			return fmt.Errorf("taking on the container's user %d: it stayed %d", set.id, now)
		}
	}
	return r.dropCapabilities()
}

// dropCapabilities takes away the capabilities that the container's process has not got.
func (r fsCredentials) dropCapabilities() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("reading this thread's capabilities: %w", err)
	}
	for i := range data {
		data[i].Effective &= uint32(r.caps >> (32 * i)) //nolint:gosec // half of it at a time
		data[i].Permitted, data[i].Inheritable = data[i].Effective, 0
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}
