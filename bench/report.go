package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// table renders rows as Markdown. The first column is text, the others are numbers.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "--:"
	}
	rule[0] = "---"
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// millis shows a time with three digits that count.
func millis(d time.Duration) string { return digits(float64(d)/float64(time.Millisecond)) + " ms" }

func nanos(x float64) string { return millis(time.Duration(x)) }

// factor shows a ratio with three digits that count.
func factor(x float64) string { return digits(x) }

func mebibytes(x float64) string { return digits(x/(1<<20)) + " MiB" }

func digits(x float64) string {
	switch {
	case x < 9.995:
		return fmt.Sprintf("%.2f", x)
	case x < 99.95:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.0f", x)
	}
}

// page is all that is published of a run.
func page(f *measurements, verdicts []verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n%s", f.machine, f.trail, verdictTable(verdicts))
	section := func(title, body string) {
		if body != "" {
			fmt.Fprintf(&b, "\n### %s\n\n%s", title, body)
		}
	}
	for _, c := range []command{runTrue, runTool} {
		section(c.name+", one call after another", serialTable(f.latency, c))
	}
	for _, c := range []command{runTrue, runSleep} {
		for _, n := range callers {
			section(fmt.Sprintf("%s, %d callers at once", c.name, n), crowdTable(f, n, c))
		}
	}
	section("2 GB of stdout", flowTable(f.flows))
	section("Another call beside it", besideTable(f.neighbours))
	section("Memory", memoryTable(f.memory))
	section("The end of a tree of 50 processes", killTable(f.kills))
	section("Paths in a document of 10 MB and in a text of 1 GB", passageTable(f.passages))
	section("10,000 files of 4 KiB, in memory", haulTable(f.hauls, loadFiles, inMemory))
	section("10,000 files of 4 KiB, on disk", haulTable(f.hauls, loadFiles, onDisk))
	section("A file of 1 GiB, in memory", haulTable(f.hauls, loadFile, inMemory))
	return b.String()
}

// serialTable compares the ways for one command.
func serialTable(r *results, c command) string {
	var rows [][]string
	dray, host := r.of(wayDray, c).quantile(0.5), r.of(wayHost, c).quantile(0.5)
	for _, w := range r.ways {
		s := r.of(w.name, c)
		if s.count() == 0 {
			continue
		}
		p50, p99 := s.quantile(0.5), s.quantile(0.99)
		low, high := s.spread()
		rows = append(rows, []string{
			w.name, fmt.Sprint(s.count()), millis(p50), millis(p99), millis(low) + " to " +
				millis(high), factor(ratio(p50, host)), factor(ratio(p50, dray)),
		})
	}
	return unlessEmpty([]string{
		"way", "calls", "p50", "p99", "p50 of the rounds", "p50 / host's",
		"p50 / dray, HTTP's",
	}, rows)
}

// crowdTable compares the ways for a number of callers.
func crowdTable(f *measurements, callers int, c command) string {
	var rows [][]string
	host, dray := f.crowds.of(callers, c, wayHost), f.crowds.of(callers, c, wayDray)
	for _, w := range f.ways {
		crowd := f.crowds.of(callers, c, w.name)
		if crowd == nil {
			continue
		}
		rows = append(rows, []string{
			w.name, fmt.Sprint(crowd.count()), millis(crowd.quantile(0.5)), millis(crowd.quantile(0.99)), digits(crowd.rate()),
			over(crowd.rate(), host.rate()), over(crowd.rate(), dray.rate()),
		})
	}
	return unlessEmpty([]string{
		"way", "calls", "p50", "p99", "calls/s", "calls/s / host's",
		"calls/s / dray, HTTP's",
	}, rows)
}

// flowTable compares the ways for many bytes.
func flowTable(all []*flow) string {
	var rows [][]string
	var host float64
	if i := slices.IndexFunc(all, func(f *flow) bool { return f.name == flowHost }); i >= 0 {
		host = all[i].rate()
	}
	for _, f := range all {
		low, high := f.spread()
		rows = append(rows, []string{
			f.name, fmt.Sprintf("%d MB", f.bytes/1e6), millis(f.quantile(0.5)), millis(low) + " to " +
				millis(high), digits(f.rate()/1e9) + " GB/s",
			over(f.rate(), host),
		})
	}
	return unlessEmpty([]string{
		"way", "printed", "p50", "lowest to highest", "rate",
		"rate / host pipe's",
	}, rows)
}

