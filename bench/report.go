package main

import (
	"fmt"
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

// factor shows a ratio with three digits that count.
func factor(x float64) string { return digits(x) }

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

// serialTable compares the ways for one command.
func serialTable(r *results, c command) string {
	var rows [][]string
	base := r.named(wayDray, c)
	for _, w := range r.ways {
		s := r.of(w, c)
		p50, p99 := s.quantile(0.5), s.quantile(0.99)
		low, high := s.spread()
		rows = append(rows, []string{
			w.name, fmt.Sprint(s.count()), millis(p50), millis(p99), millis(low) + " to " + millis(high),
			factor(ratio(p50, base.quantile(0.5))), factor(ratio(p99, base.quantile(0.99))),
		})
	}
	return table([]string{"way", "calls", "p50", "p99", "p50 of the rounds", "p50 / dray's", "p99 / dray's"}, rows)
}

// crowdTable compares the ways for a number of callers.
func crowdTable(ways []way, crowds map[string]*crowd) string {
	var rows [][]string
	base := crowds[wayDray]
	for _, w := range ways {
		c := crowds[w.name]
		if c == nil {
			continue
		}
		rows = append(rows, []string{
			w.name, fmt.Sprint(c.count()), millis(c.quantile(0.5)), millis(c.quantile(0.99)), digits(c.rate()),
			factor(ratio(c.quantile(0.5), base.quantile(0.5))),
		})
	}
	return table([]string{"way", "calls", "p50", "p99", "calls/s", "p50 / dray's"}, rows)
}

// page is all that is published of a run.
func page(m machine, one *results, many map[int]map[string]*crowd, verdicts []verdict, trail string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n%s", m, trail, verdictTable(verdicts))
	for _, c := range commands {
		fmt.Fprintf(&b, "\n### `%s`, one call after another\n\n%s", strings.Join(c.argv, " "), serialTable(one, c))
	}
	for _, n := range callers {
		fmt.Fprintf(&b, "\n### `%s`, %d callers at once\n\n%s", strings.Join(commands[0].argv, " "), n, crowdTable(one.ways, many[n]))
	}
	return b.String()
}

// named gives the sample of the way with a name, an empty one if there is none.
func (r *results) named(name string, c command) *sample {
	for _, w := range r.ways {
		if w.name == name {
			return r.of(w, c)
		}
	}
	return &sample{}
}

// target is a promise: another way takes at least so many times as long as a warm call into the container over HTTP, at p50.
type target struct {
	way   string
	least float64
}

var targets = []target{{wayDevcontainer, 100}, {wayDockerExec, 15}}

// verdict is a target with what this run says of it.
type verdict struct {
	target

	command command
	got     float64
}

func (v verdict) met() bool { return v.got >= v.least }

// judge holds the run against every target, for every command.
func judge(r *results) []verdict {
	var all []verdict
	for _, t := range targets {
		for _, c := range commands {
			got := ratio(r.named(t.way, c).quantile(0.5), r.named(wayDray, c).quantile(0.5))
			all = append(all, verdict{target: t, command: c, got: got})
		}
	}
	return all
}

func verdictTable(verdicts []verdict) string {
	var rows [][]string
	for _, v := range verdicts {
		word := "met"
		if !v.met() {
			word = "**missed**"
		}
		rows = append(rows, []string{
			fmt.Sprintf("%s takes at least %s times as long as %s, %#q", v.way, factor(v.least), wayDray, strings.Join(v.command.argv, " ")),
			factor(v.got), word,
		})
	}
	return table([]string{"target, at p50", "this run", ""}, rows)
}
