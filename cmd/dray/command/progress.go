package command

import (
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// progressDelay is the time before progress is printed to a stderr that is no terminal: readers of
// a tool's stderr want the tool's bytes, and most waits are shorter.
const progressDelay = time.Second

// progress prints on stderr what a call waits for. On a terminal it rewrites one line, and removes
// it when the tool produces output. Elsewhere each message is a line; during the initial delay only
// the latest one is buffered.
type progress struct {
	w        io.Writer
	terminal bool

	mu         sync.Mutex
	quietUntil time.Time
	pending    string
	timer      *time.Timer
	last       string
	shown      bool // a line is on the terminal
}

func newProgress(w io.Writer, delay time.Duration) *progress {
	return &progress{w: w, terminal: isTerminal(w), quietUntil: time.Now().Add(delay)}
}

// syncPhase is the phase of the messages with what a sync has transferred so far.
const syncPhase = "sync"

// show prints a message, unless it is the same as the previous one. Those of a running transfer are
// for terminals only.
func (p *progress) show(phase, message string) {
	if phase == syncPhase && !p.terminal {
		return
	}
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
	switch wait := time.Until(p.quietUntil); {
	case p.terminal:
		p.wipe()
		fmt.Fprint(p.w, cut(line, columns(p.w)-1))
		p.shown = true
	case wait <= 0:
		fmt.Fprintln(p.w, line)
	default:
		p.pending = line
		if p.timer == nil {
			p.timer = time.AfterFunc(wait, p.flush)
		}
	}
}

// count prints on a terminal how far a phase is, after the initial delay.
func (p *progress) count(phase, what string, done, total int64) {
	p.note(phase, fmt.Sprintf("%d of %d %s", done, total, what))
}

// note is show for messages that only a terminal gets, after the initial delay.
func (p *progress) note(phase, message string) {
	if p.terminal && !time.Now().Before(p.quietUntil) {
		p.show(phase, message)
	}
}

// flush prints the pending message.
func (p *progress) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending != "" {
		fmt.Fprintln(p.w, p.pending)
		p.pending = ""
	}
}

// clear removes the line and the pending message. Nothing is printed after it returns.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
	p.pending = ""
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

func (p *progress) wipe() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// cut truncates a line to n runes. A truncated line ends with an ellipsis.
func cut(s string, n int) string {
	switch {
	case utf8.RuneCountInString(s) <= n:
		return s
	case n < 1:
		return ""
	default:
		return string([]rune(s)[:n-1]) + "…"
	}
}