func besideTable(all []*interference) string {
	var rows [][]string
	for _, b := range all {
		rows = append(rows, []string{
			b.name, fmt.Sprint(b.count()), millis(b.quantile(0.5)),
			millis(b.quantile(0.99)),
		})
	}
	return unlessEmpty([]string{"`true` over HTTP", "calls", "p50", "p99"}, rows)
}

func memoryTable(all []memoryGrowth) string {
	var rows [][]string
	parts := []string{partDaemon, partAgent, partRex}
	for _, h := range all {
		row := []string{h.load}
		for _, part := range parts {
			cell := ""
			if bytes, ok := h.grew[part]; ok {
				cell = mebibytes(float64(bytes))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return unlessEmpty(append([]string{"resident memory at its peak, above what it was before"},
		parts...), rows)
}

func killTable(all []*killRun) string {
	var rows [][]string
	for _, k := range all {
		left := slices.Sorted(slices.Values(k.left))
		rows = append(rows, []string{
			k.name, fmt.Sprint(k.count()), millis(k.quantile(0.5)), millis(k.quantile(0.99)), fmt.Sprint(left[len(left)/2]), fmt.Sprint(left[len(left)-1]),
		})
	}
	return unlessEmpty([]string{"way", "trees", "p50", "p99", "left, at p50", "left, at most"}, rows)
}

// over shows a ratio, nothing where there is nothing to compare with.
func over(a, b float64) string {
	if b <= 0 {
		return ""
	}
	return factor(a / b)
}

func unlessEmpty(head []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	return table(head, rows)
}

// The lines of the page between which the figures stand. What is before and after them is text that
// people write.
const (
	beginMark = "<!-- figures: begin; written by `go run ./bench -write`, not by hand -->"
	endMark   = "<!-- figures: end -->"
)

var errMarks = errors.New("it has not the lines between which the bench writes")

// between cuts a page at two lines. Both stay with what is around them.
func between(page, begin, end string) (before, inside, after string, err error) {
	before, rest, found := strings.Cut(page, begin+"\n")
	inside, after, ended := strings.Cut(rest, end+"\n")
	if !found || !ended {
		return "", "", "", errMarks
	}
	return before + begin + "\n", inside, end + "\n" + after, nil
}

// replaceFigures puts new figures into a page and keeps all else byte for byte.
func replaceFigures(page, figures string) (string, error) {
	before, _, after, err := between(page, beginMark, endMark)
	if err != nil {
		return "", err
	}
	return before + "\n" + strings.TrimSpace(figures) + "\n\n" + after, nil
}

// publish writes the figures and the history's new line into the page at path, or the figures to
// out where there is no path.
func publish(path, figures string, line []string, out io.Writer) error {
	if path == "" {
		_, err := io.WriteString(out, figures)
		return err
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	text, err := replaceFigures(string(page), figures)
	if err == nil {
		text, err = addLine(text, line)
	}
	if err != nil {
		return fmt.Errorf("writing the figures into %s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a page of the documentation
}

// The lines of the page between which the history stands: one line for each commit that was
// measured.
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
		f.machine.dray, f.machine.day.Format(time.DateOnly), millis(f.latency.of(wayDray, runTrue).
			quantile(0.5)),
		show(serialRatio(wayDray, wayHost), factor), show(serialRatio(waySocket, wayHost),
			factor), show(serialRatio(wayDockerExec, wayDray), factor),
		show(rateRatio(waySocket, wayHost), factor), rate, show(killP50(waySocket), nanos),
	}
}

// withLine gives the history with a line more. A commit that is measured again has one line, the
// newest.
func withLine(history string, line []string) string {
	var rows [][]string
	for text := range strings.Lines(history) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(text), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		isRow := len(cells) == len(historyHead) && !strings.HasPrefix(cells[0], "---") &&
			cells[0] != historyHead[0]
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
