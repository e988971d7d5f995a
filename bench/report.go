package main

import (
	"fmt"
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
			w.name, fmt.Sprint(s.count()), millis(p50), millis(p99), millis(low) + " to " + millis(high), factor(ratio(p50, host)), factor(ratio(p50, dray)),
		})
	}
	return unlessEmpty([]string{"way", "calls", "p50", "p99", "p50 of the rounds", "p50 / host's", "p50 / dray, HTTP's"}, rows)
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
	return unlessEmpty([]string{"way", "calls", "p50", "p99", "calls/s", "calls/s / host's", "calls/s / dray, HTTP's"}, rows)
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
			f.name, fmt.Sprintf("%d MB", f.bytes/1e6), millis(f.quantile(0.5)), millis(low) + " to " + millis(high), digits(f.rate()/1e9) + " GB/s",
			over(f.rate(), host),
		})
	}
	return unlessEmpty([]string{"way", "printed", "p50", "lowest to highest", "rate", "rate / host pipe's"}, rows)
}

func besideTable(all []*interference) string {
	var rows [][]string
	for _, b := range all {
		rows = append(rows, []string{b.name, fmt.Sprint(b.count()), millis(b.quantile(0.5)), millis(b.quantile(0.99))})
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
	return unlessEmpty(append([]string{"resident memory at its peak, above what it was before"}, parts...), rows)
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
