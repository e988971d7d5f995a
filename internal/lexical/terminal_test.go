package lexical

import (
	"strings"
	"testing"
)

func TestPlainLine(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[1m\x1b[31mred\x1b[39m\x1b[22m\r\n": "red",
		"10%\r20%\r100%\n":                       "100%",
		"a\tb":                                   "a b",
		"\x1b]0;title\x07text\x1b]8;;x\x1b\\link": "textlink",
		"bell\x07 back\x08":                       `bell\u0007 back\u0008`,
		"é" + strings.Repeat("é", 200):            strings.Repeat("é", 50) + "…",
		"\x1b[31":                                 `\u001b[31`,
		"\xff":                                    "\ufffd",
	} {
		if got := PlainLine(text, 101); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
