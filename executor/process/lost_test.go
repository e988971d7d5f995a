package process_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
)

// aloneArg makes the test binary a program without other children than its pool's, as the agent is.
const aloneArg = "alone-for-test"

// lostReport is the end of a call whose supervisor was killed.
type lostReport struct {
	Lost   bool
	Exit   process.Exit
	Stdout string
	After  string // of the next call
	Slack  string // the timer slack of the program itself
}

func runAlone(script string) {
	process.RestartWithTimerSlack(process.DaemonTimerSlack)
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe",
		Args: []string{"supervisor", superviseArg}, Env: supervisorEnv(), Subreaper: true,
	})
	defer pool.Close()
	slack, _ := os.ReadFile(timerSlackFile)
	r := lostReport{Slack: string(slack)}
	for i, s := range []string{script, "echo next"} {
		p, err := pool.Start(context.Background(),
			process.Spec{Argv: []string{"/bin/sh", "-c", "read go; " + s}, Env: os.Environ(), Dir: "/"})
		if err != nil {
			r.After = err.Error()
			break
		}
		// a supervisor that is killed earlier may not have reported the start
		_, _ = p.Stdin().Write([]byte("\n"))
		got := collect(p)
		if i == 0 {
			r.Lost, r.Exit, r.Stdout = errors.Is(got.err, process.ErrLost), got.exit, got.stdout
		} else {
			r.After = got.stdout
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

// A subreaper pool kills what a tool left that killed its supervisor, or that of another call, and
// proves that nothing is left (EX-09).
func TestOrphansOfAKilledSupervisorEnd(t *testing.T) {
	for name, script := range map[string]string{
		"its own":         `setsid sleep 600 & echo $!; setsid sh -c 'trap "" TERM; sleep 600' & echo $!; echo $$; kill -KILL $PPID; sleep 600`,
		"stopped orphan":  `sleep 600 & echo $!; kill -STOP $!; kill -KILL $PPID; sleep 600`,
		"forking orphan":  `echo $$; kill -KILL $PPID; while :; do setsid sleep 600 & done`,
		"leader ends too": `setsid sleep 600 & echo $!; kill -KILL $PPID`,
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				r := runInAlone(t, withoutSysAdmin, script)
				if !r.Lost || !r.Exit.Proven || len(r.Exit.Survivors) != 0 || r.After != "next\n" {
					t.Errorf("got %+v", r)
				}
				for pid := range strings.FieldsSeq(r.Stdout) {
					if n, err := strconv.Atoi(pid); err != nil || alive(n) {
						t.Errorf("process %s still runs (%v)", pid, err)
					}
				}
			}
		})
	}
}

// Commands that start a program without CAP_SYS_ADMIN, and with mounts of its own.
var (
	withoutSysAdmin = []string{"setpriv", "--bounding-set", "-sys_admin"}
	withOwnMounts   = []string{"unshare", "--mount", "--propagation", "private"}
)

// runInAlone runs a script in a program without other children, which is started by prefix.
func runInAlone(t *testing.T, prefix []string, script string) lostReport {
	t.Helper()
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(prefix, []string{self, aloneArg, script})
	return reportAlone(t, exec.Command(args[0], args[1:]...))
}

