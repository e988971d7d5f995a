package command

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscapeLine(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"plain":             {"go test ./...", "go test ./..."},
		"other scripts":     {"größe 大きさ", "größe 大きさ"},
		"colour":            {"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		"title":             {"\x1b]0;owned\a", `\x1b]0;owned\x07`},
		"second half":       {"\u009b31m", `\x9b31m`},
		"lines":             {"a\nb\r\tc", `a\nb\x0d\x09c`},
		"delete":            {"a\x7fb", `a\x7fb`},
		"right to left":     {"user\u202egpj.exe", `user\u202egpj.exe`},
		"hidden":            {"a\u200bb", `a\u200bb`},
		"tag":               {"a\U000e0041b", `a\ue0041b`},
		"no UTF-8":          {"a\xffb", `a\xffb`},
		"replacement":       {"a\ufffdb", `a\ufffdb`},
		"line separators":   {"a\u2028b\u2029", `a\u2028b\u2029`},
		"backslash is fine": {`a\nb`, `a\nb`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := escapeLine(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEscapeTextKeepsLines(t *testing.T) {
	if got := escapeText("a\n\tb\r\x1b[2J"); got != "a\n\tb\\x0d\\x1b[2J" {
		t.Errorf("got %q", got)
	}
}

// FuzzSafe checks that the output has no control codes, and that JSON keeps its value.
func FuzzSafe(f *testing.F) {
	f.Add("a\x1b[31m\u009b\u202e\xff\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, out := range []string{escapeLine(s), strings.NewReplacer("\n", "", "\t", "").
			Replace(escapeText(s))} {
			if strings.ContainsFunc(out, isControlRune) || !utf8.ValidString(out) {
				t.Fatalf("%q became %q", s, out)
			}
		}
		encoded, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		safe := safeJSON(encoded)
		var was, is string
		if json.Unmarshal(encoded, &was) != nil || json.Unmarshal(safe, &is) != nil || was != is {
			t.Fatalf("%s became %s", encoded, safe)
		}
		if strings.ContainsFunc(string(safe),
			func(r rune) bool { return isControlRune(r) && r != utf8.RuneError }) {
			t.Fatalf("%q has control codes", safe)
		}
	})
}
