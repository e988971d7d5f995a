package process

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The Go runtime has a thread that sleeps for 20 µs at a time while any goroutine runs. Where a
// process is busy for a millisecond with system calls that is a third of all its system calls. A
// thread's timer slack is how late the kernel may end such a sleep. A process inherits it from the
// thread that started it, and its threads inherit it from each other: daemon, agent and supervisors
// are started with a high slack for the runtime's threads. Supervisors reset their main thread,
// from which tools inherit it, to the value of timerSlackEnv. See
// docs/adr/0028-runtime-timer-slack.md.
const timerSlackEnv = "DRAY_TIMER_SLACK"

// Timer slacks. That of the daemon is lower, because its timers are those of its callers.
const (
	AgentTimerSlack  = 10 * time.Millisecond
	DaemonTimerSlack = 500 * time.Microsecond
)

// ownTimerSlack returns the timer slack in nanoseconds that this program was given by its parent.
var ownTimerSlack = sync.OnceValue(func() int {
	if n, err := strconv.Atoi(os.Getenv(timerSlackEnv)); err == nil {
		return n
	}
	n, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return n
})

// withTimerSlack calls f on a thread with the given timer slack.
func withTimerSlack(slack time.Duration, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		setTimerSlack(int(slack))
		defer setTimerSlack(before)
	}
	f()
}

// setTimerSlack sets the timer slack of this thread. Without it only more time is used.
func setTimerSlack(ns int) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0)
}

// RestartWithTimerSlack executes this program again with a timer slack and with env appended to its
// environment, unless it was started so. It returns if that is not possible.
func RestartWithTimerSlack(slack time.Duration, env ...string) {
	own := ownTimerSlack()
	if _, ok := os.LookupEnv(timerSlackEnv); ok {
		_ = os.Unsetenv(timerSlackEnv) // it is not for other programs
		return
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	all := slices.Concat(os.Environ(), env, []string{timerSlackEnv + "=" + strconv.Itoa(own)})
	withTimerSlack(slack, func() { _ = unix.Exec(self, os.Args, all) })
}
