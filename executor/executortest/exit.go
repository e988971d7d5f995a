package executortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// Every exit code is reported (EX-12).
func testExitCodes(t *testing.T, h Harness) {
	step := 1
	if !h.caps().Signals {
		step = 15 // through the engine's exec each takes a tenth of a second
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for code := 0; code <= 255; code += step {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			p, err := h.Environment.Start(t.Context(),
				dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", "exit " + fmt.Sprint(code)}, Dir: h.Dir})
			if err != nil {
				t.Errorf("exit %d: %v", code, err)
				return
			}
			if got := finish(p, nil); got.err != nil || got.exit.Code != code || got.exit.Signal != 0 {
				t.Errorf("exit %d: got %+v, %v", code, got.exit, got.err)
			}
		})
	}
	all.Wait()
}

// An end by a signal is reported as the signal; without Capabilities.Signals, as the exit code 128
// plus its number (EX-12).
func testSignals(t *testing.T, h Harness) {
	for _, sig := range []syscall.Signal{
		1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 31, 34,
		64,
	} {
		got := h.sh(t, fmt.Sprintf("ulimit -c 0; kill -%d $$; sleep 600", int(sig)))
		want := dray.Exit{Signal: sig}
		if !h.caps().Signals {
			want = dray.Exit{Code: 128 + int(sig)}
		}
		if got.err != nil || got.exit.Code != want.Code || got.exit.Signal != want.Signal {
			t.Errorf("signal %d: got %+v, %v", sig, got.exit, got.err)
		}
		if !h.caps().Signals && sig == 2 {
			return // one is enough of the slow way
		}
	}
}

func testSignal(t *testing.T, h Harness) {
	p := h.shell(t, `trap 'echo usr1; exit 7' USR1; echo $$; while :; do sleep 0.02; done`)
	pid(t, p)
	err := p.Signal(syscall.SIGUSR1)
	if !h.caps().Signals {
		if err == nil {
			t.Error("Signal must fail")
		}
		p.Stop(0)
		collect(p)
		return
	}
	if got := collect(p); err != nil || got.exit.Code != 7 || got.stdout != "usr1\n" {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, context.Canceled) {
		t.Logf("a signal after the end: %v", err)
	}
}

// Stop lets a process that handles TERM end by itself within the grace.
func testStop(t *testing.T, h Harness) {
	p := h.shell(t, `trap 'echo term; exit 9' TERM; echo $$; while :; do sleep 0.02; done`)
	pid(t, p)
	p.Stop(10 * time.Second)
	got := withTimeout(t, 30*time.Second, func() processResult { return collect(p) })
	if !h.caps().ExactSurvivors {
		if got.err != nil || got.exit.Survivors.Proven {
			t.Errorf("got %+v, %v; nothing can be verified here", got.exit, got.err)
		}
		return
	}
	if got.stdout != "term\n" || got.exit.Code != 9 {
		t.Errorf("got %+v", got)
	}
	for range 20 { // the grace counts also immediately after the start
		p := h.start(t, dray.ProcessSpec{Argv: []string{"sleep", "600"}})
		p.Stop(10 * time.Second)
		if got := collect(p); got.exit.Signal != syscall.SIGTERM {
			t.Fatalf("got %+v, not TERM", got)
		}
	}
}

// escapes are scripts that print the pid of a process that tries to escape.
var escapes = map[string]string{
	"plain child":         `sleep 600 & echo $!; wait`,
	"setsid":              `setsid sh -c 'echo $$; exec sleep 600' & wait`,
	"double fork":         `sh -c 'sh -c "echo \$\$; exec sleep 600" & exit' ; sleep 600`,
	"setsid double fork":  `setsid sh -c 'setsid sh -c "echo \$\$; exec sleep 600" & exit'; sleep 600`,
	"TERM ignored":        `sh -c 'trap "" TERM; echo $$; while :; do sleep 600; done' & wait`,
	"leader ignores TERM": `trap "" TERM HUP INT; echo $$; while :; do sleep 600; done`,
	"stopped":             `sleep 600 & kill -STOP $!; echo $!; wait`,
	"environment cleared": `env -i setsid sh -c 'echo $$; exec sleep 600' & wait`,
	"streams closed":      `setsid sh -c 'echo $$; exec sleep 600 <&- >&- 2>&-' & wait`,
}

// Stop ends every descendant, and verifies that (EX-09, EX-10).
func testStopEndsEscapees(t *testing.T, h Harness) {
	if !h.caps().ExactSurvivors {
		t.Log("not supported here: see Stop and Unkillable")
		return
	}
	for name, script := range escapes {
		t.Run(name, func(t *testing.T) {
			for range h.rounds() {
				p := h.shell(t, script)
				escapee := pid(t, p)
				if !h.alive(t, escapee) {
					t.Fatalf("the escapee %s is not there", escapee)
				}
				p.Stop(10 * time.Millisecond)
				got := withTimeout(t, 20*time.Second, func() processResult { return collect(p) })
				if got.err != nil || !got.exit.Survivors.Proven || len(got.exit.Survivors.PIDs) != 0 ||
					h.alive(t, escapee) {
					t.Fatalf("got %+v", got)
				}
			}
		})
	}
}

