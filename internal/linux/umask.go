package linux

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// WithoutUmask calls create on a thread with the umask 0, and returns its error. Names that create
// makes have their final mode at once, so no chmod follows that could reach another file under the
// same name. The umask of the other threads is unchanged.
func WithoutUmask(create func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			result <- fmt.Errorf("get a umask of this thread: %w", err)
			return
		}
		unix.Umask(0)
		result <- create()
	}()
	return <-result
}
