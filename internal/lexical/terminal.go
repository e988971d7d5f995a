package lexical

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// terminalSequence matches terminal control sequences: CSI, OSC and short escapes (ECMA-48).
var terminalSequence = LazyRegexp(`\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|` +
	`\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x40-\x5a\x5c-\x5f])`)

// EscapeControl escapes the characters that a terminal interprets, and invisible ones.
func EscapeControl(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) { // false for invisible characters and direction marks
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// PlainLine returns a line of a program's output without control sequences and what a carriage
// return would have overwritten, printable, and truncated to limit bytes.
func PlainLine(text string, limit int) string {
	text = terminalSequence().ReplaceAllString(text, "")
	text = strings.TrimRight(text, "\r\n\t ")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	text = EscapeControl(strings.ReplaceAll(text, "\t", " "))
	return Truncate(text, limit)
}

// LazyRegexp returns a function that compiles a pattern when it is first called.
func LazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
