package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray/executor/process"
)

// TestMain runs this binary as a supervisor, or as another helper of the tests.
const superviseArg = "supervise-for-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == traceArg || os.Args[1] == interruptArg) {
		traceForTest(os.Args[1], os.Args[2])
		return
	}
	if len(os.Args) == 2 && os.Args[1] == superviseArg {
		if err := process.Supervise(3); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == aloneArg {
		runAlone(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

func newPool(t testing.TB) *process.Pool {
	t.Helper()
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe",
		Args: []string{"supervisor", superviseArg}, Env: supervisorEnv(),
	})
	t.Cleanup(pool.Close)
	return pool
}

// supervisorEnv omits the second that the race detector sleeps at the end of a program.
func supervisorEnv() []string { return append(os.Environ(), "GORACE=atexit_sleep_ms=0") }

// ended is the end of a process, with its output.
type ended struct {
	stdout, stderr string
	exit           process.Exit
	err            error
}

func collect(p *process.Process) ended {
	var out, errOut bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&errOut, p.Stderr())
	}()
	_, _ = io.Copy(&out, p.Stdout())
	<-done
	exit, err := p.Wait()
	return ended{out.String(), errOut.String(), exit, err}
}

func start(t testing.TB, pool *process.Pool, spec process.Spec) *process.Process {
	t.Helper()
	if spec.Env == nil {
		spec.Env = os.Environ()
	}
	if spec.Dir == "" {
		spec.Dir = "/"
	}
	p, err := pool.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start %q: %v", spec.Argv, err)
	}
	return p
}

func shell(t testing.TB, pool *process.Pool, script string, grace time.Duration) *process.Process {
	t.Helper()
	return start(t, pool, process.Spec{Argv: []string{"/bin/sh", "-c", script}, Grace: grace})
}

// The exit code or the signal of the tool is reported (EX-12).
func TestExitStatus(t *testing.T) {
	pool := newPool(t)
	for _, c := range []struct {
		script string
		code   int
		signal syscall.Signal
	}{
		{"exit 0", 0, 0},
		{"exit 3", 3, 0},
		{"exit 255", 255, 0},
		{"kill -TERM $$", 0, syscall.SIGTERM},
		{"kill -KILL $$", 0, syscall.SIGKILL},
		{"kill -SEGV $$", 0, syscall.SIGSEGV},
	} {
		p := shell(t, pool, c.script, 0)
		_ = p.Stdin().Close()
		got := collect(p)
		if got.err != nil || got.exit.Code != c.code || got.exit.Signal != c.signal ||
			got.exit.Leftover != 0 || got.exit.Survivors != nil {
			t.Errorf("%q: got %+v", c.script, got)
		}
	}
}

