package command

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// progress tells on stderr what a call waits for. On a terminal one line is rewritten, and gone when the tool begins to speak; elsewhere every
// message is a line.
type progress struct {
	w        io.Writer
	terminal bool
	shown    bool
	last     string
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w)}
}

// show tells a message. The same one is not told twice.
func (p *progress) show(phase, message string) {
	line := "dray: " + safeLine(phase)
	if message != "" {
		line += ": " + safeLine(message)
	}
	if line == p.last {
		return
	}
	p.last = line
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	p.clear()
	fmt.Fprint(p.w, cut(line, columns(p.w)-1))
	p.shown = true
}

// clear takes the line away.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// cut shortens a line to a number of characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n || n < 1 {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}
