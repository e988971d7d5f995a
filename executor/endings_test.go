package executor_test

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
)

// printScript prints on both streams, more than a summary on stdout, before the test's own
// commands.
const printScript = `printf '%s\n' "a word that is longer than the view" printed; echo trouble >&2; `

const spoken = "a word that is longer than the view\nprinted\n"

// turning waits for a signal with short sleeps, so that the shell handles it at once.
const turning = "exec 2>/dev/null; while :; do sleep 0.01; done"

// endCase is a way in which a call can end, with the expected result.
type endCase struct {
	name   string
	script string
	argv   []string // in place of the script
	// change modifies the run; cause cancels it after the tool has printed.
	change func(*runAttempt)
	cause  error

	reason  dray.Reason
	code    dray.Code
	message string
	signal  string
	silent  bool // nothing was started, so nothing is printed
}

// runAttempt has the parameters of a run.
type runAttempt struct {
	over   error // if it is set, the call's context has ended with it before anything
	env    dray.Environment
	runner *executor.Runner
	spec   dray.ProcessSpec
	opts   executor.Options
	word   io.Closer // the tool waits for it once it has printed; nil if it does not
}

func endings(t *testing.T, b *fixture) []endCase {
	unfit := b.dir + "/unfit"
	if err := os.WriteFile(unfit, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := []endCase{
		{name: "exits with 0", script: printScript, reason: dray.ReasonExited},
		{
			name: "exits with 3", script: printScript + "exit 3", reason: dray.ReasonExited,
			message: "trouble",
		},
		{
			name: "exits with 137 as if killed", script: printScript + "exit 137", reason: dray.ReasonExited,
			message: "trouble",
		},
		{
			name: "kills itself", script: printScript + "kill -9 $$", reason: dray.ReasonSignalled,
			signal: "SIGKILL", message: "ended by SIGKILL: trouble",
		},
		{
			name: "takes too long", script: printScript + "sleep 600", cause: executor.ErrTimeout,
			reason: dray.ReasonTimeout,
		},
		{name: "takes too long and exits with 0", script: `trap 'exit 0' TERM; ` + printScript + turning, cause: executor.ErrTimeout, change: patient, reason: dray.ReasonTimeout},
		{
			name: "is cancelled", script: printScript + "sleep 600", cause: executor.ErrCancelled,
			reason: dray.ReasonCancelled,
		},
		{
			name: "outlives the daemon", script: printScript + "sleep 600", cause: executor.ErrShutdown,
			reason: dray.ReasonCancelled,
		},
		{
			name: "is silent", script: printScript + "sleep 600",
			change: func(a *runAttempt) { a.opts.Idle = 300 * time.Millisecond }, reason: dray.ReasonIdleTimeout,
		},
		{
			name: "is cancelled before it starts", script: printScript,
			change: func(a *runAttempt) { a.over = executor.ErrCancelled }, reason: dray.ReasonCancelled, silent: true,
		},
		{
			name: "is nowhere", argv: []string{"no-such-program"}, reason: dray.ReasonStartFailed,
			code: dray.CodeExecutableNotFound, silent: true,
		},
		{
			name: "cannot be executed", argv: []string{unfit}, reason: dray.ReasonStartFailed,
			code: dray.CodeNotExecutable, silent: true,
		},
		{
			name: "has no directory", script: printScript,
			change: func(a *runAttempt) { a.spec.Dir = b.dir + "/none" }, reason: dray.ReasonStartFailed, code: dray.CodeBadCwd, silent: true,
		},
		{
			name: "may not run there", script: printScript,
			change: func(a *runAttempt) { a.spec.Dir = b.outside }, reason: dray.ReasonDenied, code: dray.CodeDenied, silent: true,
		},
		{
			name: "kills its supervisor", script: printScript +
				"read x; kill -9 $PPID", change: waitForSignal,
			reason: dray.ReasonUnavailable, code: dray.CodeAgentLost,
		},
		{
			name: "runs out of memory", script: printScript + "kill -9 $$", change: memory(dray.OOMCertain),
			reason: dray.ReasonOOM, message: "memory ran out: trouble",
		},
		{
			name: "may have run out of memory", script: printScript + "kill -9 $$",
			change: memory(dray.OOMLikely), reason: dray.ReasonOOM, message: "memory ran out: trouble",
		},
		{
			name: "is ended while memory runs out", script: printScript + "sleep 600",
			change: memory(dray.OOMCertain), cause: executor.ErrCancelled, reason: dray.ReasonCancelled,
		},
		{
			name: "is terminated while memory runs out", script: printScript + "kill $$",
			change: memory(dray.OOMCertain), reason: dray.ReasonSignalled, signal: "SIGTERM", message: "SIGTERM: trouble",
		},
		{
			name: "exits while memory runs out", script: printScript + "exit 1",
			change: memory(dray.OOMCertain), reason: dray.ReasonExited, message: "trouble",
		},
		{
			name: "prints more than all may", script: printScript + "cat /dev/zero",
			change: limited(t,
				capture.Options{MaxDiskBytes: 300 << 10}), reason: dray.ReasonOutputLimit, code: dray.CodeLimitExceeded,
		},
		{
			name: "prints too much and exits", script: printScript + "head -c 100000 /dev/zero",
			change: limited(t,
				capture.Options{MaxDiskBytes: 10}), reason: dray.ReasonOutputLimit, code: dray.CodeLimitExceeded,
		},
		{
			name: "prints beyond its limit", script: printScript + "head -c 3000000 /dev/zero",
			change: limited(t, capture.Options{Limit: 1000}), reason: dray.ReasonExited,
		},
	}
	if disk, ok := tmpfs(t, "1m"); ok {
		list = append(list,
			endCase{
				name: "fills the disk", script: printScript + "cat /dev/zero",
				change: limited(t,
					capture.Options{Dir: disk}), reason: dray.ReasonOutputLimit, code: dray.CodeDiskFull,
			})
	}
	return list
}

// waitForSignal sets a stdin that ends when the tool has printed.
func waitForSignal(a *runAttempt) {
	r, w := io.Pipe()
	a.opts.Stdin, a.word = r, w
}

func patient(a *runAttempt) { a.runner.Grace = time.Minute }

// limited sets other limits for the captures.
func limited(t *testing.T, opts capture.Options) func(*runAttempt) {
	if opts.Limit == 0 {
		opts.Limit = 1 << 30
	}
	opts.SummaryBytes = 20
	return func(a *runAttempt) { a.runner = newRunner(t, opts) }
}

// memory sets the OOM state of an exit, which the test cannot make the kernel do.
func memory(oom dray.OOM) func(*runAttempt) {
	return func(a *runAttempt) { a.env = patchedEnvironment{a.env, func(exit *dray.Exit) { exit.OOM = oom }} }
}

// patchedEnvironment modifies the exits of processes.
type patchedEnvironment struct {
	dray.Environment
	alter func(*dray.Exit)
}

func (e patchedEnvironment) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process,
	error,
) {
	p, err := e.Environment.Start(ctx, spec)
	return alteredProcess{p, e.alter}, err
}

