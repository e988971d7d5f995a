package command

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// transferred is how a sync tells how far it is.
var transferred = regexp.MustCompile(`^(\d{1,9}) files and folders, (\d{1,9}\.\d) MB$`)

// syncProgress shows how far a sync is on a terminal: files, bytes, and how many bytes a second since the first was told of. Where stderr is no terminal
// it shows what comes before alone, such as a container that is brought up.
type syncProgress struct {
	progress *progress
	since    time.Time
	from     int64
}

func newSyncProgress(p *progress) *syncProgress { return &syncProgress{progress: p} }

func (t *syncProgress) show(phase, message string) {
	m := transferred.FindStringSubmatch(message)
	if m == nil {
		t.progress.show(phase, message)
		return
	}
	if !t.progress.terminal {
		return
	}
	megabytes, _ := strconv.ParseFloat(m[2], 64) // it has so few digits that it is one
	t.progress.show(phase, t.line(message, int64(megabytes*1e6), time.Now()))
}

// line is what is shown at a moment.
func (t *syncProgress) line(message string, bytes int64, now time.Time) string {
	if t.since.IsZero() {
		t.since, t.from = now, bytes
		return message
	}
	if span := now.Sub(t.since); span > 0 && bytes >= t.from {
		message += fmt.Sprintf(", %.1f MB/s", float64(bytes-t.from)/1e6/span.Seconds())
	}
	return message
}
