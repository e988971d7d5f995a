package linux

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func socketPair(t *testing.T) [2]int {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { CloseAll(pair[:]) })
	return pair
}

func openFD(t *testing.T, path string) int {
	t.Helper()
	fd, err := Openat(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(fd) })
	return fd
}

func sameFile(t *testing.T, a, b int) bool {
	t.Helper()
	var first, second unix.Stat_t
	if err := errors.Join(Stat(a, &first), Stat(b, &second)); err != nil {
		t.Fatal(err)
	}
	return first.Dev == second.Dev && first.Ino == second.Ino
}

func TestFDsArePassed(t *testing.T) {
	pair := socketPair(t)
	file := openFD(t, t.TempDir())
	if n, err := SendFDs(pair[0], []byte("ab"), file, file); n != 2 || err != nil {
		t.Fatalf("SendFDs: %d, %v", n, err)
	}
	buf := make([]byte, 8)
	n, fds, err := ReceiveFDs(pair[1], buf, make([]byte, OOBSize(2)))
	defer CloseAll(fds)
	if err != nil || string(buf[:n]) != "ab" || len(fds) != 2 {
		t.Fatalf("ReceiveFDs: %q, fds %v, %v", buf[:n], fds, err)
	}
	for _, fd := range fds {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("fd %d has flags %d (%v), want close-on-exec", fd, flags, err)
		}
		if !sameFile(t, fd, file) {
			t.Errorf("fd %d is another file than the one that was passed", fd)
		}
	}
}

func TestReceiveFDs_NoSpace(t *testing.T) {
	pair := socketPair(t)
	file := openFD(t, t.TempDir())
	if _, err := SendFDs(pair[0], []byte("a"), file); err != nil {
		t.Fatal(err)
	}
	n, fds, err := ReceiveFDs(pair[1], make([]byte, 8), nil)
	if n != 1 || len(fds) != 0 || !errors.Is(err, ErrFDsDropped) {
		t.Errorf("got %d bytes, fds %v, error %v, want ErrFDsDropped", n, fds, err)
	}
	if _, _, err := ReceiveFDs(pair[1], make([]byte, 8), nil); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("an empty socket: got %v, want EAGAIN", err)
	}
}

func TestOpenat2StaysBeneath(t *testing.T) {
	if !HasOpenat2() {
		t.Skip("this kernel has no openat2")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o700),
		os.Symlink("/", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	root := openFD(t, dir)
	const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS
	for name, want := range map[string]error{"d": nil, "..": unix.EXDEV, "link/etc": unix.ELOOP} {
		fd, err := Openat2(root, name, unix.O_PATH, beneath)
		if !errors.Is(err, want) {
			t.Errorf("Openat2(%q): got %v, want %v", name, err, want)
		}
		if err == nil {
			Close(fd)
		}
	}
}

func TestRenameExchangesAndUnlinks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fd := openFD(t, dir)
	if err := Rename(fd, "a", fd, "b", unix.RENAME_NOREPLACE); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Rename with RENAME_NOREPLACE over a file: got %v, want ErrExist", err)
	}
	if err := Rename(fd, "a", fd, "b", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "b" {
		t.Errorf("after the exchange a contains %q, %v", b, err)
	}
	if err := Unlink(fd, "a", 0); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Unlink: got %v, want ErrNotExist", err)
	}
}

func TestReopenIsTheSameFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := Openat(unix.AT_FDCWD, path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("new"), 0o600)); err != nil {
		t.Fatal(err)
	}
	again, err := Reopen(fd, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(again)
	if b, err := ReadAll(again); err != nil || string(b) != "old" {
		t.Errorf("Reopen read %q, %v, want the file that was opened", b, err)
	}
}

func TestMounts(t *testing.T) {
	const table = `36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
malformed
25 1 0:22 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
30 1 0:25 / /x - `
	got := slices.Collect(Mounts([]byte(table)))
	if len(got) != 2 || got[0].Root != "/mnt1" || got[0].Point != "/mnt 2" ||
		got[0].FSType != "ext3" ||
		!slices.Equal(got[1].Options, []string{"rw", "memory"}) {
		t.Errorf("Mounts returned %+v", got)
	}
}

func TestReadFileOfAnySize(t *testing.T) {
	for _, size := range []int{0, 1, 1023, 1024, 1025, 5000} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := ReadFile(path); err != nil || len(b) != size {
			t.Errorf("ReadFile of %d bytes returned %d, %v", size, len(b), err)
		}
	}
	if _, err := ReadFile("/proc/none/stat"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want ErrNotExist", err)
	}
}

func TestPollReportsReadyFD(t *testing.T) {
	pair := socketPair(t)
	fds := []unix.PollFd{{Fd: int32(pair[1]), Events: unix.POLLIN}, {Fd: -1}}
	if Poll(fds, 0); fds[0].Revents != 0 {
		t.Error("an empty socket is ready")
	}
	if _, err := unix.Write(pair[0], []byte("a")); err != nil {
		t.Fatal(err)
	}
	if Poll(fds, time.Minute); fds[0].Revents&unix.POLLIN == 0 {
		t.Error("a socket with a byte in it is not ready")
	}
}
