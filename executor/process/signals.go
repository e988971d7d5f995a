package process

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// names are the signals of Linux on amd64 and arm64, by number (signal(7)).
var names = [...]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT",
	7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2",
	13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT",
	19: "SIGSTOP", 20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU", 23: "SIGURG", 24: "SIGXCPU",
	25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO", 30: "SIGPWR",
	31: "SIGSYS",
}

// SignalName returns the name of a signal, such as "SIGKILL" or "SIGRTMIN+1".
func SignalName(sig syscall.Signal) string {
	n := int(sig)
	switch {
	case n > 0 && n < len(names):
		return names[n]
	case n >= rtMin && n <= rtMax:
		return fmt.Sprintf("SIGRTMIN+%d", n-rtMin)
	default:
		return fmt.Sprintf("SIG%d", n)
	}
}

// The real-time signals that programs can use. The C libraries use the two below them.
const (
	rtMin = 34
	rtMax = 64
)

// ParseSignal parses the name of a signal in any case, with or without SIG, or its number, 1 to 64.
func ParseSignal(text string) (syscall.Signal, bool) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return syscall.Signal(n), n >= 1 && n <= rtMax
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	for n := 1; n <= rtMax; n++ {
		if sig := syscall.Signal(n); SignalName(sig) == name && (n < len(names) || n >= rtMin) {
			return sig, true
		}
	}
	return 0, false
}

// SignalNames returns the names of the signals below the real-time signals, by number.
func SignalNames() []string { return slices.Clone(names[1:]) }
