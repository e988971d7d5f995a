package process_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
			fmt.Fprintln(os.Stderr, err)
			return // without a report the parent's test fails
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
				r := reportAlone(t, exec.Command("/proc/self/exe", aloneArg, script))
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

// withStoppedSupervisor starts a tool that stops its supervisor, and returns it with its pid.
func withStoppedSupervisor(t *testing.T, pool *process.Pool) (p *process.Process, pid int) {
	t.Helper()
	// a supervisor that is stopped earlier does not report the start
	p = shell(t, pool, `read go; echo $$; kill -STOP $PPID; sleep 600`, 0)
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

// Close does not wait forever for a stopped supervisor.
func TestCloseWithStoppedSupervisor(t *testing.T) {
	pool := newPool(t)
	p, pid := withStoppedSupervisor(t, pool)
	begun := time.Now()
	pool.Close()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	if got := collect(p); got.err == nil || alive(pid) {
		t.Errorf("got %+v, alive %v", got, alive(pid))
	}
}
