package command

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// On a narrow terminal paragraphs are filled, and descriptions stay in their column (OP-06).
func TestWrapHelp(t *testing.T) {
	t.Parallel()
	const text = `x runs a program in the environment that the rules choose, byte for
byte, as it is.

Exit codes:
  N      the tool's own exit code

Usage:
  dray x [flags] -- A-LONG-NAME-OF-SOMETHING AND-MORE-OF-IT

Flags:
  -h, --help     help for x
      --sync p   copy this file or directory to the host when it ends`
	const want = `x runs a program in the environment that
the rules choose, byte for byte, as it
is.

Exit codes:
  N      the tool's own exit code

Usage:
  dray x [flags] -- A-LONG-NAME-OF-SOMETHING AND-MORE-OF-IT

Flags:
  -h, --help     help for x
      --sync p   copy this file or
                 directory to the host
                 when it ends`
	if got := wrapHelp(text, 40); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := wrapHelp(text, 100); got != text {
		t.Errorf("a wide terminal has\n%s", got)
	}
}

// No line of a text without long words is too long, and no word is lost (OP-06).
func TestWrapLine(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"", "short", "    --name value   ä description of söme length that goes on and on and on",
		strings.Repeat("word ", 40), strings.Repeat("x", 90) + " y", "  " + strings.Repeat("x", 90) + " y",
	} {
		lines := wrapLine(line, 50, descriptionAt(line))
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > 50 && !strings.Contains(l, strings.Repeat("x", 90)) {
				t.Errorf("%q has %d characters", l, n)
			}
		}
		if got, want := strings.Fields(strings.Join(lines, " ")), strings.Fields(line); strings.Join(got, " ") !=
			strings.Join(want, " ") {
			t.Errorf("%q became %q", line, lines)
		}
	}
}