// The tool receives the exact bytes of argv (EX-04).
func TestArgvIsExact(t *testing.T) {
	pool := newPool(t)
	odd := []string{"", " ", "$HOME `id`", "a\nb", "\xff\xfe", "1e3", "0x10", "--", "ü"}
	p := start(t, pool, process.Spec{Argv: append([]string{"/usr/bin/printf", "%s|"}, odd...)})
	if got, want := collect(p).stdout, strings.Join(odd, "|")+"|"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The tool inherits no fd above 2, has the umask 0022, and no blocked or ignored signal. It leads a
// session (EX-16).
func TestFreshProcess(t *testing.T) {
	pool := newPool(t)
	got := collect(shell(t, pool, `umask; grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd; cut -d' ' -f1,5,6 /proc/$$/stat; echo $$`, 0))
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	// ls opens 3 itself
	want := []string{
		"0022", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "0", "1", "2",
		"3",
	}
	if len(lines) != len(want)+2 || strings.Join(lines[:len(want)], "|") != strings.Join(want, "|") {
		t.Fatalf("got %q", lines)
	}
	pid := lines[len(lines)-1]
	if ids := lines[len(lines)-2]; ids != pid+" "+pid+" "+pid {
		t.Errorf("pid, group, session are %q, want all %s", ids, pid)
	}
}

func TestStartErrors(t *testing.T) {
	pool := newPool(t)
	dir := t.TempDir()
	plain := dir + "/plain"
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	noInterpreter := dir + "/nointerp"
	if err := os.WriteFile(noInterpreter, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		spec     process.Spec
		step     process.Step
		errno    syscall.Errno
		notFound bool
	}{
		{
			"absent from PATH",
			process.Spec{Argv: []string{"no-such-program"}},
			process.StepExec,
			syscall.ENOENT, true,
		},
		{
			"absent path",
			process.Spec{Argv: []string{"/no/such/program"}},
			process.StepExec,
			syscall.ENOENT, true,
		},
		{"empty name", process.Spec{Argv: []string{""}}, process.StepExec, syscall.ENOENT, true},
		{"not executable", process.Spec{Argv: []string{plain}}, process.StepExec, syscall.EACCES, false},
		{"a folder", process.Spec{Argv: []string{dir}}, process.StepExec, syscall.EACCES, false},
		{
			"no interpreter",
			process.Spec{Argv: []string{noInterpreter}},
			process.StepExec, syscall.ENOENT,
			true,
		},
		{
			"absent folder",
			process.Spec{Argv: []string{"/bin/true"}, Dir: "/no/such"},
			process.StepDir,
			syscall.ENOENT, false,
		},
		{
			"a file as folder",
			process.Spec{Argv: []string{"/bin/true"}, Dir: plain},
			process.StepDir,
			syscall.ENOTDIR, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.spec.Dir == "" {
				c.spec.Dir = "/"
			}
			_, err := pool.Start(t.Context(), c.spec)
			var start *process.StartError
			if !errors.As(err, &start) || start.Step != c.step || !errors.Is(start.Err, c.errno) ||
				start.NotFound() != c.notFound {
				t.Errorf("got %v (%+v)", err, start)
			}
		})
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
}

func TestUser(t *testing.T) {
	needRoot(t)
	pool := newPool(t)
	user := &process.Credential{UID: 4711, GID: 4712, Groups: []uint32{4712, 9}}
	p := start(t, pool, process.Spec{Argv: []string{
		"/bin/sh", "-c",
		"id -u; id -G; echo again >/dev/stderr; grep CapEff /proc/self/status",
	}, User: user})
	got := collect(p)
	if got.stdout != "4711\n4712 9\nCapEff:\t0000000000000000\n" || got.stderr != "again\n" {
		t.Errorf("got %+v", got)
	}
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Start(t.Context(), process.Spec{
		Argv: []string{"/bin/true"}, Dir: private,
		User: user,
	})
	var failed *process.StartError
	if !errors.As(err, &failed) || failed.Step != process.StepDir || !errors.Is(err, syscall.EACCES) {
		t.Errorf("a directory of another user: got %v", err)
	}
}

func TestStdin(t *testing.T) {
	pool := newPool(t)
	p := start(t, pool, process.Spec{Argv: []string{"/usr/bin/sha256sum"}})
	blob := bytes.Repeat([]byte{0, 1, 0xff, '\n'}, 1<<18)
	go func() {
		_, _ = p.Stdin().Write(blob)
		_ = p.Stdin().Close()
	}()
	got := collect(p)
	want, err := exec.Command("/bin/sh", "-c", `printf '\000\001\377\n%.0s' $(seq 262144) | sha256sum`).Output()
	if err != nil || got.stdout != string(want) {
		t.Errorf("got %q, want %q (%v)", got.stdout, want, err)
	}
}

func TestStdinUnread(t *testing.T) {
	pool := newPool(t)
	p := start(t, pool, process.Spec{Argv: []string{"/bin/sleep", "0.05"}})
	_, err := p.Stdin().Write(make([]byte, 1<<20)) // more than a pipe holds
	if err == nil {
		t.Error("a process that ended without reading accepted 1 MiB")
	}
	if got := collect(p); got.exit.Code != 0 || got.err != nil {
		t.Errorf("got %+v", got)
	}
}

func TestLargeOutputIsComplete(t *testing.T) {
	pool := newPool(t)
	got := collect(shell(t, pool, "head -c 30000000 /dev/zero; head -c 5000000 /dev/zero >&2", 0))
	if len(got.stdout) != 30000000 || len(got.stderr) != 5000000 {
		t.Errorf("got %d and %d bytes", len(got.stdout), len(got.stderr))
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(b, []byte(") Z"))
}

// escapes print the pid of a process that tries to outlive its call (EX-09).
var escapes = map[string]string{
	"plain child":         `sleep 600 & echo $!; wait`,
	"setsid":              `setsid sh -c 'echo $$; exec sleep 600' & wait`,
	"double fork":         `sh -c 'sh -c "echo \$\$; exec sleep 600" & exit' ; sleep 600`,
	"setsid double fork":  `setsid sh -c 'setsid sh -c "echo \$\$; exec sleep 600" & exit'; sleep 600`,
	"TERM ignored":        `sh -c 'trap "" TERM; echo $$; while :; do sleep 600; done' & wait`,
	"leader ignores TERM": `trap "" TERM HUP INT; echo $$; while :; do sleep 600; done`,
	"stopped":             `sleep 600 & echo $!; kill -STOP $!; wait`,
	"environment cleared": `env -i setsid sh -c 'echo $$; exec sleep 600' & wait`,
	"fork chains":         `echo $$; for i in 1 2 3 4; do setsid sh -c 'trap "" TERM; f() { f & exit; }; f' & done; sleep 600`,
	"streams closed":      `setsid sh -c 'echo $$; exec sleep 600 <&- >&- 2>&-' & wait`,
}

// Stop ends every descendant (EX-09).
func TestStopEndsEscapees(t *testing.T) {
	pool := newPool(t)
	for name, script := range escapes {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				p := shell(t, pool, script, 0)
				line := make([]byte, 16)
				n, err := p.Stdout().Read(line)
				if err != nil {
					t.Fatal(err)
				}
				pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
				if err != nil || !alive(pid) {
					t.Fatalf("process %d does not run (%v)", pid, err)
				}
				p.Stop(20 * time.Millisecond)
				if got := collect(p); got.err != nil || len(got.exit.Survivors) != 0 || alive(pid) {
					t.Fatalf("got %+v, alive %v", got, alive(pid))
				}
			}
		})
	}
}

