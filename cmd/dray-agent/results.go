package main

import (
	"os"
	"slices"

	"github.com/dray-dev/dray/executor/files"
)

// resultsBases are where the directories for result files may be: a container may lack most of
// them, or have them read-only. To make and remove a directory takes 15 µs in the first, a tmpfs,
// and over a millisecond in the overlay of the others. /tmp comes late because tools sync it as a
// whole.
var resultsBases = []string{"/dev/shm", "/var/tmp", "/tmp", "/run"}

// openResults creates the directory that holds those in DRAY_RESULTS; closeResults removes it. If
// that fails, each call has a warning.
func (a *agent) openResults() (closeResults func()) {
	bases := slices.DeleteFunc(slices.Clone(resultsBases), func(base string) bool {
		info, err := os.Stat(base)
		return err == nil && info.Mode()&0o001 == 0 // other users cannot enter it
	})
	a.results, a.resultsErr = files.OpenResultsDirs(bases...)
	return func() {
		if a.results != nil {
			_ = a.results.Close() // the next agent removes the rest
		}
	}
}

// makeResults makes the directory in DRAY_RESULTS for a process of a user.
func (a *agent) makeResults(u user) (string, error) {
	if a.resultsErr != nil {
		return "", a.resultsErr
	}
	return a.results.Make(int(u.uid), int(u.gid))
}

func (a *agent) removeResults(dir string) {
	if dir != "" && a.results != nil {
		_ = a.results.Remove(dir) // the end of this agent, or the next one, removes the rest
	}
}
