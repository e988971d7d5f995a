package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// lock takes the lock file beside the database, or says who has it. The lock goes with the process, however it ends. The file stays:
// removing it would let two others hold a lock on two files of one name.
func lock(path string) (*os.File, error) {
	f, err := openPrivate(path + ".lock")
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, dray.Errorf(dray.CodeAuditUnavailable, "open the trail %s: another dray%s has it open", path, holder(f)).
			WithHint("use the daemon that runs, stop it, or choose another state folder with --state")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	// Who holds it is a courtesy to the one who is refused: failing to write it is no harm.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	return f, nil
}

// holder reads the process id that the holder of the lock left.
func holder(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || perr != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// openPrivate opens or makes a file that only its owner can read, whatever the umask and whatever mode it had.
func openPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s private: %w", path, err), f.Close())
	}
	return f, nil
}