type alteredProcess struct {
	dray.Process
	alter func(*dray.Exit)
}

func (p alteredProcess) Wait() (dray.Exit, error) {
	exit, err := p.Process.Wait()
	p.alter(&exit)
	return exit, err
}

// Every end has one reason, infrastructure failures and exits of the tool are never confused, and
// the output until then is captured on both streams (EX-12, CA-04).
func TestEndings(t *testing.T) {
	b := newFixture(t)
	for _, e := range endings(t, b) {
		t.Run(e.name, func(t *testing.T) {
			res, err := try(t, b, e)
			checkEnding(t, e, dray.NormalizeResult(res, err))
		})
	}
}

// try runs a case.
func try(t *testing.T, b *fixture, e endCase) (dray.Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	a := &runAttempt{
		env: b.env, runner: newRunner(t, capture.Options{
			Limit:        1 << 20,
			SummaryBytes: 20,
		}), opts: executor.Options{ID: rand.Text()},
		spec: dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", e.script}, Dir: b.dir},
	}
	if e.argv != nil {
		a.spec.Argv = e.argv
	}
	if e.change != nil {
		e.change(a)
	}
	sink := dray.Discard
	switch {
	case a.over != nil:
		cancel(a.over)
	case e.cause != nil:
		sink = &afterBothStreams{do: func() { cancel(e.cause) }}
	case a.word != nil:
		sink = &afterBothStreams{do: func() { _ = a.word.Close() }}
	}
	out, err := a.runner.Run(ctx, a.env, a.spec, a.opts, sink)
	out.Release()
	return out.Result, err
}