// A second Stop shortens the grace, and one after the end does nothing.
func testStopTwice(t *testing.T, h Harness) {
	p := h.shell(t, `trap "" TERM; echo $$; while :; do sleep 0.05; done`)
	pid(t, p)
	p.Stop(time.Hour)
	p.Stop(0)
	got := withTimeout(t, 20*time.Second, func() processResult { return collect(p) })
	if h.caps().ExactSurvivors && got.exit.Signal != syscall.SIGKILL {
		t.Errorf("got %+v, %v", got.exit, got.err)
	}
	p.Stop(0)
	h.ok(t, h.sh(t, "exit 0"), 0)
}

// Leftover processes are killed and counted (EX-11).
func testLeftovers(t *testing.T, h Harness) {
	if !h.caps().TracksLeftovers {
		t.Log("not supported here: see KeptLeftovers")
		return
	}
	for range h.rounds() {
		p := h.start(t, dray.ProcessSpec{
			Argv: []string{"/bin/sh", "-c", `setsid sleep 600 >/dev/null 2>&1 & sleep 600 & echo $!; exit 5`}, Grace: 10 * time.Millisecond,
		})
		got := finish(p, nil)
		if got.err != nil || got.exit.Code != 5 || got.exit.Leftover != 2 ||
			h.alive(t, strings.TrimSpace(got.stdout)) {
			t.Fatalf("got %+v", got)
		}
	}
}

// A background process that holds stdout delays neither the result past the grace nor another call.
// Without TracksLeftovers it keeps running (EX-11).
func testBackgroundHolder(t *testing.T, h Harness) {
	for range h.rounds() {
		got := withTimeout(t, time.Minute, func() processResult { return h.sh(t, `(trap "" HUP; exec sleep 600) & echo out $!; exit 4`) })
		holder, ok := strings.CutPrefix(got.stdout, "out ")
		if !ok || got.exit.Code != 4 || got.err != nil {
			t.Fatalf("got %+v", got)
		}
		if !h.caps().TracksLeftovers {
			h.kill(t, strings.TrimSpace(holder))
		}
	}
}

// The context bounds the start: if it ends before, nothing runs; if it ends afterwards, the process
// runs on.
func testStartCancelled(t *testing.T, h Harness) {
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	p, err := h.Environment.Start(ctx, dray.ProcessSpec{
		Argv: []string{"/bin/sh", "-c", "sleep 600"},
		Dir:  h.Dir,
	})
	if err == nil {
		p.Stop(0)
		t.Errorf("a cancelled start returned a process: %+v", collect(p))
	} else if !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cause", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	p, err = h.Environment.Start(ctx, dray.ProcessSpec{Argv: []string{
		"/bin/sh", "-c",
		"read line; echo $line",
	}, Dir: h.Dir})
	if err != nil {
		t.Fatal(err)
	}
	cancel(cause)
	if got := finish(p, []byte("still here\n")); got.stdout != "still here\n" || got.exit.Code != 0 {
		t.Errorf("got %+v", got)
	}
	for i := range h.rounds() { // in the midst of it: a process, or the cause, and nothing between
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(i)*300*time.Microsecond, cause)
		p, err := h.Environment.Start(ctx, dray.ProcessSpec{
			Argv: []string{"/bin/sh", "-c", "exit 6"},
			Dir:  h.Dir,
		})
		switch {
		case err == nil:
			h.ok(t, finish(p, nil), 6)
		case !errors.Is(err, cause) && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("got %v", err)
		}
		cancel()
	}
}

// Start failures have a code and a hint, and nothing runs.
func testStartFailures(t *testing.T, h Harness) {
	setUp := h.sh(t, `echo '#!/bin/sh' >plain; chmod 644 plain; printf '#!/no/such/interpreter\n' >orphan; chmod 755 orphan; mkdir -p folder`)
	h.ok(t, setUp, 0)
	for _, c := range []struct {
		name string
		argv []string
		dir  string
		want []dray.Code
	}{
		{
			"absent from PATH",
			[]string{"no-such-program"},
			h.Dir,
			[]dray.Code{dray.CodeExecutableNotFound},
		},
		{"absent path", []string{"/no/such/program"}, h.Dir, []dray.Code{dray.CodeExecutableNotFound}},
		{"not executable", []string{h.Dir + "/plain"}, h.Dir, []dray.Code{dray.CodeNotExecutable}},
		{"a directory", []string{h.Dir + "/folder"}, h.Dir, []dray.Code{dray.CodeNotExecutable}},
		{
			"no interpreter",
			[]string{h.Dir + "/orphan"},
			h.Dir,
			[]dray.Code{dray.CodeExecutableNotFound, dray.CodeNotExecutable},
		},
		{"absent directory", []string{"/bin/true"}, h.Dir + "/no/such", []dray.Code{dray.CodeBadCwd}},
		{"a file as directory", []string{"/bin/true"}, h.Dir + "/plain", []dray.Code{dray.CodeBadCwd}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := h.Environment.Start(t.Context(), dray.ProcessSpec{Argv: c.argv, Dir: c.dir})
			if err == nil {
				got := finish(p, nil)
				if c.name == "no interpreter" && !h.caps().ExactSurvivors && got.exit.Code == 1 {
					return // the engine's exec finds that out too late, and its end reads as the tool's own
				}
				t.Fatalf("it started: %+v", got)
			}
			i := slices.Index(c.want, dray.CodeOf(err))
			isCode(t, c.name, err, c.want[max(i, 0)])
		})
	}
}

