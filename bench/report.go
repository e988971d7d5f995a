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

// table renders rows as Markdown. The first column is text, the others are numbers. A table without
// rows is empty.
func table(head []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	rule := slices.Repeat([]string{"--:"}, len(head))
	rule[0] = "---"
	var b strings.Builder
	for _, row := range append([][]string{head, rule}, rows...) {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// millis formats a time with three significant digits.
func millis(d time.Duration) string { return digits(float64(d)/float64(time.Millisecond)) + " ms" }

func nanos(x float64) string { return millis(time.Duration(x)) }

func mebibytes(x float64) string { return digits(x/(1<<20)) + " MiB" }

// digits formats a number with three significant digits.
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

// ratio formats a over b, or returns "" if there is no b.
func ratio(a, b float64) string {
	if b <= 0 {
		return ""
	}
	return digits(a / b)
}

// page returns all that is published of a run.
func page(m *measurements, verdicts []verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n%s", m.machine, m.recorded, verdictTable(verdicts))
	section := func(title, body string) {
		if body != "" {
			fmt.Fprintf(&b, "\n### %s\n\n%s", title, body)
		}
	}
	section("`true`, one call after another", serialTable(m))
	for _, l := range append([]load{manyCallers}, parallelLoads...) {
		section(fmt.Sprintf("%s, %d callers at once", l.command.name, l.callers), rateTable(m, l))
	}
	for _, l := range auditLoads {
		section(fmt.Sprintf("The audit log, callers at once: %d", l.callers), auditTable(m, l))
	}
	section("2 GB of stdout", streamTable(m.streams))
	section("Another call beside it", interferenceTable(m.beside))
	section("Memory", memoryTable(m.memory))
	section("The end of a tree of 50 processes", killTable(m.kills))
	section("10,000 files of 4 KiB, in memory", syncTable(m.syncs, loadFiles, inMemory))
	section("10,000 files of 4 KiB, on disk", syncTable(m.syncs, loadFiles, onDisk))
	section("A file of 1 GiB, in memory", syncTable(m.syncs, loadFile, inMemory))
	section("Python sessions", pythonTable(m.python))
	for _, l := range mcpLoads {
		section(fmt.Sprintf("MCP, callers at once: %d", l.callers), mcpTable(m, l))
	}
	section("MCP, idle sessions", mcpIdleText(m))
	for _, l := range shellLoads {
		section(fmt.Sprintf("Sessions of a shell, callers at once: %d", l.callers), shellTable(m, l))
	}
	return b.String()
}

// spreadText formats the lowest and the highest median of a round.
func spreadText(s *sample) string {
	low, high := s.spread()
	return millis(low) + " to " + millis(high)
}

func serialTable(m *measurements) string {
	var rows [][]string
	host := float64(m.runs.of(oneCaller, methodHost).quantile(0.5))
	http := float64(m.runs.of(oneCaller, methodHTTP).quantile(0.5))
	row := func(name string, s *sample) {
		if p50 := s.quantile(0.5); p50 > 0 {
			rows = append(rows, []string{
				name, fmt.Sprint(s.count()), millis(p50), millis(s.quantile(0.99)), spreadText(s),
				ratio(float64(p50), host), ratio(float64(p50), http),
			})
		}
	}
	for _, method := range m.methods {
		row(method.name, &m.runs.of(oneCaller, method.name).sample)
	}
	row("dray, HTTP, first call of a daemon", &m.cold)
	return table([]string{
		"method", "calls", "p50", "p99", "p50 of the rounds", "p50 / os/exec's", "p50 / dray's, HTTP",
	}, rows)
}

func rateTable(m *measurements, l load) string {
	var rows [][]string
	host, http := m.runs.of(l, methodHost).rate(), m.runs.of(l, methodHTTP).rate()
	for _, method := range m.methods {
		r := m.runs.of(l, method.name)
		if r.count() == 0 {
			continue
		}
		rows = append(rows, []string{
			method.name, fmt.Sprint(r.count()), millis(r.quantile(0.5)), millis(r.quantile(0.99)),
			digits(r.rate()), ratio(r.rate(), host), ratio(r.rate(), http),
		})
	}
	return table([]string{
		"method", "calls", "p50", "p99", "calls/s", "calls/s / os/exec's", "calls/s / dray's, HTTP",
	}, rows)
}

// The lines of the page between which the tables are.
const (
	beginMark = "<!-- figures: begin; written by `go run ./bench -write`, not by hand -->"
	endMark   = "<!-- figures: end -->"
)

var errMarks = errors.New("the page does not contain the lines between which the tables are")

// replaceFigures replaces the tables of a page and keeps the rest byte for byte.
func replaceFigures(page, figures string) (string, error) {
	before, rest, found := strings.Cut(page, beginMark+"\n")
	_, after, ended := strings.Cut(rest, endMark+"\n")
	if !found || !ended {
		return "", errMarks
	}
	figures = "\n\n" + strings.TrimSpace(figures) + "\n\n"
	return before + beginMark + figures + endMark + "\n" + after, nil
}

// publish writes the tables into the page at path, or to out if path is empty.
func publish(path, figures string, out io.Writer) error {
	if path == "" {
		_, err := io.WriteString(out, figures)
		return err
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	text, err := replaceFigures(string(page), figures)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a page of the documentation
}
