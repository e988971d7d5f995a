package command

import (
	"strings"
	"testing"
)

// People are told what to do about a daemon of another version; what reads stderr is not.
func TestOtherVersion(t *testing.T) {
	for pid, says := range map[int]string{0: "; end it, and the next", 42: "; end it with kill 42, and the next"} {
		if got := versionMismatch("v1\x1b[2J", pid); !strings.Contains(got, "version v1\\x1b[2J, this command of ") || !strings.Contains(got, says) {
			t.Errorf("it says %q", got)
		}
	}
	var err strings.Builder
	(&app{err: &err}).warnVersion("v1", 42)
	if err.Len() > 0 {
		t.Errorf("it says %q to what is no terminal", err.String())
	}
}
