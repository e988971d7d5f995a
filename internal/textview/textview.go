// Package textview turns the output of tools into text for models: as a reader of a terminal sees
// it, and of a bounded size (SS-06).
package textview

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// MaxBytes is the maximum size in bytes of a stream that a caller can ask for.
const MaxBytes = 1 << 20

// View returns the output of a tool as a model gets it: [Plain], and with [Bound] of at most about
// limit bytes.
func View(s string, limit int, id string) (text string, truncated bool) {
	return Bound(Plain(s), limit, id)
}

// controls are the control sequences of terminals: CSI, OSC, and the two-character escapes
// (ECMA-48).
var controls = regexp.MustCompile(
	`\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|` + // CSI
		`\][^\x07\x1b]*(?:\x07|\x1b\\)?|` + // OSC
		`[PX^_][^\x1b]*(?:\x1b\\)?|` + // DCS, SOS, PM, APC
		`[\x20-\x2f]*[\x30-\x7e])`)

// eraseLine is the sequence that erases the rest of a line, which progress bars write after a
// carriage return. erase stands for it until the line is made.
var eraseLine = regexp.MustCompile(`\x1b\[[02]?K`)

const erase = "\x18"

// Plain returns a text as a reader of a terminal sees it (SS-06): without control sequences,
// and of lines that were overwritten by carriage returns, as progress bars are, only the last
// state.
func Plain(s string) string {
	if !strings.ContainsAny(s, "\x1b\r\b\x00\x07"+erase) {
		return s
	}
	s = eraseLine.ReplaceAllString(s, erase)
	s = strings.ReplaceAll(controls.ReplaceAllString(s, ""), "\x1b", "")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	for i, line := range strings.Split(s, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(overwritten(line))
	}
	return b.String()
}

// overwritten returns what is visible of a line with carriage returns and backspaces.
func overwritten(line string) string {
	if !strings.ContainsAny(line, "\r\b\x00\x07"+erase) {
		return line
	}
	var cells []rune
	at := 0
	for _, r := range line {
		switch {
		case r == '\r':
			at = 0
		case r == '\b':
			at = max(at-1, 0)
		case string(r) == erase:
			cells = cells[:min(at, len(cells))]
		case r < ' ' && r != '\t':
		case at < len(cells):
			cells[at] = r
			at++
		default:
			cells = append(cells, r)
			at++
		}
	}
	return strings.TrimRight(string(cells), " ")
}

// Bound returns a text of at most about limit bytes: its head and its tail, and between them a line
// with the number of bytes that were left out, and the id of the call with which to read them. A
// text of at most limit bytes does not change.
func Bound(s string, limit int, id string) (text string, truncated bool) {
	if len(s) <= limit {
		return s, false
	}
	head := Prefix(s, limit/2)
	tail := s[len(s)-limit/2:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	omitted := len(s) - len(head) - len(tail)
	return fmt.Sprintf("%s\n[... %d bytes omitted, read them with read_output and id %s ...]\n%s",
		head, omitted, id, tail), true
}

// Prefix returns at most n bytes of a text, in whole characters.
func Prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
