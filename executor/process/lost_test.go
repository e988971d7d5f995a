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

// aloneArg makes the test binary a program that is there for its pool, as the agent is.
const aloneArg = "alone-for-test"

// lostReport is how a call ended whose supervisor was killed.
type lostReport struct {
	Lost   bool
	Exit   process.Exit
	Stdout string
	After  string // of the next call
}

func runAlone(script string) {
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe",
		Args: []string{"supervisor", superviseArg}, Env: supervisorEnv(), Subreaper: true,
	})
	defer pool.Close()
	var r lostReport
	for i, s := range []string{script, "echo next"} {
		p, err := pool.Start(context.Background(),
			process.Spec{Argv: []string{"/bin/sh", "-c", "read go; " + s}, Env: os.Environ(), Dir: "/"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return // without a report the parent's test fails
		}
		// a supervisor that is killed sooner may not have told of the start
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

// EX-09: a tool that kills its supervisor wins nothing where the pool's program is alone: what it
// left comes to that program and is ended, and the end of all is proved. It holds for other calls'
// supervisors too.
func TestOrphansOfAKilledSupervisorEnd(t *testing.T) {
	for name, script := range map[string]string{
		"its own":         `setsid sleep 600 & echo $!; setsid sh -c 'trap "" TERM; sleep 600' & echo $!; echo $$; kill -KILL $PPID; sleep 600`,
		"stopped orphan":  `sleep 600 & echo $!; kill -STOP $!; kill -KILL $PPID; sleep 600`,
		"forking orphan":  `echo $$; kill -KILL $PPID; while :; do setsid sleep 600 & done`,
		"leader ends too": `setsid sleep 600 & echo $!; kill -KILL $PPID`,
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				cmd := exec.Command("/proc/self/exe", aloneArg, script)
				cmd.Env, cmd.Stderr = supervisorEnv(), os.Stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				var r lostReport
				if err := json.Unmarshal(out, &r); err != nil {
					t.Fatal(err)
				}
				if !r.Lost || !r.Exit.Proven || len(r.Exit.Survivors) != 0 || r.After != "next\n" {
					t.Errorf("got %+v", r)
				}
				for pid := range strings.FieldsSeq(r.Stdout) {
					if n, err := strconv.Atoi(pid); err != nil || alive(n) {
						t.Errorf("%s is still there (%v)", pid, err)
					}
				}
			}
		})
	}
}

// On the host the daemon may have children that are not the pool's: none of them is touched, and
// nothing is claimed to be proved.
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
		t.Error("a child that is not the pool's was ended")
	}
	exit, err := process.Adapt(p).Wait()
	if dray.CodeOf(err) != dray.CodeAgentLost || exit.Survivors.Proven {
		t.Errorf("got %+v, %v", exit, err)
	}
}

// A tool with its supervisor's rights can stop it. Stop ends the call all the same.
func TestStoppedSupervisor(t *testing.T) {
	pool := newPool(t)
	// stopped sooner, it would not have told of the start
	p := shell(t, pool, `read go; echo $$; kill -STOP $PPID; sleep 600`, 0)
	_, _ = p.Stdin().Write([]byte("\n"))
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for !stopped(parentOf(pid)) { // it stops itself at any moment
	}
	p.Stop(0)
	if got := collect(p); got.err != nil || !got.exit.Proven || alive(pid) {
		t.Errorf("got %+v, alive %v", got, alive(pid))
	}
}

// stat gives the fields of /proc/pid/stat behind the name.
func stat(pid int) []string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

func stopped(pid int) bool { return strings.HasPrefix(stat(pid)[0], "T") }

func parentOf(pid int) int {
	n, _ := strconv.Atoi(stat(pid)[1])
	return n
}

// One who got the tool's stream from it, and writes without end after the tool is over, holds up
// nobody.
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

// What the kernel would not take is refused before a supervisor sees it.
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

// A pool that is closed does not wait for ever for a supervisor that was stopped.
func TestCloseWithStoppedSupervisor(t *testing.T) {
	pool := newPool(t)
	// stopped sooner, it would not have told of the start
	p := shell(t, pool, `read go; echo $$; kill -STOP $PPID; sleep 600`, 0)
	_, _ = p.Stdin().Write([]byte("\n"))
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	for !stopped(parentOf(pid)) {
	}
	begun := time.Now()
	pool.Close()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if got := collect(p); got.err == nil || alive(pid) {
		t.Errorf("got %+v, alive %v", got, alive(pid))
	}
}