// afterBothStreams calls do when both streams have output.
type afterBothStreams struct {
	dray.Sink
	do    func()
	heard [3]chan struct{}
}

func (o *afterBothStreams) Started() {
	for i := range o.heard {
		o.heard[i] = make(chan struct{}, 1)
	}
	go func() { // ends with the run, whose streams both speak
		<-o.heard[dray.Stdout]
		<-o.heard[dray.Stderr]
		o.do()
	}()
}

func (o *afterBothStreams) Output(s dray.Stream, p []byte) {
	if strings.Contains(string(p), "printed\n") || s == dray.Stderr {
		select {
		case o.heard[s] <- struct{}{}:
		default:
		}
	}
}

func checkEnding(t *testing.T, e endCase, res dray.Result) {
	t.Helper()
	if res.Reason != e.reason {
		t.Fatalf("reason %s, error %+v", res.Reason, res.Error)
	}
	if (res.ExitCode != nil) != (e.reason == dray.ReasonExited) ||
		(res.Signal != nil) != (e.reason == dray.ReasonSignalled) {
		t.Errorf("exit code %v and signal %v beside %s", res.ExitCode, res.Signal, res.Reason)
	}
	if res.Signal != nil && res.Signal.Name != e.signal {
		t.Errorf("signal %+v", res.Signal)
	}
	if (res.Status == dray.StatusSucceeded) != (res.Error == nil) {
		t.Fatalf("status %s with the error %+v", res.Status, res.Error)
	}
	if res.Error != nil {
		checkError(t, e, res.Error)
	}
	likely := slices.ContainsFunc(res.Metadata.Warnings,
		func(w string) bool { return strings.Contains(w, "likely and not certain") })
	if likely != strings.HasPrefix(e.name, "may have run out") {
		t.Errorf("warnings %q", res.Metadata.Warnings)
	}
	checkPartial(t, e, res)
}

func checkError(t *testing.T, e endCase, err *dray.Error) {
	t.Helper()
	if err.Code != e.code || !strings.HasSuffix(err.Message, e.message) {
		t.Errorf("error %q %q, want %q ... %q", err.Code, err.Message, e.code, e.message)
	}
	if e.code != "" && err.Hint == "" {
		t.Errorf("%q has no hint", err.Message)
	}
}

// checkPartial compares the streams with the output of printScript.
func checkPartial(t *testing.T, e endCase, res dray.Result) {
	t.Helper()
	if e.silent {
		if res.Stdout.TotalBytes+res.Stderr.TotalBytes != 0 || res.Metadata.Kill != nil {
			t.Errorf("something was started: %+v", res)
		}
		return
	}
	if res.Metadata.Kill == nil {
		t.Error("the kill report is missing")
	}
	if !strings.HasPrefix(res.Stdout.Text, spoken[:20]) ||
		res.Stdout.TotalBytes < int64(len(spoken)) || res.Stderr.Text != "trouble\n" {
		t.Errorf("stdout %+v\nstderr %+v", res.Stdout, res.Stderr)
	}
	if res.Stdout.KeptBytes > res.Stdout.TotalBytes ||
		res.Stdout.Truncated != (res.Stdout.KeptBytes < res.Stdout.TotalBytes) {
		t.Errorf("stdout %+v", res.Stdout)
	}
}

