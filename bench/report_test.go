package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	got := table([]string{"way", "p50"}, [][]string{{"a", "1"}, {"b", "2"}})
	want := "| way | p50 |\n| --- | --: |\n| a | 1 |\n| b | 2 |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.00 ms", 4560 * time.Microsecond: "4.56 ms", 9996 * time.Microsecond: "10.0 ms", 45600 * time.Microsecond: "45.6 ms",
		99960 * time.Microsecond: "100 ms", 1234 * time.Millisecond: "1234 ms",
	} {
		if got := millis(d); got != want {
			t.Errorf("%s is shown as %s, want %s", d, got, want)
		}
	}
}

func TestSerialTableCompares(t *testing.T) {
	const ms = time.Millisecond
	ways := []method{{name: wayDray}, {name: wayDockerExec}, {name: wayRex}, {name: wayHost}}
	r := newResults(ways)
	for name, took := range map[string]time.Duration{
		wayDray: 2 * ms, wayDockerExec: 50 * ms,
		wayHost: ms,
	} {
		r.of(name, runTrue).add([]time.Duration{took, took})
	}
	got := serialTable(r, runTrue)
	for _, want := range []string{
		"| dray, HTTP | 2 | 2.00 ms | 2.00 ms | 2.00 ms to 2.00 ms | 2.00 | 1.00 |\n",
		"| `docker exec` | 2 | 50.0 ms | 50.0 ms | 50.0 ms to 50.0 ms | 50.0 | 25.0 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, wayRex) || serialTable(r, runTool) != "" {
		t.Errorf("what was not measured is shown:\n%s%s", got, serialTable(r, runTool))
	}
}

func TestEveryPartHasItsTable(t *testing.T) {
	const ms = time.Millisecond
	f := &measurements{
		ways: []method{{name: wayDray}}, latency: newResults(nil), crowds: concurrentRuns{},
		flows: []*flow{{
			name: flowHost,
			bulk: bulk{2e9, sample{rounds: [][]time.Duration{{2 * time.Second}}}},
		}},
		neighbours: []*interference{{name: "b", sample: sample{rounds: [][]time.Duration{{ms, 3 * ms}}}}},
		memory:     []memoryGrowth{{load: "l", grew: map[string]int64{partDaemon: 3 << 20}}},
		passages: []*pathRun{{
			name: "p", grew: 1 << 20,
			bulk: bulk{3e6, sample{rounds: [][]time.Duration{{10 * ms}}}},
		}},
		hauls: []*syncRun{
			{
				site: storage{name: inMemory}, load: loadFile, way: haulSocket,
				sample: sample{rounds: [][]time.Duration{{2 * ms}}},
			},
			{
				site: storage{name: inMemory}, load: loadFile, way: haulDocker,
				sample: sample{rounds: [][]time.Duration{{10 * ms}}},
			},
			{
				site: storage{name: inMemory}, load: loadFile, way: haulCopy,
				sample: sample{rounds: [][]time.Duration{{4 * ms}}},
			},
		},
		kills: []*killRun{{
			name: "k", sample: sample{rounds: [][]time.Duration{{ms}, {ms}, {ms}}},
			left: []int{51, 0, 50},
		}},
	}
	if err := f.crowds.open(8, runTrue, wayDray).
		run(t.Context(), method{run: func(context.Context, command) error { return nil }}, runTrue, 2,
			4); err != nil {
		t.Fatal(err)
	}
	got := page(f, nil)
	for _, want := range []string{
		"| host pipe | 2000 MB | 2000 ms | 2000 ms to 2000 ms | 1.00 GB/s | 1.00 |\n",
		"| b | 2 | 1.00 ms | 3.00 ms |\n",
		"| l | 3.00 MiB |  |  |\n",
		"| p | 3 MB | 10.0 ms | 10.0 ms to 10.0 ms | 300 MB/s | 1.00 MiB |\n",
		"| sync, streamed, socket | 1 | 2.00 ms | 2.00 ms to 2.00 ms | 5.00 | 0.50 |\n",
		"| k | 3 | 1.00 ms | 1.00 ms | 50 | 51 |\n",
		"### `true`, 8 callers at once\n",
		"| dray, HTTP | 4 | ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "64 callers") {
		t.Errorf("what was not measured is shown:\n%s", got)
	}
}

func TestPublishKeepsTheText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	page := "# Title\n\nbefore\n\n" + beginMark + "\nold\n" + endMark + "\n\nbetween\n" +
		historyBegin + "\n" + historyEnd + "\nafter\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	line := make([]string, len(historyHead))
	line[0] = "abc"
	history := historyBegin + "\n\n" + table(historyHead, [][]string{line}) + "\n" + historyEnd
	want := "# Title\n\nbefore\n\n" + beginMark + "\n\nnew\n\n" + endMark + "\n\nbetween\n" + history +
		"\nafter\n"
	for range 2 { // a second run finds what the first wrote
		if err := publish(path, "new\n", line, nil); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestPublishRefusesAPageWithoutMarks(t *testing.T) {
	for _, page := range []string{
		"", "text\n", beginMark + "\n", endMark + "\n" + beginMark + "\n", beginMark + "\n" + endMark +
			"\n",
	} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := publish(path, "new\n", nil, nil); !errors.Is(err, errMarks) {
			t.Errorf("page %q: %v", page, err)
		}
		if got, _ := os.ReadFile(path); string(got) != page {
			t.Errorf("page %q was changed to %q", page, got)
		}
	}
}

func TestPublishPrintsWithoutAPage(t *testing.T) {
	var out strings.Builder
	if err := publish("", "new\n", nil, &out); err != nil || out.String() != "new\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

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
	if last := line(fmt.Sprint("c", 2*historyLines-1), "4 ms"); !strings.HasSuffix(history,
		table(historyHead, [][]string{last})[len(table(historyHead, nil)):]) {
		t.Errorf("the newest is not the last:\n%s", history)
	}
}
