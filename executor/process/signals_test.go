package process

import (
	"strings"
	"syscall"
	"testing"
)

// Every signal is parsed by its name, with and without SIG, in either case, and as its
// number.
func TestParseSignal(t *testing.T) {
	for n := 1; n <= rtMax; n++ {
		sig := syscall.Signal(n)
		name := SignalName(sig)
		forms := []string{name, strings.TrimPrefix(name, "SIG"), strings.ToLower(name)}
		if n > 31 && n < rtMin {
			forms = nil // the C libraries' own have no name
		}
		for _, form := range forms {
			if got, ok := ParseSignal(form); !ok || got != sig {
				t.Errorf("%s is %d, %v", form, got, ok)
			}
		}
	}
	if got, ok := ParseSignal("33"); !ok || got != 33 {
		t.Errorf("33 is %d, %v", got, ok)
	}
	for _, text := range []string{
		"", "SIG", "0", "65", "-1", "+2", "2.0", "SIGSIGINT", "SIG2",
		"SIG33", "SIGRTMIN+31", "INTSIG", " INT", "1e1", "300", "SIGRTMIN",
	} {
		if got, ok := ParseSignal(text); ok {
			t.Errorf("%q is signal %d", text, got)
		}
	}
}
