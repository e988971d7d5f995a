package workspace

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/admission"
)

// hangingCLI makes `up` print a line and hang.
func (w fixture) hangingCLI() {
	w.t.Helper()
	cli := filepath.Join(w.t.TempDir(), "devcontainer")
	script := `#!/bin/sh
echo '{"type":"text","level":3,"text":"pulling for ever"}' >&2
exec sleep 1000
`
	if err := os.WriteFile(cli, []byte(script), 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.cfg.CLI = cli
}

// progressSink closes begun at the first progress, and panics then if panics is set.
type progressSink struct {
	dray.Sink
	once   *sync.Once
	begun  chan struct{}
	panics bool
}

func newProgressSink(panics bool) progressSink {
	return progressSink{dray.Discard, new(sync.Once), make(chan struct{}), panics}
}

func (s progressSink) Progress(string, string) {
	s.once.Do(func() { close(s.begun) })
	if s.panics {
		panic("a panic in progress")
	}
}

// noop is an executor of calls that do nothing.
var noop = dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
	return dray.Result{}, nil
})

// A call holds no slot while its workspace is brought up. An `up` that hangs ends after
// devcontainer.up_timeout, with a hint (EX-13).
func TestUp_HoldsNoSlot(t *testing.T) {
	w := newFixture(t, Config{UpTimeout: 3 * time.Second})
	w.hangingCLI()
	dir := w.project(`{"image": "` + busybox + `"}`)
	w.trustIt(dir)
	gate := admission.New(admission.Limits{Concurrent: 1, PerContainer: 1, Queue: 1})
	chain := gate.Executor(w.environments.Executor(noop, gate.Acquire))
	sink, failed := newProgressSink(false), make(chan error, 1)
	go func() {
		route := dray.Route{Environment: dray.KindContainer, Workspace: dir}
		_, err := chain.Execute(t.Context(), dray.Call{Route: route}, sink)
		failed <- err
	}()
	<-sink.begun
	if _, err := chain.Execute(t.Context(), dray.Call{Route: dray.Route{Environment: dray.KindHost}},
		dray.Discard); err != nil {
		t.Errorf("a call for the host while a workspace is brought up: %v", err)
	}
	err := <-failed
	wantCode(t, "an up that hangs", err, dray.CodeContainerFailed)
	if !strings.Contains(err.Error(), "devcontainer.up_timeout (3s)") ||
		!strings.Contains(dray.AsError(err).Hint, "devcontainer.up_timeout") {
		t.Errorf("%v; %s", err, dray.AsError(err).Hint)
	}
}

// A panic of a caller's sink while a workspace is brought up ends only that call (EX-18).
func TestSubscriberPanicFailsOnlyItsOwnCall(t *testing.T) {
	w := newFixture(t, Config{UpTimeout: 3 * time.Second})
	w.hangingCLI()
	dir := w.project(`{"image": "` + busybox + `"}`)
	w.trustIt(dir)
	bad, good := newProgressSink(true), newProgressSink(false)
	raised, failed := make(chan any, 1), make(chan error, 1)
	go func() {
		defer func() { raised <- recover() }()
		_, _ = w.environment(t.Context(), request{workspace: dir}, bad.Progress)
	}()
	go func() {
		_, err := w.environment(t.Context(), request{workspace: dir}, good.Progress)
		failed <- err
	}()
	if p, _ := (<-raised).(error); p == nil || !strings.Contains(p.Error(), "a panic in progress") ||
		!strings.Contains(p.Error(), "up_test.go") {
		t.Errorf("panicked with %v", p)
	}
	<-good.begun
	wantCode(t, "the other call", <-failed, dray.CodeContainerFailed)
}
