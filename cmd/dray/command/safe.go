package command

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escapeLine makes a text harmless in one line of a terminal: what moves the cursor, changes colours, reverses the reading direction or is no UTF-8 is
// shown as an escape.
func escapeLine(s string) string { return escape(s, "") }

// escapeText is escapeLine for several lines.
func escapeText(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return isControlRune(r) && !strings.ContainsRune(keep, r) }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case strings.ContainsRune(keep, r) || !isControlRune(r):
			b.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isControlRune says which characters act on a terminal instead of being shown: the control codes of both halves, and the format characters, which
// reorder or hide what stands beside them. RuneError counts, since it stands for bytes that are no UTF-8.
func isControlRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
}

// safeJSON escapes within JSON what JSON itself lets stand. Such characters occur in its strings only, so the value stays the same.
func safeJSON(b []byte) []byte {
	s := string(b)
	if !strings.ContainsFunc(s, unsafeInJSON) {
		return b
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case !unsafeInJSON(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return []byte(out.String())
}

func unsafeInJSON(r rune) bool {
	return r >= 0x7f && isControlRune(r) && r != utf8.RuneError
}