// An incomplete capture after the call was stopped is a warning, and the reason stays.
func TestFirstReasonIsKept(t *testing.T) {
	res, err := try(t, newFixture(t), endCase{
		script: "trap 'head -c 300000 /dev/zero; exit 0' TERM; " + printScript +
			turning, cause: executor.ErrTimeout,
		change: func(a *runAttempt) {
			limited(t, capture.Options{MaxDiskBytes: 100_000})(a)
			patient(a)
		},
	})
	warned := slices.ContainsFunc(res.Metadata.Warnings,
		func(w string) bool { return strings.Contains(w, "limits.captures_disk") })
	if err != nil || res.Reason != dray.ReasonTimeout || !warned ||
		res.Stdout.TotalBytes != int64(len(spoken))+300_000 {
		t.Errorf("%s with the warnings %q and %+v, %v", res.Reason, res.Metadata.Warnings, res.Stdout,
			err)
	}
}

// tmpfs mounts a tmpfs if that is allowed.
func tmpfs(t *testing.T, size string) (dir string, own bool) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		return dir, false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, true
}

// The excerpt of stderr in an error is its end: at most 500 whole characters, without separators
// around it (CA-05).
func TestExcerpt(t *testing.T) {
	b := newFixture(t)
	for _, c := range []struct{ name, script, want string }{
		{"nothing", "exit 1", ""},
		{"nothing but space", `printf ' \n\t\r\n' >&2; exit 1`, ""},
		{"nothing but separators", `printf ': ;\n|,' >&2; exit 1`, ""},
		{"a line", `echo 'no such file' >&2; exit 1`, "no such file"},
		{"separators around", `printf '\n: error: it failed:\n\n' >&2; exit 1`, "error: it failed"},
		{"inner lines stay", `printf 'one\ntwo\n' >&2; exit 1`, "one\ntwo"},
		{"500 of many", `head -c 5000 /dev/zero | tr '\0' x >&2; exit 1`, strings.Repeat("x", 500)},
		{"two bytes each", `for i in $(seq 700); do printf é; done >&2; exit 1`, strings.Repeat("é", 500)},
		{"four bytes each, cut in one", `printf x >&2; for i in $(seq 700); do printf '\360\237\230\200'; done >&2; exit 1`, strings.Repeat("😀", 500)},
		{"no UTF-8", `printf 'a\377b' >&2; exit 1`, "a\uFFFDb"},
		{"a signal and nothing", "kill -9 $$", "ended by SIGKILL"},
		{"a signal and a word", "echo word >&2; kill -9 $$", "ended by SIGKILL: word"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t, capture.Options{Limit: 1 << 20, SummaryBytes: 16 << 10})
			out, err := r.Run(t.Context(), b.env,
				dray.ProcessSpec{
					Argv: []string{"/bin/sh", "-c", c.script}, Dir: b.dir,
					Env: map[string]string{"LC_ALL": "C"},
				},
				executor.Options{ID: rand.Text()}, dray.Discard)
			defer out.Release()
			if err != nil || out.Result.Error == nil || out.Result.Error.Message != c.want ||
				!utf8.ValidString(out.Result.Error.Message) {
				t.Errorf("got %+v, %v", out.Result.Error, err)
			}
		})
	}
}

// stderr is captured on success as well (CA-04).
func TestStderrOfSuccess(t *testing.T) {
	res, err := try(t, newFixture(t), endCase{script: "echo warning >&2"})
	if res := dray.NormalizeResult(res, err); res.Status != dray.StatusSucceeded ||
		res.Stderr.Text != "warning\n" || res.Error != nil {
		t.Errorf("got %+v", res)
	}
}

// The exit is in the kill report.
func TestKillReport(t *testing.T) {
	res, err := try(t, newFixture(t), endCase{script: "exit 0", change: func(a *runAttempt) {
		a.env = patchedEnvironment{
			a.env,
			func(exit *dray.Exit) { exit.Leftover, exit.KeptPIDs = 2, []int{7, 9} },
		}
	}})
	want := dray.KillReport{Survivors: dray.Survivors{Proven: true}, Leftover: 2, Kept: []int{7, 9}}
	if err != nil || !reflect.DeepEqual(res.Metadata.Kill, &want) {
		t.Errorf("got %+v, %v", res.Metadata.Kill, err)
	}
}
