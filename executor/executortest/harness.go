package executortest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// Harness has the environment to test. It needs /bin/sh and the usual small programs.
type Harness struct {
	Environment dray.Environment
	// Dir is a directory in the environment that its user may write to. Its content may be lost.
	Dir string
	// ID is the output of `id -u; id -g; id -G` there, separated by spaces.
	ID string
	// Unset has variables that must not be set in a process, Set has NAME=value pairs that must be.
	Unset, Set []string
	// Ignored is the mask of ignored signals that processes inherit there, as in /proc/PID/status;
	// empty for none.
	Ignored string
	// Brief repeats racy tests less often: for an environment that differs in one point from one that
	// is tested in full.
	Brief bool
}

// Run tests the contract of dray.Environment.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"Argv", testArgv},
		{"Stdin", testStdin},
		{"StdinUnread", testStdinUnread},
		{"Streams", testStreams},
		{"ExitCodes", testExitCodes},
		{"Signals", testSignals},
		{"Signal", testSignal},
		{"StartFailures", testStartFailures},
		{"Environment", testEnvironment},
		{"Dir", testDir},
		{"RealDir", testRealDir},
		{"User", testUser},
		{"FreshProcess", testFreshProcess},
		{"Stop", testStop},
		{"StopEndsEscapees", testStopEndsEscapees},
		{"StopTwice", testStopTwice},
		{"Unkillable", testUnkillable},
		{"Leftovers", testLeftovers},
		{"KeptLeftovers", testKeptLeftovers},
		{"KeepAndStop", testKeepAndStop},
		{"Terminal", testTerminal},
		{"TerminalSize", testTerminalSize},
		{"TerminalJobs", testTerminalJobs},
		{"TerminalEndOfFile", testTerminalEndOfFile},
		{"TerminalEnds", testTerminalEnds},
		{"NoTerminal", testNoTerminal},
		{"BackgroundHolder", testBackgroundHolder},
		{"ManyAtOnce", testManyAtOnce},
		{"StartCancelled", testStartCancelled},
		{"OutputEnds", testOutputEnds},
		{"Results", testResults},
		{"Files", RunFilesOf},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
}

// rounds returns how often racy tests are repeated. The engine's exec takes a tenth of a second
// each time.
func (h Harness) rounds() int {
	switch {
	case !h.caps().ExactSurvivors:
		return 2
	case h.Brief || testing.Short():
		return 5
	default:
		return 20
	}
}

func (h Harness) caps() dray.Capabilities { return h.Environment.Capabilities() }

// processResult has the output and the exit of a process.
type processResult struct {
	stdout, stderr string
	exit           dray.Exit
	err            error
}

func (h Harness) start(t *testing.T, spec dray.ProcessSpec) dray.Process {
	t.Helper()
	if spec.Dir == "" {
		spec.Dir = h.Dir
	}
	p, err := h.Environment.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start %.200q: %v", spec.Argv, err)
	}
	return p
}

func (h Harness) shell(t *testing.T, script string, args ...string) dray.Process {
	t.Helper()
	return h.start(t, dray.ProcessSpec{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)})
}

// sh runs a script without stdin to its end.
func (h Harness) sh(t *testing.T, script string, args ...string) processResult {
	t.Helper()
	return finish(h.shell(t, script, args...), nil)
}

// finish writes stdin to a process and waits for its end.
func finish(p dray.Process, stdin []byte) processResult {
	var in sync.WaitGroup
	in.Go(func() {
		_, _ = p.Stdin().Write(stdin) // a process that does not read is no fault
		_ = p.Stdin().Close()
	})
	got := collect(p)
	in.Wait()
	return got
}

func collect(p dray.Process) processResult {
	var out, errOut bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&out, p.Output(dray.Stdout)) })
	reading.Go(func() { _, _ = io.Copy(&errOut, p.Output(dray.Stderr)) })
	exit, err := p.Wait()
	reading.Wait()
	return processResult{out.String(), errOut.String(), exit, err}
}

// ok fails the test unless the process exited with a code and left nothing.
func (h Harness) ok(t *testing.T, got processResult, code int) {
	t.Helper()
	if got.err != nil || got.exit.Code != code || got.exit.Signal != 0 || got.exit.Leftover != 0 {
		t.Fatalf("got exit %+v, error %v, stderr %.300q; want exit code %d", got.exit, got.err,
			got.stderr, code)
	}
	if proven := h.caps().ExactSurvivors; got.exit.Survivors.Proven != proven ||
		len(got.exit.Survivors.PIDs) != 0 {
		t.Fatalf("survivors are %+v, verified should be %v", got.exit.Survivors, proven)
	}
}

// pid reads the first line of a process.
func pid(t *testing.T, p dray.Process) string {
	t.Helper()
	line := make([]byte, 0, 16)
	for !bytes.HasSuffix(line, []byte("\n")) {
		one := make([]byte, 1)
		if _, err := p.Output(dray.Stdout).Read(one); err != nil {
			t.Fatalf("the process printed %q and then: %v", line, err)
		}
		line = append(line, one...)
	}
	return strings.TrimSpace(string(line))
}

// alive reports whether a pid of the environment is a process, and no zombie.
func (h Harness) alive(t *testing.T, pid string) bool {
	t.Helper()
	got := h.sh(t, `read -r stat </proc/$1/stat 2>/dev/null || exit 1; case "${stat##*) }" in Z*|X*) exit 1;; esac`, pid)
	return got.exit.Code == 0
}

// withTimeout fails the test if f takes longer than the limit. It returns the result of f.
func withTimeout[T any](t *testing.T, limit time.Duration, f func() T) T {
	t.Helper()
	result := make(chan T, 1)
	go func() { result <- f() }()
	select {
	case got := <-result:
		return got
	case <-time.After(limit):
		t.Fatalf("it took longer than %s", limit)
		panic("not reached")
	}
}

// random returns a generator and logs its seed.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DRAY_TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("DRAY_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(256)) //nolint:gosec // below 256
	}
	return b
}

// isCode fails the test unless an error has the code.
func isCode(t *testing.T, what string, err error, want dray.Code) {
	t.Helper()
	var e *dray.Error
	if dray.CodeOf(err) != want || !errors.As(err, &e) || e.Message == "" || e.Hint == "" {
		t.Errorf("%s: got %v (%s), want %s with a hint", what, err, dray.CodeOf(err), want)
	}
}
