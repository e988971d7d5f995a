package host

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/internal/linux"
)

const (
	// remainsTimeout bounds how long KillRemains waits for processes to end.
	remainsTimeout  = 5 * time.Second
	remainsInterval = 10 * time.Millisecond
)

// KillRemains kills processes of calls of a daemon that was killed, on the host and in containers
// of this machine, and blocks until they have ended, at most for 5 seconds. The supervisors of
// these calls do the same when they lose their daemon; KillRemains is for those that were killed
// too.
//
// It finds processes by their cgroup, if the daemon is root, and by the call's id in their
// environment. The report of a call has the processes that still run. If it found none, the
// survivors are unknown: a process can have cleared its environment and left the cgroup.
func KillRemains(ids []string) map[string]dray.KillReport {
	cgroup.RemoveAllStale()
	left := killCalls(ids)
	tick := time.NewTicker(remainsInterval)
	defer tick.Stop()
	for late := time.Now().Add(remainsTimeout); len(left) > 0 && time.Now().Before(late); <-tick.C {
		left = killCalls(ids)
	}
	reports := map[string]dray.KillReport{}
	for _, id := range ids {
		pids := left[id]
		reports[id] = dray.KillReport{
			Survivors: dray.Survivors{Proven: len(pids) > 0, PIDs: pids},
		}
	}
	return reports
}

// killCalls sends SIGKILL to each process that has one of the ids in its environment, and returns
// their pids by id. This program is none of them, although a call may have started it.
func killCalls(ids []string) map[string][]int {
	found := map[string][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if id := callOf(dir); slices.Contains(ids, id) && killIfOwned(pid, id) {
			found[id] = append(found[id], pid)
		}
	}
	return found
}

// killIfOwned kills a process if it belongs to the call. It reads the id again, because the pid may
// have been reused meanwhile.
func killIfOwned(pid int, id string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer linux.Close(fd)
	if callOf("/proc/"+strconv.Itoa(pid)) != id {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != unix.ESRCH
}

// callOf returns the id of the call in the environment of a process, or "". The environment of a
// zombie is empty.
func callOf(procDir string) string {
	env, _ := os.ReadFile(procDir + "/environ") // another user's cannot be read
	for variable := range strings.SplitSeq(string(env), "\x00") {
		if id, ok := strings.CutPrefix(variable, dray.EnvCallID+"="); ok {
			return id
		}
	}
	return ""
}
