package api

import (
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

// maxAncestors bounds how many ancestors of a process are looked at.
const maxAncestors = 1000

// isInCall reports whether a process descends from the supervisor of a call. A supervisor is the
// reaper of everything that its tool starts, so a process cannot leave it while the call runs.
func isInCall(pid int) bool {
	for range maxAncestors {
		if pid <= 1 {
			return false
		}
		// the program of a supervisor is a sealed file in memory
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && strings.HasPrefix(exe, "/memfd:dray-agent") {
			return true
		}
		if pid = parentOf(pid); pid == os.Getpid() {
			return false
		}
	}
	return true
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// the name of the program, in parentheses, may contain anything
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	var state string
	var parent int
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		return 0
	}
	return parent
}