// With KeepLeftovers the processes run on, the result has their pids, and they delay neither the
// result nor the end of the output (EX-11).
func testKeptLeftovers(t *testing.T, h Harness) {
	if !h.leftovers(t) {
		return
	}
	for range h.rounds() {
		p := h.start(t, dray.ProcessSpec{
			Argv: []string{"/bin/sh", "-c", `setsid sleep 600 >/dev/null 2>&1 & echo $!; sleep 600 & echo $!; exit 5`}, KeepLeftovers: true,
		})
		got := finish(p, nil)
		pids := strings.Fields(got.stdout)
		if got.err != nil || got.exit.Code != 5 || got.exit.Leftover != 2 ||
			len(got.exit.KeptPIDs) != 2 || !got.exit.Survivors.Proven || len(pids) != 2 {
			t.Fatalf("got %+v", got)
		}
		for _, pid := range got.exit.KeptPIDs {
			name := strconv.Itoa(pid)
			if !h.alive(t, name) {
				t.Errorf("%d was killed", pid)
			}
			h.ok(t, h.sh(t, "kill -KILL $1", name), 0)
		}
	}
}

// Stop also ends processes that would be kept (EX-11).
func testKeepAndStop(t *testing.T, h Harness) {
	if !h.caps().TracksLeftovers {
		t.Log("not supported here: see KeptLeftovers and Unkillable")
		return
	}
	for range h.rounds() {
		p := h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", `setsid sleep 600 & echo $!; sleep 600`}, KeepLeftovers: true})
		left := pid(t, p)
		p.Stop(0)
		got := collect(p)
		if got.err != nil || len(got.exit.KeptPIDs) != 0 || len(got.exit.Survivors.PIDs) != 0 ||
			h.alive(t, left) {
			t.Fatalf("got %+v", got)
		}
	}
}

// Missing capabilities are tested as well: the result is unknown, and nothing else is claimed.

// terminals reports whether terminals are native. Otherwise Terminal and TerminalJobs test them.
func (h Harness) terminals(t *testing.T) bool {
	t.Helper()
	if !h.caps().NativeTerminals {
		t.Log("not supported here: the terminal is the engine's own")
	}
	return h.caps().NativeTerminals
}

// leftovers reports whether leftover processes are tracked. Otherwise all of them are kept, and
// none is named or counted.
func (h Harness) leftovers(t *testing.T) bool {
	t.Helper()
	if h.caps().TracksLeftovers {
		return true
	}
	for _, keep := range []bool{true, false} {
		p := h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", `setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!; exit 5`}, KeepLeftovers: keep})
		got := finish(p, nil)
		left := strings.TrimSpace(got.stdout)
		if got.err != nil || got.exit.Code != 5 || got.exit.Leftover != 0 ||
			len(got.exit.KeptPIDs) != 0 || got.exit.Survivors.Proven || !h.alive(t, left) {
			t.Errorf("keep %v: got %+v, %v; %s is alive: %v", keep, got.exit, got.err, left,
				h.alive(t, left))
		}
		h.kill(t, left)
	}
	return false
}

// testUnkillable tests a process that cannot be stopped: it runs on, and the result claims nothing
// else.
func testUnkillable(t *testing.T, h Harness) {
	if h.caps().ExactSurvivors {
		t.Log("Stop ends processes here: see Stop and StopEndsEscapees")
		return
	}
	p := h.shell(t, `echo $$; exec sleep 600`)
	leader := pid(t, p)
	p.Stop(0)
	got := withTimeout(t, 20*time.Second, func() processResult { return collect(p) })
	if got.err != nil || got.exit.Survivors.Proven || !slices.Equal(got.exit.Survivors.PIDs, nil) ||
		!h.alive(t, leader) {
		t.Errorf("got %+v, %v; alive: %v", got.exit, got.err, h.alive(t, leader))
	}
	h.kill(t, leader)
}

// kill kills a process of a test.
func (h Harness) kill(t *testing.T, pid string) {
	t.Helper()
	h.sh(t, `kill -9 $1`, pid)
	for deadline := time.Now().Add(10 * time.Second); h.alive(t, pid); {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not end", pid)
		}
	}
}
