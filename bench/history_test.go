package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestHistoryKeepsOneLineForEachCommit(t *testing.T) {
	line := func(commit, figure string) []string {
		cells := make([]string, len(historyHead))
		cells[0], cells[2] = commit, figure
		return cells
	}
	history := ""
	for _, l := range [][]string{line("a", "1 ms"), line("b", "2 ms"), line("a", "3 ms")} {
		history = withLine(history, l)
	}
	want := table(historyHead, [][]string{line("b", "2 ms"), line("a", "3 ms")})
	if history != want {
		t.Errorf("got\n%swant\n%s", history, want)
	}
	for i := range 2 * historyLines {
		history = withLine(history, line(fmt.Sprint("c", i), "4 ms"))
	}
	if got := strings.Count(history, "4 ms"); got != historyLines {
		t.Errorf("%d lines are kept, want %d", got, historyLines)
	}
	if last := line(fmt.Sprint("c", 2*historyLines-1), "4 ms"); !strings.HasSuffix(history, table(historyHead, [][]string{last})[len(table(historyHead, nil)):]) {
		t.Errorf("the newest is not the last:\n%s", history)
	}
}
