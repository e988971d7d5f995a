package textview_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dray-dev/dray/internal/textview"
)

// Control sequences and overwritten text are removed, as a terminal shows it (SS-06).
func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                            "plain\ttext\n",
		"\x1b[1;31mred\x1b[0m\n":                   "red\n",
		"\x1b]0;title\x07shell\x1b(B":              "shell",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
		"10%\r50%\r100%\ndone\n":                   "100%\ndone\n",
		"downloading\rok":                          "okwnloading",
		"downloading\r\x1b[Kok\r\n":                "ok\n",
		"ab\b\bxy":                                 "xy",
		"a\x00b\x07c":                              "abc",
		"äöü\räx":                                  "äxü",
		"\x1b":                                     "",
		"\x1bPdata":                                "",
	} {
		if got := textview.Plain(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("\x1b[31mred\rx\b\n", 10)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		s = strings.ToValidUTF8(s, "?")
		plain := textview.Plain(s)
		if !utf8.ValidString(plain) || strings.ContainsAny(plain, "\x1b\r\b\x00\x07\x18") {
			t.Errorf("%q becomes %q", s, plain)
		}
		if limit < 0 || limit > 1<<20 {
			return
		}
		text, truncated := textview.Bound(plain, limit, "id")
		if !utf8.ValidString(text) || !truncated && text != plain {
			t.Errorf("%q is bounded to %q", plain, text)
		}
	})
}

// A cut is between characters, and the text says how much is missing (SS-06).
func TestBound(t *testing.T) {
	text, truncated := textview.Bound(strings.Repeat("ä", 100), 21, "ID")
	const want = "äääää\n[... 180 bytes omitted, read them with read_output and id ID ...]\näääää"
	if !truncated || text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if text, truncated := textview.Bound("äö", 4, "ID"); truncated || text != "äö" {
		t.Errorf("a text of the limit becomes %q", text)
	}
}
