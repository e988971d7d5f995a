package command

import (
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// progressPatience is how long a call may wait before anything is said about it where stderr is no
// terminal: whoever reads a tool's stderr wants the tool's bytes, and most waits are over sooner.
const progressPatience = time.Second

// progress tells on stderr what is waited for. On a terminal one line is rewritten, and gone when
// the tool begins to speak; elsewhere every message is a line, and those of the first moments are
// not told but for the last, if the wait goes on.
type progress struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	quiet time.Time // until when nothing is told elsewhere
	held  string
	timer *time.Timer
	last  string
	shown bool
}

func newProgress(w io.Writer, patience time.Duration) *progress {
	return &progress{w: w, terminal: isTerminal(w), quiet: time.Now().Add(patience)}
}

// show tells a message. The same one is not told twice.
func (p *progress) show(phase, message string) {
	line := "dray: " + escapeLine(phase)
	if message != "" {
		line += ": " + escapeLine(message)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if line == p.last {
		return
	}
	p.last = line
	switch wait := time.Until(p.quiet); {
	case p.terminal:
		p.wipe()
		fmt.Fprint(p.w, cut(line, columns(p.w)-1))
		p.shown = true
	case wait <= 0:
		fmt.Fprintln(p.w, line)
	default:
		p.held = line
		if p.timer == nil {
			p.timer = time.AfterFunc(wait, p.flush)
		}
	}
}

// flush tells what was held back.
func (p *progress) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != "" {
		fmt.Fprintln(p.w, p.held)
		p.held = ""
	}
}

// clear says that the wait is over. Nothing is told any more once it returns.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
	p.held = ""
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// wipe takes the line away.
func (p *progress) wipe() {
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
