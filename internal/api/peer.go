package api

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// peerPID returns the process that opened the connection of a request over the unix socket, or 0.
func peerPID(r *http.Request) int {
	if c, ok := r.Context().Value(connKey{}).(*problemConn); ok {
		if p, ok := c.Conn.(interface{ PID() int }); ok {
			return p.PID()
		}
	}
	return 0
}

// inCall returns a function that reports whether a process of a call makes a request, as isInCall.
func inCall(r *http.Request) func() bool {
	return func() bool { return isInCall(peerPID(r)) }
}

// maxAncestors bounds the number of ancestors of a process that are checked.
const maxAncestors = 1000

// isInCall reports whether a process descends from the supervisor of a call. It also returns true
// if that is unknown: the process has exited, or is in another pid namespace. A supervisor is the
// reaper of everything that its tool starts, so a process cannot leave it while the call runs.
func isInCall(pid int) bool {
	if pid == 0 {
		return true
	}
	for range maxAncestors {
		// the program of a supervisor is a sealed file in memory
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && strings.HasPrefix(exe, "/memfd:dray-agent") {
			return true
		}
		if pid, err = parentOf(pid); err != nil {
			return true
		}
		// 0 is the parent of a process that was started in this pid namespace from outside
		if pid <= 1 || pid == os.Getpid() {
			return false
		}
	}
	return true
}

// parentOf returns the parent of a process.
func parentOf(pid int) (parent int, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// the name of the program, in parentheses, may contain anything
	var state string
	_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
	return parent, err
}
