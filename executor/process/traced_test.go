package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/executor/process"
)

// Arguments that make the test binary a tracer, which attaches to a process and never waits for it.
const (
	traceArg     = "trace-for-test"
	interruptArg = "interrupt-for-test" // it stops the process too
)

func traceForTest(arg, pid string) {
	const ptraceSeize, ptraceInterrupt = 0x4206, 0x4207
	runtime.LockOSThread()
	n, _ := strconv.Atoi(pid)
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceSeize, uintptr(n), 0, 0, 0,
		0); errno != 0 {
		fmt.Println(errno)
		os.Exit(1)
	}
	if arg == interruptArg {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceInterrupt, uintptr(n), 0, 0, 0, 0)
	}
	fmt.Println("seized")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends it
}

// trace starts a tracer for pid. release ends it.
func trace(t *testing.T, pid int) (release func()) { return startTracer(t, traceArg, pid) }

// interrupt is trace with a tracer that stops the process.
func interrupt(t *testing.T, pid int) (release func()) { return startTracer(t, interruptArg, pid) }

func startTracer(t *testing.T, arg string, pid int) (release func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", arg, strconv.Itoa(pid))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "seized" {
		t.Fatalf("the tracer printed %q", line)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// cpuTicks returns the CPU time of a process in hundredths of a second.
func cpuTicks(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return user + system
}

// canHideProcesses is set if a tool has CAP_SYS_ADMIN: then only wait4 proves that none is left.
var canHideProcesses = func() bool {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0)
	return err == nil && has == 1
}()

// A tracer that does not wait for its process delays the result only for a moment and costs no CPU
// time. The exit status is reported as unknown (EX-09).
func TestTracedEnd(t *testing.T) {
	needRoot(t)
	pool := newPool(t)
	p := shell(t, pool, "echo $PPID; read line; exit 3", 20*time.Millisecond)
	supervisor := firstPid(t, p)
	release := trace(t, p.Pid)
	defer release()
	_, _ = p.Stdin().Write([]byte("go on\n"))
	got := collect(p)
	if !errors.Is(got.err, process.ErrTraced) || len(got.exit.Survivors) != 0 ||
		got.exit.Proven == canHideProcesses {
		t.Errorf("got %+v", got)
	}
	if ticks := cpuTicks(t, supervisor); ticks > 100 { // a second of a core
		t.Errorf("the supervisor used %d ticks", ticks)
	}
	if again := collect(shell(t, pool, "exit 4", 0)); again.exit.Code != 4 || again.err != nil {
		t.Errorf("the next call: %+v", again)
	}
}

// Stop on a traced process reports that it was killed (EX-09).
func TestTracedStop(t *testing.T) {
	needRoot(t)
	pool := newPool(t)
	p := shell(t, pool, "echo $PPID; sleep 600", 0)
	firstPid(t, p)
	release := trace(t, p.Pid)
	defer release()
	p.Stop(20 * time.Millisecond)
	if got := collect(p); got.err != nil || got.exit.Signal != syscall.SIGKILL ||
		len(got.exit.Survivors) != 0 {
		t.Errorf("got %+v", got)
	}
}

// firstPid reads the first line that a process prints.
func firstPid(t *testing.T, p *process.Process) int {
	t.Helper()
	line := make([]byte, 16)
	n, err := p.Stdout().Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
