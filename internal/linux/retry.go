package linux

import "golang.org/x/sys/unix"

// Retry calls f until it returns an error other than EINTR, and returns that error. FUSE file
// systems return EINTR from calls on files when the thread receives a signal.
func Retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR { //nolint:errorlint // system calls return the bare number
			return err
		}
	}
}

// RetryValue is Retry for a call with a result.
func RetryValue[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err != unix.EINTR { //nolint:errorlint // system calls return the bare number
			return v, err
		}
	}
}
