package cgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Release gives processes back to the group that the tree was made in, so that the tree's end is not theirs. They are named by their numbers
// in their own pid namespace. Those that are not in the tree are passed over: whoever names them may not be trusted.
func (t *Manager) Release(pids []int) error {
	members, _ := t.pids()
	for _, pid := range members {
		if !slices.Contains(pids, nsPID(pid)) {
			continue
		}
		if _, err := t.self.ParentProcs.WriteAt(strconv.AppendInt(nil, int64(pid), 10), 0); err != nil {
			return fmt.Errorf("giving process %d back to its environment: %w", pid, err)
		}
	}
	return nil
}

// nsPID is what a process is called in its own pid namespace; 0 for one that is gone.
func nsPID(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if numbers, ok := strings.CutPrefix(lines.Text(), "NSpid:"); ok {
			fields := strings.Fields(numbers)
			own, _ := strconv.Atoi(fields[len(fields)-1]) // 0 where it is no number
			return own
		}
	}
	return 0
}
