package command

import (
	"strings"
	"testing"
	"testing/iotest"
)

// Control codes are escaped wherever a read or a long line ends.
func TestCopyEscaped(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a\nb", "a\nb"},
		{"\x1b[31mred\r\n", `\x1b[31mred\x0d` + "\n"},
		{long + "\a\n", long + `\x07` + "\n"},
	} {
		var got strings.Builder
		if err := copyEscaped(&got, iotest.HalfReader(strings.NewReader(c.text))); err != nil ||
			got.String() != c.want {
			t.Errorf("%.40q became %.40q, %v", c.text, got.String(), err)
		}
	}
}
