package main

import (
	"bytes"
	"os"
	"strconv"
)

// trees gives the living processes of the bench's own program, wherever they run: the kernel's word, not that of what is measured.
func trees() (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err == nil && isTree(stat) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isTree reads a line of proc(5)'s stat: pid, name in parentheses, state. A zombie is no living process.
func isTree(stat []byte) bool {
	_, rest, _ := bytes.Cut(stat, []byte("("))
	name, state, found := bytes.Cut(rest, []byte(") "))
	return found && string(name) == toolName && len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}