// A tool that can mount something over /proc hides its processes. Survivors are then unknown, and
// not none (EX-09).
func TestSurvivorsAreUnknownWithoutProc(t *testing.T) {
	const hide = `setsid sleep 600 >/dev/null 2>&1 & echo $!; mount -t tmpfs none /proc; `
	for name, script := range map[string]string{
		"the supervisor lives":  hide + "exit 0",
		"the supervisor killed": hide + "kill -KILL $PPID; sleep 600",
	} {
		t.Run(name, func(t *testing.T) {
			r := runInAlone(t, withOwnMounts, script)
			pid, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
			if err != nil {
				t.Fatalf("got %+v", r)
			}
			if alive(pid) && r.Exit.Proven && len(r.Exit.Survivors) == 0 {
				t.Errorf("process %d runs, and no survivors are reported: %+v", pid, r.Exit)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		})
	}
}

// A pool without Subreaper kills no other child of its program, and reports survivors as unknown.
func TestKilledSupervisorOnTheHost(t *testing.T) {
	stranger := exec.Command("/bin/sleep", "600")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	pool := newPool(t)
	p := shell(t, pool, `read go; echo $$; exec 1>&- 2>&-; kill -KILL $PPID; exec sleep 600`, 0)
	_, _ = p.Stdin().Write([]byte("\n"))
	got := collect(p)
	pid, err := strconv.Atoi(strings.TrimSpace(got.stdout))
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if !errors.Is(got.err, process.ErrLost) || got.exit.Proven {
		t.Errorf("got %+v", got)
	}
	if !alive(stranger.Process.Pid) {
		t.Error("a child that does not belong to the pool was killed")
	}
	exit, err := process.Adapt(p).Wait()
	if dray.CodeOf(err) != dray.CodeAgentLost || exit.Survivors.Proven {
		t.Errorf("got %+v, %v", exit, err)
	}
}

// A supervisor that is given up, because it reports no end in time, kills the processes of its call
// all the same: without a cgroup nothing else knows them (EX-09, EX-10).
func TestSupervisorThatIsGivenUp(t *testing.T) {
	pools := map[string]func(testing.TB) *process.Pool{"plain": newPool, "in groups": newGroupedPool}
	for name, newPool := range pools {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t)
			p := shell(t, pool, `trap "" TERM; setsid sleep 600 & echo $!; while :; do sleep 1; done`, 0)
			pid := firstPid(t, p)
			p.Stop(time.Hour)
			p.GiveUp()
			if got := collect(p); !errors.Is(got.err, process.ErrLost) {
				t.Errorf("got %+v", got)
			}
			waitEnded(t, p.Pid)
			waitEnded(t, pid)
			if got := collect(shell(t, pool, "echo next", 0)); got.stdout != "next\n" {
				t.Errorf("the next call: %+v", got)
			}
		})
	}
}

// waitEnded waits until a process has ended, also if another process reaps it.
func waitEnded(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); alive(pid); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d runs: %v", pid, stat(pid))
		}
	}
}

// withStoppedSupervisor starts a tool that keeps its supervisor stopped, and returns both it and
// its pid.
func withStoppedSupervisor(t *testing.T, pool *process.Pool) (p *process.Process, pid int) {
	t.Helper()
	// a supervisor that is stopped earlier does not report the start
	p = shell(t, pool, `read go; echo $$; while kill -STOP $PPID; do :; done`, 0)
	_, _ = p.Stdin().Write([]byte("\n"))
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for !stopped(parentOf(pid)) { // it is stopped soon
	}
	return p, pid
}

// Stop ends a call whose tool has stopped its supervisor.
func TestStoppedSupervisor(t *testing.T) {
	pool := newPool(t)
	p, pid := withStoppedSupervisor(t, pool)
	p.Stop(0)
	if got := collect(p); got.err != nil || !got.exit.Proven || alive(pid) {
		t.Errorf("got %+v, alive %v", got, alive(pid))
	}
}

// A supervisor that was stopped is continued: its call ends with its tool (EX-09).
func TestStoppedSupervisorIsContinued(t *testing.T) {
	p := shell(t, newPool(t), "read go; kill -STOP $PPID; exit 3", 0)
	defer time.AfterFunc(20*time.Second, func() { p.Stop(0) }).Stop()
	_, _ = p.Stdin().Write([]byte("\n"))
	if got := collect(p); got.err != nil || got.exit.Code != 3 {
		t.Errorf("got %+v", got)
	}
}

