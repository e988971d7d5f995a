package linux_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/fusetest"
	"github.com/dray-dev/dray/internal/linux"
)

// makeFile makes a file of a test below a new directory.
type makeFile func(t *testing.T, path string)

func linkTo(target string) makeFile {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
}

func fileOf(size int64) makeFile {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
	}
}

func makeFIFO(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

func makeSocket(t *testing.T, path string) {
	t.Helper()
	t.Chdir(filepath.Dir(path)) // a short address
	l, err := net.Listen("unix", filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func makeChain(length int) makeFile {
	return func(t *testing.T, path string) {
		t.Helper()
		fileOf(1)(t, path+"."+itoa(0))
		for i := range length {
			linkTo(filepath.Base(path)+"."+itoa(i))(t, path+"."+itoa(i+1))
		}
		linkTo(filepath.Base(path)+"."+itoa(length))(t, path)
	}
}

func itoa(n int) string { return strings.Repeat("i", n) }

func makeDevice(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil { // zero
		t.Skip(err)
	}
}

func TestUntrustedDirOpensOnlyRegularFilesOfDisks(t *testing.T) {
	for _, test := range []struct {
		name string
		make makeFile
		want error
	}{
		{"file", fileOf(5), nil},
		{"link", makeChain(1), nil},
		{"chain of 39 links", makeChain(38), nil},
		{"chain of 41 links", makeChain(40), unix.ELOOP},
		{"link to itself", linkTo("f"), unix.ELOOP},
		{"absolute link to itself", func(t *testing.T, path string) { linkTo(path)(t, path) }, unix.ELOOP},
		{"missing", func(*testing.T, string) {}, fs.ErrNotExist},
		{"dangling link", linkTo("nothing"), fs.ErrNotExist},
		{"through a file", linkTo("/etc/passwd/x"), unix.ENOTDIR},
		{"sparse", fileOf(2 << 30), linux.ErrTooLarge},
		{"directory", linkTo("/etc"), linux.ErrNotRegular},
		{"FIFO", makeFIFO, linux.ErrNotRegular},
		{"socket", makeSocket, linux.ErrNotRegular},
		{"device", makeDevice, linux.ErrNotRegular},
		{"kernel log", linkTo("/proc/kmsg"), linux.ErrFileSystem},
		{"relative kernel log", linkTo(strings.Repeat("../", 30) + "proc/kmsg"), linux.ErrFileSystem},
		{"devices", linkTo("/dev/zero"), linux.ErrFileSystem},
		{"terminal", linkTo("/dev/tty"), linux.ErrFileSystem},
		{"terminals", linkTo("/dev/pts/ptmx"), linux.ErrFileSystem},
		{"sysfs", linkTo("/sys/kernel/uevent_seqnum"), linux.ErrFileSystem},
		{"magic link", linkTo("/proc/self/fd/0"), linux.ErrFileSystem},
		{"through a magic link", linkTo("/proc/self/root/etc/passwd"), linux.ErrFileSystem},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.make(t, filepath.Join(dir, "f"))
			d := linux.UntrustedDir(dir)
			_, err := d.ReadFile(t.Context(), filepath.Join(dir, "f"), 1<<20)
			if !errors.Is(err, test.want) {
				t.Errorf("below the directory: got %v, want %v", err, test.want)
			}
			other := linux.UntrustedDir(t.TempDir()) // the other way to resolve a path
			_, err = other.ReadFile(t.Context(), filepath.Join(dir, "f"), 1<<20)
			if !errors.Is(err, test.want) {
				t.Errorf("outside of the directory: got %v, want %v", err, test.want)
			}
		})
	}
}

func TestUntrustedDirDescribesFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fileOf(7)(t, outside+"/target")
	linkTo(outside+"/target")(t, dir+"/link")
	if err := os.Mkdir(dir+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	fileOf(3)(t, dir+"/sub/b")
	fileOf(3)(t, dir+"/sub/a")
	d := linux.UntrustedDir(dir)
	for _, name := range []string{"/link", "/sub/../link", "/sub", "/sub/a", "/", ""} {
		want, wantErr := os.Stat(dir + name)
		if got, err := d.Stat(t.Context(), dir+name); err != nil || !os.SameFile(got, want) {
			t.Errorf("Stat(%q): %v, %v; os.Stat: %v", name, got, err, wantErr)
		}
		want, _ = os.Lstat(dir + name)
		if got, err := d.Lstat(t.Context(), dir+name); err != nil || !os.SameFile(got, want) {
			t.Errorf("Lstat(%q): %v, %v", name, got, err)
		}
		resolved, _ := filepath.EvalSymlinks(dir + name)
		if got, err := d.RealPath(t.Context(), dir+name); err != nil || got != resolved {
			t.Errorf("RealPath(%q): %q, %v, want %q", name, got, err, resolved)
		}
	}
	if target, err := d.Readlink(t.Context(), dir+"/link"); err != nil || target != outside+"/target" {
		t.Errorf("Readlink: %q, %v", target, err)
	}
	list, err := d.ReadDir(t.Context(), dir+"/sub", 2)
	if err != nil || len(list) != 2 || list[0].Name() != "a" || !list[0].Type().IsRegular() {
		t.Errorf("ReadDir: %v, %v", list, err)
	}
	if _, err := d.ReadDir(t.Context(), dir+"/sub", 1); !errors.Is(err, linux.ErrTooLarge) {
		t.Errorf("ReadDir with too many entries: %v", err)
	}
	stats, err := d.StatAll(t.Context(), []string{dir + "/link", dir + "/none"})
	if err != nil || stats[0].Size != 7 || stats[1].Mode != 0 {
		t.Errorf("StatAll: %v, %v", stats, err)
	}
}

// A link to a file system whose server hangs is refused without a request to that server. A
// directory on such a file system keeps no caller longer than its context.
func TestUntrustedDirOnHangingServer(t *testing.T) {
	hanging, dir := t.TempDir(), t.TempDir()
	fusetest.MountHanging(t, hanging)
	linkTo(hanging+"/x/devcontainer.json")(t, dir+"/link")
	if _, err := linux.UntrustedDir(dir).ReadFile(t.Context(), dir+"/link", 1<<20); !errors.Is(err,
		linux.ErrFileSystem) {
		t.Errorf("a link to it: %v", err)
	}
	const calls = 100
	results := make(chan error, calls)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	for range calls {
		go func() {
			_, err := linux.UntrustedDir(hanging).ReadFile(ctx, hanging+"/f", 1<<20)
			results <- err
		}()
	}
	other := linux.UntrustedDir(dir)
	if _, err := other.Lstat(t.Context(), dir+"/link"); err != nil {
		t.Errorf("another directory meanwhile: %v", err)
	}
	cancel(stop)
	for range calls {
		select {
		case err := <-results:
			if !errors.Is(err, stop) {
				t.Errorf("a read on it: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a read on it does not return")
		}
	}
}
