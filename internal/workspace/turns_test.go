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

// hangingCLI makes the `up` of a world one that says a line and hangs.
func (w fixture) hangingCLI() {
	w.t.Helper()
	cli := filepath.Join(w.t.TempDir(), "devcontainer")
	script := "#!/bin/sh\necho '{\"type\":\"text\",\"level\":3,\"text\":\"pulling for ever\"}' >&2\nexec sleep 1000\n"
	if err := os.WriteFile(cli, []byte(script), 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.cfg.CLI = cli
}

// signals is a sink that tells when it hears of the first progress. With panics it panics then.
type signals struct {
	dray.Sink
	once   *sync.Once
	begun  chan struct{}
	panics bool
}

func newSignals(panics bool) signals {
	return signals{dray.Discard, new(sync.Once), make(chan struct{}), panics}
}

func (s signals) Progress(string, string) {
	s.once.Do(func() { close(s.begun) })
	if s.panics {
		panic("planted in the progress")
	}
}

// ended is a call's executor that has nothing to do.
var ended = dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result,
	error,
) {
	return dray.Result{}, nil
})

// EX-13: a workspace that is being brought up holds no slot that another call needs, and what hangs
// there ends with devcontainer.up_timeout and says what to do.
func TestUpHoldsNoTurn(t *testing.T) {
	w := newFixture(t, Config{UpTimeout: 3 * time.Second})
	w.hangingCLI()
	dir := w.project(`{"image": "` + busybox + `"}`)
	w.trustIt(dir)
	gate := admission.New(admission.Limits{Concurrent: 1, PerContainer: 1, Queue: 1})
	chain := gate.Executor(w.environments.Executor(ended, gate.Acquire))
	waits, failed := newSignals(false), make(chan error, 1)
	go func() {
		route := dray.Route{Environment: dray.KindContainer, Workspace: dir}
		_, err := chain.Execute(t.Context(), dray.Call{Route: route}, waits)
		failed <- err
	}()
	<-waits.begun
	if _, err := chain.Execute(t.Context(), dray.Call{Route: dray.Route{Environment: dray.KindHost}},
		dray.Discard); err != nil {
		t.Errorf("a call for the host, while a workspace is brought up: %v", err)
	}
	err := <-failed
	wantCode(t, "an up that hangs", err, dray.CodeContainerFailed)
	if !strings.Contains(err.Error(), "devcontainer.up_timeout (3s)") ||
		!strings.Contains(dray.AsError(err).Hint, "devcontainer.up_timeout") {
		t.Errorf("%v; %s", err, dray.AsError(err).Hint)
	}
}

// EX-18: a caller whose sink panics while a workspace is brought up ends its own call, and nobody
// else's waiting.
func TestPanicOfOneWhoWaits(t *testing.T) {
	w := newFixture(t, Config{UpTimeout: 3 * time.Second})
	w.hangingCLI()
	dir := w.project(`{"image": "` + busybox + `"}`)
	w.trustIt(dir)
	bad, good := newSignals(true), newSignals(false)
	raised, failed := make(chan any, 1), make(chan error, 1)
	go func() {
		defer func() { raised <- recover() }()
		_, _ = w.environment(t.Context(), request{workspace: dir}, bad.Progress)
	}()
	go func() {
		_, err := w.environment(t.Context(), request{workspace: dir}, good.Progress)
		failed <- err
	}()
	if p, _ := (<-raised).(error); p == nil ||
		!strings.Contains(p.Error(), "planted in the progress") ||
		!strings.Contains(p.Error(), "turns_test.go") {
		t.Errorf("raised %v", p)
	}
	<-good.begun
	wantCode(t, "the other one", <-failed, dray.CodeContainerFailed)
}