// Leftover processes are ended and counted, and delay neither the result nor the streams (EX-11).
func TestLeftovers(t *testing.T) {
	pool := newPool(t)
	for range 20 {
		got := collect(shell(t, pool, `setsid sleep 600 & sleep 600 & echo out; exit 5`, 10*time.Millisecond))
		if got.err != nil || got.exit.Code != 5 || got.exit.Leftover != 2 || got.stdout != "out\n" {
			t.Fatalf("got %+v", got)
		}
	}
}

// Close ends everything that the pool started, as the daemon's death does (EX-09).
func TestCloseEndsEverything(t *testing.T) {
	pool := newPool(t)
	p := shell(t, pool, escapes["setsid double fork"], time.Minute)
	line := make([]byte, 16)
	n, err := p.Stdout().Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	pool.Close()
	if alive(pid) {
		t.Errorf("process %d still runs", pid)
	}
	if _, err := p.Wait(); !errors.Is(err, process.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if _, err := pool.Start(t.Context(),
		process.Spec{Argv: []string{"/bin/true"}, Dir: "/"}); !errors.Is(err, process.ErrClosed) {
		t.Errorf("a closed pool: got %v", err)
	}
}

func TestSupervisorIsReused(t *testing.T) {
	pool := newPool(t)
	parents := map[string]bool{}
	for range 5 {
		parents[collect(shell(t, pool, "echo $PPID", 0)).stdout] = true
	}
	if len(parents) != 1 {
		t.Errorf("five calls, one after the other, used %d supervisors", len(parents))
	}
}

func TestConcurrentCalls(t *testing.T) {
	pool := newPool(t)
	const n = 64
	results := make(chan ended, n)
	for i := range n {
		p := shell(t, pool, fmt.Sprintf("echo %d; exit %d", i, i), 0)
		go func() { results <- collect(p) }()
	}
	seen := map[string]bool{}
	for range n {
		got := <-results
		if got.err != nil || got.stdout != fmt.Sprintln(got.exit.Code) {
			t.Errorf("got %+v", got)
		}
		seen[got.stdout] = true
	}
	if len(seen) != n {
		t.Errorf("%d different results of %d", len(seen), n)
	}
}

func TestStartCancelled(t *testing.T) {
	pool := newPool(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("changed my mind")
	cancel(cause)
	if _, err := pool.Start(ctx, process.Spec{Argv: []string{"/bin/true"}, Dir: "/"}); err != nil &&
		!errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