// A start on an idle supervisor that a tracer holds is done by another supervisor.
func TestHeldSupervisorIsReplaced(t *testing.T) {
	needRoot(t)
	pool := newPool(t)
	held := collect(shell(t, pool, "echo $PPID", 0)).stdout
	pid, err := strconv.Atoi(strings.TrimSpace(held))
	if err != nil {
		t.Fatal(err)
	}
	defer interrupt(t, pid)()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	p, err := pool.Start(ctx, process.Spec{Argv: []string{"/bin/sh", "-c", "echo $PPID"}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(p); got.err != nil || got.stdout == held {
		t.Errorf("got %+v", got)
	}
}

// A start that fails because its call has ended does not happen, also if its supervisor was stopped
// meanwhile.
func TestAbandonedStartDoesNotHappen(t *testing.T) {
	pool, dir, abandoned := newPool(t), t.TempDir(), 0
	for i := range 300 {
		supervisor := collect(shell(t, pool, "echo $PPID", 0)).stdout
		pid, err := strconv.Atoi(strings.TrimSpace(supervisor))
		if err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%30)*100*time.Microsecond)
		marker := fmt.Sprintf("%s/%d", dir, i)
		p, err := pool.Start(ctx, process.Spec{Argv: []string{"/bin/touch", marker}, Dir: "/"})
		cancel()
		if err == nil {
			collect(p)
			_ = os.Remove(marker)
		} else if abandoned++; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	pool.Close() // nothing starts any more
	ran, err := os.ReadDir(dir)
	if err != nil || len(ran) > 0 || abandoned == 0 {
		t.Errorf("%d of %d abandoned starts ran (%v)", len(ran), abandoned, err)
	}
}

// A process that SIGKILL does not end is reported as a survivor soon after the grace (EX-09).
func TestUnkillableProcess(t *testing.T) {
	needRoot(t)
	group := fmt.Sprintf("/sys/fs/cgroup/freezer/dray-test-%d", os.Getpid())
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Skipf("no freezer of cgroup v1: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(group+"/"+name, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	p := shell(t, newPool(t), "exec sleep 600", 0)
	defer func() {
		write("freezer.state", "THAWED")
		waitReaped(t, p.Pid)
		_ = syscall.Rmdir(group)
	}()
	write("cgroup.procs", strconv.Itoa(p.Pid))
	write("freezer.state", "FROZEN")
	begun := time.Now()
	p.Stop(0)
	got := collect(p)
	if took := time.Since(begun); took > 2500*time.Millisecond || !got.exit.Proven ||
		!slices.Equal(got.exit.Survivors, []int{p.Pid}) {
		t.Errorf("after %s got %+v", took, got)
	}
}

// stat returns the fields of /proc/pid/stat after the name.
func stat(pid int) []string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

func stopped(pid int) bool { return strings.HasPrefix(stat(pid)[0], "T") }

func parentOf(pid int) int {
	n, _ := strconv.Atoi(stat(pid)[1])
	return n
}

// A process that got the tool's stdout and writes to it after the tool has ended does not delay the
// reader.
func TestWriterAfterTheEnd(t *testing.T) {
	pool := newPool(t)
	p := shell(t, pool, "echo $$; read end", 0)
	r := bufio.NewReaderSize(p.Stdout(), 16)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile("/proc/"+strings.TrimSpace(line)+"/fd/1", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for {
			if _, err := held.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	_ = p.Stdin().Close()
	if got := collect(p); got.err != nil {
		t.Errorf("got %v", got.err)
	}
	_ = held.Close()
	<-flooded
}

// A start that exceeds the limits of the kernel fails.
func TestArgvTooLong(t *testing.T) {
	pool := newPool(t)
	for _, size := range []int{3 << 20, 20 << 20} {
		_, err := pool.Start(t.Context(), process.Spec{Argv: []string{
			"/bin/true",
			strings.Repeat("x", size),
		}, Dir: "/"})
		var failed *process.StartError
		if !errors.As(err, &failed) || !errors.Is(err, syscall.E2BIG) ||
			failed.Code() != dray.CodeLimitExceeded {
			t.Errorf("%d bytes: got %v", size, err)
		}
	}
	if got := collect(shell(t, pool, "echo next", 0)); got.stdout != "next\n" {
		t.Errorf("got %+v", got)
	}
}

// Close does not wait forever for a supervisor that its tool stops again and again. Close kills it
// after 6 s.
func TestCloseWithStoppedSupervisor(t *testing.T) {
	pool := newPool(t)
	p, pid := withStoppedSupervisor(t, pool)
	begun := time.Now()
	pool.Close()
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("Close took %s", took)
	}
	if got := collect(p); got.err == nil || alive(pid) {
		t.Errorf("got %+v, alive %v", got, alive(pid))
	}
}
