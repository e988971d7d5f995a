package unixsock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/dray-dev/dray"
)

// firstInherited is the first fd that systemd passes (SD_LISTEN_FDS_START).
const firstInherited = 3

// inherited returns the socket that systemd passed to this process, or nil. It removes the
// variables, which are not meant for children.
func inherited(path string) (*net.UnixListener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("unset %s: %w", name, err)
		}
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil //nolint:nilnil // there is no socket, and that is no error
	}
	if count != "1" {
		return nil, dray.Errorf(dray.CodeConflict, "systemd passed %s sockets", count).
			WithHint("use one ListenStream= in dray.socket: %s", path)
	}
	f := os.NewFile(firstInherited, "socket of systemd")
	l, err := net.FileListener(f) // a duplicate
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("use the socket of systemd: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok && u.Addr().String() == path {
		return u, nil
	}
	return nil, errors.Join(l.Close(), dray.Errorf(dray.CodeConflict,
		"systemd listens on %s, and the configuration says %s", l.Addr(), path).
		WithHint("use the same path in ListenStream= of dray.socket and in server.socket"))
}
