package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
)

// preparedBox is a container with sessions of the runtime container.
type preparedBox struct {
	*uvContainer
	*Sessions
	state string // the state file
}

func newPreparedBox(t *testing.T) *preparedBox {
	t.Helper()
	b := &preparedBox{uvContainer: newUvContainer(t, "vscode"), state: filepath.Join(t.TempDir(), "s")}
	b.restartDaemon(t)
	t.Cleanup(func() { b.Close() })
	return b
}

// restartDaemon makes new sessions with the same state file.
func (b *preparedBox) restartDaemon(t *testing.T) {
	t.Helper()
	if b.Sessions != nil {
		b.Close()
	}
	var err error
	b.Sessions, err = New(Options{
		Runtimes: []Runtime{&Container{Log: zaptest.NewLogger(t)}},
		Resident: map[string]int{RuntimeContainer: 4}, Queue: 8, QueueWait: time.Minute,
		StateFile: b.state, Log: zaptest.NewLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
}

var boxKey = Key{Principal: "p", Environment: "e", Runtime: RuntimeContainer, Name: "default"}

// prepare runs operation prepare with a JSON input.
func (b *preparedBox) prepare(ctx context.Context, t *testing.T, input string) (
	PrepareReply, error,
) {
	t.Helper()
	req, err := prepareInput(t, input).Parse(filePolicy)
	if err != nil {
		t.Fatal(err)
	}
	return b.Prepare(ctx, boxKey, b.env, CallSpec{}, req, filePolicy, &progressSink{})
}

func (b *preparedBox) mustPrepare(t *testing.T, input string) PrepareReply {
	t.Helper()
	reply, err := b.prepare(t.Context(), t, input)
	if err != nil {
		t.Fatalf("prepare %s: %v", input, err)
	}
	return reply
}

// eval runs code in the session and returns its value as JSON, or its error.
func (b *preparedBox) eval(t *testing.T, code string) (string, SessionInfo) {
	t.Helper()
	run, err := b.Start(t.Context(), boxKey, b.env, CallSpec{
		Request: Request{Code: code, Argv: []string{}, State: Persistent, Cwd: "/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Release()
	_ = run.Stdin().Close()
	var group sync.WaitGroup
	for _, stream := range []dray.Stream{dray.Stdout, dray.Stderr} {
		group.Go(func() { _, _ = io.Copy(io.Discard, run.Output(stream)) })
	}
	group.Wait()
	if _, err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	reply, _ := run.Reply()
	if reply.Error != nil {
		return reply.Error.Message, run.Session()
	}
	return string(reply.Value), run.Session()
}

func (b *preparedBox) wantValue(t *testing.T, code, want string) SessionInfo {
	t.Helper()
	got, info := b.eval(t, code)
	if got != want {
		t.Errorf("%s is %s instead of %s", code, got, want)
	}
	return info
}

// Packages are added, replaced, set and removed; the session uses them at once, its variables are
// lost only where the interpreter changes, and the choice outlives workers and the daemon (PY-14,
// PY-15).
func TestPrepareSession(t *testing.T) {
	t.Parallel()
	b := newPreparedBox(t)
	b.wantValue(t, "x = 1; import sys; sys.prefix", `"/usr"`)

	// no argument realises the manifest, which is numpy
	first := b.mustPrepare(t, `{}`)
	if !first.Changed || !first.Restarted || fmt.Sprint(first.Packages) != "[numpy]" ||
		!slices.Contains(first.Installed, "numpy==2.1.0") {
		t.Errorf("%+v", first)
	}
	info := b.wantValue(t, "import sys, numpy; sys.prefix + ' ' + numpy.__version__",
		fmt.Sprintf("%q", first.Python.Prefix+" 2.1.0"))
	if info.DiscardedState || info.Generation != 2 {
		t.Errorf("prepare has reported the loss: %+v", info)
	}
	b.wantValue(t, "x", "NameError: name 'x' is not defined")

	// what is there already changes nothing, and keeps variables
	b.wantValue(t, "x = 2", "")
	again := b.mustPrepare(t, `{"requirements": {"packages": ["numpy"], "restart": "no"}}`)
	if again.Changed || again.Restarted || again.Python != first.Python ||
		len(again.Installed)+len(again.Removed) > 0 {
		t.Errorf("%+v", again)
	}
	b.wantValue(t, "x", "2")

	// a new specifier is honoured though a numpy is installed
	older := b.mustPrepare(t, `{"requirements": {"packages": ["Numpy<2", "pandas[excel]"]}}`)
	want := "[numpy==1.26.4 openpyxl==3.1.5 pandas==2.2.3]"
	if !older.Changed || !older.Restarted || fmt.Sprint(older.Installed) != want ||
		fmt.Sprint(older.Packages) != "[numpy<2 pandas[excel]]" || len(older.Removed) > 0 {
		t.Errorf("%+v", older)
	}
	b.wantValue(t, "import pandas, openpyxl, numpy; numpy.__version__", `"1.26.4"`)

	// a superset satisfies add, and neither remove nor set
	fewer := b.mustPrepare(t, `{"requirements": {"packages": ["pandas"], "action": "remove"}}`)
	if fmt.Sprint(fewer.Removed) != "[openpyxl==3.1.5 pandas==2.2.3]" ||
		fmt.Sprint(fewer.Packages) != "[numpy<2]" || !fewer.Restarted {
		t.Errorf("%+v", fewer)
	}
	b.wantValue(t, "import pandas", "ModuleNotFoundError: No module named 'pandas'")
	set := b.mustPrepare(t, `{"requirements": {"packages": ["openpyxl"], "action": "set"}}`)
	if fmt.Sprint(set.Removed) != "[numpy==1.26.4]" || fmt.Sprint(set.Packages) != "[openpyxl]" {
		t.Errorf("%+v", set)
	}

	// the target survives the worker, a reset, and the daemon
	want = fmt.Sprintf("%q", set.Python.Prefix)
	if _, err := b.Reset(t.Context(), boxKey); err != nil {
		t.Fatal(err)
	}
	b.wantValue(t, "import sys; sys.prefix", want)
	b.restartDaemon(t)
	b.wantValue(t, "import sys; sys.prefix", want)
	kept := b.mustPrepare(t, `{}`)
	if kept.Changed || fmt.Sprint(kept.Packages) != "[openpyxl]" {
		t.Errorf("after a restart of the daemon: %+v", kept)
	}
}

// An environment that was removed is reported with what to do, and made anew (PY-15).
func TestPrepareRemovedEnvironment(t *testing.T) {
	t.Parallel()
	b := newPreparedBox(t)
	made := b.mustPrepare(t, `{"requirements": {"packages": ["one"], "action": "set"}}`)
	b.shell(t, "vscode", "rm -r "+made.Python.Prefix)
	_, err := b.Start(t.Context(), boxKey, b.env, CallSpec{Request: Request{Code: "1", Cwd: "/"}})
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeHelperMissing ||
		!strings.Contains(e.Hint, "dray python prepare") {
		t.Errorf("%+v", e)
	}
	again := b.mustPrepare(t, `{}`)
	if !again.Changed || again.Python.Prefix == made.Python.Prefix {
		t.Errorf("%+v", again)
	}
	b.wantValue(t, "import one; one.__version__", `"1.0"`)
}

// Two sessions that prepare the same packages at once both get them (PY-15).
func TestPrepareConcurrently(t *testing.T) {
	t.Parallel()
	b := newPreparedBox(t)
	req, err := prepareInput(t, `{"requirements": {"packages": ["pandas"]}}`).Parse(filePolicy)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		group.Go(func() {
			key := boxKey
			key.Name = name
			reply, err := b.Prepare(t.Context(), key, b.env, CallSpec{}, req, filePolicy, dray.Discard)
			if err != nil || !slices.Contains(reply.Installed, "pandas==2.2.3") {
				t.Errorf("%s: %+v, %v", name, reply, err)
			}
		})
	}
	group.Wait()
	if left := b.shell(t, "vscode", listEnvironments); strings.Contains(left, ".new") {
		t.Errorf("left: %s", left)
	}
}

// Restart no refuses what would lose variables, before anything is made. Where no code ran there is
// nothing to lose. Restart yes restarts in any case (PY-15, PY-26).
func TestPrepareRestart(t *testing.T) {
	t.Parallel()
	b := newPreparedBox(t)
	const add = `{"requirements": {"packages": ["one"], "restart": "no"}}`
	b.wantValue(t, "x = 1", "")
	_, err := b.prepare(t.Context(), t, add)
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeConflict || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	if left := b.shell(t, "vscode", listEnvironments); left != "" {
		t.Errorf("made for nothing: %s", left)
	}
	if st, err := b.Status(boxKey); err != nil || st.Executable != "" || !st.HasState {
		t.Errorf("%+v, %v", st, err)
	}
	b.wantValue(t, "x", "1")

	// a worker in which no code ran
	if _, err := b.Reset(t.Context(), boxKey); err != nil {
		t.Fatal(err)
	}
	err = b.Exclusive(t.Context(), boxKey, b.env, CallSpec{},
		func(ctx context.Context, x *Exclusive) error {
			_, err := x.Worker(ctx)
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	reply := b.mustPrepare(t, add)
	if !reply.Changed || reply.Restarted {
		t.Errorf("%+v", reply)
	}
	info := b.wantValue(t, "import one, sys; sys.prefix", fmt.Sprintf("%q", reply.Python.Prefix))
	if info.DiscardedState {
		t.Errorf("%+v", info)
	}

	b.wantValue(t, "x = 2", "")
	reply = b.mustPrepare(t, `{"restart": "yes"}`)
	if reply.Changed || !reply.Restarted {
		t.Errorf("%+v", reply)
	}
	b.wantValue(t, "x", "NameError: name 'x' is not defined")
}

// An explicit interpreter leaves the manifest alone, and is refused unless it is one (PY-14,
// PY-15).
func TestPrepareExplicit(t *testing.T) {
	t.Parallel()
	b := newPreparedBox(t)
	b.shell(t, "vscode", "python3 -m venv --without-pip /tmp/venv")
	reply := b.mustPrepare(t, `{"python": {"venv": "/tmp/venv"}}`)
	if !reply.Changed || reply.Python.Prefix != "/tmp/venv" || fmt.Sprint(reply.Packages) != "[numpy]" {
		t.Errorf("%+v", reply)
	}
	b.wantValue(t, "x = 1; import sys; sys.prefix", `"/tmp/venv"`)
	b.shell(t, "vscode", `printf '#!/bin/sh\necho "{\"error\": {\"kind\": \"too_old\"}}"\n' >/tmp/old; `+
		`chmod +x /tmp/old; mkdir -p /tmp/plain/bin; ln -s /usr/bin/python3 /tmp/plain/bin/python`)
	for input, want := range map[string]dray.Code{
		`{"python": {"venv": "/tmp/plain"}}`:                              dray.CodeInvalidInput,
		`{"python": {"executable": "/tmp/old"}}`:                          dray.CodeInvalidInput,
		`{"python": {"executable": "/usr/bin/env"}}`:                      dray.CodeInvalidInput,
		`{"python": {"executable": "/nowhere"}}`:                          dray.CodeExecutableNotFound,
		`{"python": {"executable": "/usr/bin/python3"}, "restart": "no"}`: dray.CodeConflict,
	} {
		_, err := b.prepare(t.Context(), t, input)
		if e := dray.AsError(err); e == nil || e.Code != want || e.Hint == "" {
			t.Errorf("%s: %+v", input, e)
		}
	}
	b.wantValue(t, "[x, sys.prefix]", `[1,"/tmp/venv"]`)
	reply = b.mustPrepare(t, `{"python": {"executable": "/usr/bin/python3"}}`)
	if reply.Python.Executable != "/usr/bin/python3" || !reply.Restarted {
		t.Errorf("%+v", reply)
	}
	b.wantValue(t, "import sys; sys.prefix", `"/usr"`)
}

// A failure, a killed uv and a cancelled call leave manifest, environments, worker and target as
// they were, and nothing of them is in the next reply (PY-15, PY-26).
func TestPrepareFailureChangesNothing(t *testing.T) {
	t.Parallel()
	b := newPreparedBox(t)
	made := b.mustPrepare(t, `{"requirements": {"packages": ["pandas"]}}`)
	b.wantValue(t, "x = 1", "")
	before, err := b.Status(boxKey)
	if err != nil {
		t.Fatal(err)
	}
	environments := b.shell(t, "vscode", listEnvironments)
	check := func(what string) {
		t.Helper()
		after, err := b.Status(boxKey)
		if err != nil || after.Executable != before.Executable || after.Generation != before.Generation ||
			after.State != Idle || !after.HasState {
			t.Errorf("%s: %+v, %v", what, after, err)
		}
		if now := b.shell(t, "vscode", listEnvironments); now != environments {
			t.Errorf("%s: %s", what, now)
		}
		info := b.wantValue(t, "x", "1")
		if info.Restarted || info.DiscardedState {
			t.Errorf("%s: %+v", what, info)
		}
		kept := b.mustPrepare(t, `{}`)
		if kept.Changed || fmt.Sprint(kept.Packages) != "[numpy pandas]" || kept.Python != made.Python {
			t.Errorf("%s: %+v", what, kept)
		}
	}
	for _, packages := range []string{`"pandas>=99"`, `"one", "two"`, `"unknown-package"`, `"source"`} {
		_, err := b.prepare(t.Context(), t, `{"requirements": {"packages": [`+packages+`]}}`)
		if dray.CodeOf(err) != dray.CodeInvalidInput {
			t.Errorf("%s: %v", packages, err)
		}
	}
	check("failures")

	const slow = `{"requirements": {"packages": ["slow"]}}`
	ended := b.whenBlocked(t, func() error {
		_, err := b.prepare(t.Context(), t, slow)
		return err
	})
	b.shell(t, "root", "pkill -KILL -x uv")
	if err := <-ended; dray.CodeOf(err) != dray.CodeTransferFailed {
		t.Errorf("uv killed: %v", err)
	}
	check("uv killed")

	cause := errors.New("cancelled by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended = b.whenBlocked(t, func() error {
		_, err := b.prepare(ctx, t, slow)
		return err
	})
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	check("cancelled")
}

// Another runtime has no prepare (PY-01).
func TestPrepareUnsupported(t *testing.T) {
	s, err := New(Options{
		Runtimes: []Runtime{&fakeRuntime{name: RuntimePyodide}},
		Resident: map[string]int{RuntimePyodide: 1}, Log: zaptest.NewLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Prepare(t.Context(), Key{Runtime: RuntimePyodide, Name: "a"}, nil, CallSpec{},
		PrepareRequest{}, PreparePolicy{}, dray.Discard)
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeUnsupported ||
		!strings.Contains(e.Hint, RuntimeContainer) {
		t.Errorf("%+v", e)
	}
}
