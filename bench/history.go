package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The lines of the page between which the history stands: one line for each commit that was measured.
const (
	historyBegin = "<!-- history: begin; `go run ./bench -write` adds a line -->"
	historyEnd   = "<!-- history: end -->"
	// historyLines is how many commits are kept.
	historyLines = 12
)

var historyHead = []string{
	"dray", "day", "`true`, HTTP, p50", "over host os/exec", "executor over host os/exec", "`docker exec` over HTTP", "256 at once, executor over host",
	"2 GB, socket", "tree of 50 ended",
}

// lineOf is what the history keeps of a run.
func lineOf(f *measurements) []string {
	show := func(value func(*measurements) (float64, bool), show func(float64) string) string {
		x, ok := value(f)
		if !ok {
			return ""
		}
		return show(x)
	}
	rate := ""
	for _, flow := range f.flows {
		if flow.name == daemonSocket {
			rate = digits(flow.rate()/1e9) + " GB/s"
		}
	}
	return []string{
		f.machine.dray, f.machine.day.Format(time.DateOnly), millis(f.latency.of(wayDray, runTrue).quantile(0.5)),
		show(serialRatio(wayDray, wayHost), factor), show(serialRatio(waySocket, wayHost), factor), show(serialRatio(wayDockerExec, wayDray), factor),
		show(rateRatio(waySocket, wayHost), factor), rate, show(killP50(waySocket), nanos),
	}
}

// withLine gives the history with a line more. A commit that is measured again has one line, the newest.
func withLine(history string, line []string) string {
	var rows [][]string
	for text := range strings.Lines(history) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(text), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		isRow := len(cells) == len(historyHead) && !strings.HasPrefix(cells[0], "---") && cells[0] != historyHead[0]
		if isRow && cells[0] != line[0] {
			rows = append(rows, cells)
		}
	}
	rows = append(rows, line)
	return table(historyHead, slices.Clone(rows[max(0, len(rows)-historyLines):]))
}

// addLine adds a line to the history in a page and keeps all else byte for byte.
func addLine(page string, line []string) (string, error) {
	before, old, after, err := between(page, historyBegin, historyEnd)
	if err != nil {
		return "", fmt.Errorf("adding to the history: %w", err)
	}
	return before + "\n" + withLine(old, line) + "\n" + after, nil
}
