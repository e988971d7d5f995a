package process

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// names are Linux's signals on amd64 and arm64, by number (signal(7)).
var names = [...]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1",
	11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP",
	20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU", 23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH",
	29: "SIGIO", 30: "SIGPWR", 31: "SIGSYS",
}

// SignalName gives a signal the name that people know, "SIGKILL"; real-time signals read as
// "SIGRTMIN+n".
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

// The real-time signals that programs can use; the C libraries keep those below for themselves.
const (
	rtMin = 34
	rtMax = 64
)

// ParseSignal reads a signal as people write it: SIGINT, INT, int, SIGRTMIN+1, or its number, 1 to
// 64.
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

// SignalNames are the names of the signals that have one of their own, by number.
func SignalNames() []string { return slices.Clone(names[1:]) }
