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

// Harness is an environment under test. It needs /bin/sh and the usual small programs.
type Harness struct {
	Environment dray.Environment
	// Dir is a folder in the environment that its user may write, and that holds nothing of worth.
	Dir string
	// ID is what `id -u; id -g; id -G` print there, with spaces between.
	ID string
	// Unset are variables that must not be set in a process, Set what must be: NAME=value.
	Unset, Set []string
	// Ignored is the mask of ignored signals that processes have from whoever starts them there, as in
	// /proc/PID/status; empty means none.
	Ignored string
	// Brief tries what can go wrong by chance less often: for an environment that differs in one point
	// from one that is tried in full.
	Brief bool
}

// Run asks an environment for all that dray.Environment promises.
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
		{"User", testUser},
		{"FreshProcess", testFreshProcess},
		{"Stop", testStop},
		{"StopEndsEscapees", testStopEndsEscapees},
		{"StopTwice", testStopTwice},
		{"LetGo", testUnkillable},
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
		{"Files", RunFilesOf},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
}

// rounds is how often what can go wrong by chance is tried. The engine's own exec takes a tenth of
// a second each time.
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

// processResult is all that a process left behind.
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
		t.Fatalf("starting %.200q: %v", spec.Argv, err)
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

// finish feeds a process and waits for its end.
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

// ok fails the test unless the process ended by itself with a code, and nothing was left.
func (h Harness) ok(t *testing.T, got processResult, code int) {
	t.Helper()
	if got.err != nil || got.exit.Code != code || got.exit.Signal != 0 || got.exit.Leftover != 0 {
		t.Fatalf("got exit %+v, error %v, stderr %.300q; want exit code %d", got.exit, got.err,
			got.stderr, code)
	}
	if proven := h.caps().ExactSurvivors; got.exit.Survivors.Proven != proven ||
		len(got.exit.Survivors.PIDs) != 0 {
		t.Fatalf("survivors are %+v where a proof is promised: %v", got.exit.Survivors, proven)
	}
}

// pid reads the number that a process prints first.
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

// alive says whether a process is there, in the environment's own numbering, and is no zombie.
func (h Harness) alive(t *testing.T, pid string) bool {
	t.Helper()
	got := h.sh(t, `read -r stat </proc/$1/stat 2>/dev/null || exit 1; case "${stat##*) }" in Z*|X*) exit 1;; esac`, pid)
	return got.exit.Code == 0
}

// withTimeout fails a test whose promise has a time. It returns what f returned.
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

// random gives the generator of a test and prints its seed.
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
