// Package fusetest mounts FUSE file systems whose server does not answer, for tests.
package fusetest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Of linux/fuse.h.
const (
	opInit        = 26
	headerSize    = 40
	protocolMajor = 7
	protocolMinor = 31
)

// MountHanging mounts a file system at a directory whose server receives every request and answers
// none, and unmounts it at the end of the test. A thread that uses the file system waits meanwhile
// and no signal ends it. The test is skipped if it may not mount FUSE.
func MountHanging(tb testing.TB, dir string) {
	tb.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		tb.Skipf("open /dev/fuse: %v", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	err = unix.Mount("hanging", dir, "fuse.hanging", unix.MS_NOSUID|unix.MS_NODEV, data)
	if err != nil {
		_ = unix.Close(fd)
		tb.Skipf("mount FUSE: %v", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(fd)
	}()
	tb.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil { // aborts all requests
			tb.Errorf("unmount FUSE: %v", err)
		}
		<-served
		_ = unix.Close(fd)
	})
}

// serve answers INIT and reads the other requests until the file system is unmounted.
func serve(fd int) {
	buf := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR, err == unix.ENOENT, err == unix.EAGAIN:
			continue
		case err != nil || n < headerSize:
			return
		}
		if binary.NativeEndian.Uint32(buf[4:]) == opInit {
			const size = 16 + 64
			reply := make([]byte, size)
			binary.NativeEndian.PutUint32(reply, size)
			copy(reply[8:16], buf[8:16]) // the id of the request
			binary.NativeEndian.PutUint32(reply[16:], protocolMajor)
			binary.NativeEndian.PutUint32(reply[20:], protocolMinor)
			binary.NativeEndian.PutUint32(reply[36:], 4096) // the largest write
			if _, err := unix.Write(fd, reply); err != nil {
				return
			}
		}
	}
}
