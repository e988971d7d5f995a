package devcontainer

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// terminalSequence matches what terminals take for commands: CSI, OSC and the short escapes. The byte ranges are ECMA-48's.
var terminalSequence = regexp.MustCompile(`\x1b(?:\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x40-\x5a\x5c-\x5f])`)

// escapeControl shows each character that a terminal would act on as an escape: text from a workspace must not
// look like other text than it is.
func escapeControl(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) { // which invisible and direction marks are not
			out.WriteRune(r)
			continue
		}
		fmt.Fprintf(&out, `\u%04x`, r)
	}
	return out.String()
}

// plainLine makes one line of a program's output: colours and cursor movements go, what a carriage return would have overwritten goes
// too, and the rest is printable and at most limit bytes long.
func plainLine(text string, limit int) string {
	text = terminalSequence.ReplaceAllString(text, "")
	text = strings.TrimRight(text, "\r\n\t ")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	text = escapeControl(strings.ReplaceAll(text, "\t", " "))
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}
