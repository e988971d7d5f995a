package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Every change of state other than the legal ones is refused and not recorded, every legal one is
// recorded once (RT-07).
func TestTracker_OnlyLegalTransitions(t *testing.T) {
	all := []State{Discovered, Building, Running, Stopping, Stopped, Failed}
	loc := devcontainer.Location{Workspace: "/w", Config: "/w/.devcontainer.json"}
	for _, from := range all {
		for _, to := range all {
			recorded := &recordedTransitions{}
			tr := tracker{
				record: recorded.record, states: map[devcontainer.Location]State{loc: from},
			}
			err := tr.set(t.Context(), loc, "c", to, "")
			legal := slices.Contains(transitions[from], to)
			wantEvents := 0
			if legal {
				wantEvents = 1
			}
			if got := len(recorded.all); got != wantEvents || (err == nil) != (legal || from == to) {
				t.Errorf("%s to %s: %d events, %v", from, to, got, err)
			}
			if err != nil {
				wantCode(t, "an illegal transition", err, dray.CodeConflict)
			}
		}
	}
	tr := tracker{
		record: func(context.Context, Transition) error { return errors.New("the disk is full") },
		states: map[devcontainer.Location]State{loc: Running},
	}
	if err := tr.set(t.Context(), loc, "c", Stopping, ""); err == nil || tr.states[loc] != Running {
		t.Errorf("a change that was not recorded: %v, %s", err, tr.states[loc])
	}
}

// wantStates compares the recorded states of a workspace, and checks that each change was legal.
func (w fixture) wantStates(folder string, want ...State) {
	w.t.Helper()
	got := w.recorded.states(folder)
	if !slices.Equal(got, want) {
		w.t.Errorf("states %v, want %v", got, want)
	}
	for i := 1; i < len(got); i++ {
		if !slices.Contains(transitions[got[i-1]], got[i]) {
			w.t.Errorf("%s cannot follow %s", got[i], got[i-1])
		}
	}
}

// countsUps returns a configuration whose `up` appends a line to the file on the host.
func countsUps(file, onCreate string) string {
	return fmt.Sprintf(`{"image": %q, "initializeCommand": "echo up >>%s", "onCreateCommand": %q}`,
		busybox, file, onCreate)
}

// calls makes 64 calls at once and returns their errors. It fails for a call without progress.
func (w fixture) calls(folder string) []error {
	w.t.Helper()
	errs := make([]error, 64)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			seen := make(chan string, 1)
			_, errs[i] = w.environment(w.t.Context(), request{workspace: folder},
				func(_, message string) {
					select {
					case seen <- message:
					default:
					}
				})
			if len(seen) == 0 {
				w.t.Errorf("call %d has seen no progress", i)
			}
		})
	}
	wg.Wait()
	return errs
}

func lines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// 64 calls at once to a cold workspace make one `up`, see its progress and succeed (RT-08).
func TestUp_OnceForManyCalls(t *testing.T) {
	w := newFixture(t, Config{})
	ups := filepath.Join(t.TempDir(), "ups")
	dir := w.project(countsUps(ups, "echo created"))
	w.trustIt(dir)
	for i, err := range w.calls(dir) {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := lines(t, ups); n != 1 {
		t.Errorf("%d ups", n)
	}
	w.wantStates(dir, Discovered, Building, Running)
}

// A failing onCreateCommand fails all calls with its log. Calls do not repeat it, also not after a
// restart of the daemon; `up` and a changed configuration do (RT-08).
func TestUp_FailureIsRemembered(t *testing.T) {
	w := newFixture(t, Config{})
	ups := filepath.Join(t.TempDir(), "ups")
	dir := w.project(countsUps(ups, "echo I fail; test -e /workspaces/*/fixed"))
	w.trustIt(dir)
	wantFailure := func(what string, err error) {
		t.Helper()
		wantCode(t, what, err, dray.CodeContainerFailed)
		if err != nil && !strings.Contains(err.Error(), "I fail") {
			t.Errorf("%s: %v has no log", what, err)
		}
	}
	for i, err := range w.calls(dir) {
		wantFailure(fmt.Sprintf("call %d", i), err)
	}
	_, err := w.env(request{workspace: dir})
	wantFailure("a later call", err)
	route := dray.Route{Environment: dray.KindContainer, Workspace: dir}
	wantFailure("the dry run", w.Check(t.Context(), route, dray.Invocation{}, true))
	if n := lines(t, ups); n != 1 {
		t.Errorf("%d ups", n)
	}
	list, err := w.List(t.Context())
	i := slices.IndexFunc(list, func(i Info) bool { return i.Folder == dir })
	if err != nil || i < 0 || list[i].State != Failed || !strings.Contains(list[i].Failure, "I fail") {
		t.Errorf("listed as %+v, %v", list, err)
	}
	w.Close()
	next := newFixture(t, Config{State: w.cfg.State})
	_, err = next.env(request{workspace: dir})
	wantFailure("a call after a restart", err)
	_, err = next.Run(t.Context(), ActionUp, dir, noProgress)
	wantFailure("up", err)
	if err := os.WriteFile(dir+"/fixed", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = next.env(request{workspace: dir})
	wantFailure("a call before it is asked for", err)
	if n := lines(t, ups); n != 2 {
		t.Errorf("%d ups", n)
	}
	if _, err := next.Run(t.Context(), ActionUp, dir, noProgress); err != nil {
		t.Error(err)
	}
	w.wantStates(dir, Discovered, Building, Failed)
	next.wantStates(dir, Discovered, Failed, Building, Failed, Building, Running)
}

// A call repeats an `up` that failed once the configuration has changed (RT-08).
func TestUp_FailureIsForgottenWithItsConfiguration(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `", "onCreateCommand": "false"}`)
	w.trustIt(dir)
	_, err := w.env(request{workspace: dir})
	wantCode(t, "the first call", err, dray.CodeContainerFailed)
	w.write(dir, `{"image": "`+busybox+`", "onCreateCommand": "true"}`)
	_, err = w.env(request{workspace: dir})
	wantCode(t, "a call before the change is trusted", err, dray.CodeWorkspaceUntrusted)
	w.trustIt(dir)
	if got := w.sh(request{workspace: dir}, "echo $((6*7))"); got != "42" {
		t.Errorf("got %s", got)
	}
	w.wantStates(dir, Discovered, Building, Failed, Building, Running)
}

// The states follow what other programs do to the container (RT-07).
func TestStates_FollowTheEngine(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `"}`)
	w.trustIt(dir)
	info, err := w.Run(t.Context(), ActionUp, dir, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	w.docker("stop", "-t", "0", info.Container)
	w.recorded.waitFor(t, dir, Stopped)
	w.docker("start", info.Container)
	w.recorded.waitFor(t, dir, Running)
	if _, err := w.Run(t.Context(), ActionStop, dir, noProgress); err != nil {
		t.Fatal(err)
	}
	w.docker("rm", "-f", info.Container)
	w.recorded.waitFor(t, dir, Discovered)
	w.wantStates(dir, Discovered, Building, Running, Stopped, Running, Stopping, Stopped, Discovered)
}

// An up that keeps a container after its configuration has changed says so. Rebuild replaces the
// container, rm removes it and leaves the directory (RT-07).
func TestRebuildAndRemove(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `"}`)
	w.trustIt(dir)
	first, err := w.Run(t.Context(), ActionUp, dir, noProgress)
	if err != nil || first.Outdated {
		t.Fatalf("%+v, %v", first, err)
	}
	w.write(dir, `{"image": "`+busybox+`", "containerEnv": {"A": "b"}}`)
	w.trustIt(dir)
	var said []string
	progress := func(_, message string) { said = append(said, message) }
	kept, err := w.Run(t.Context(), ActionUp, dir, progress)
	if err != nil || !kept.Outdated || kept.Container != first.Container ||
		!strings.Contains(strings.Join(said, "\n"), "earlier configuration") {
		t.Errorf("%+v, %v, %q", kept, err, said)
	}
	if _, err := w.Run(t.Context(), ActionStop, dir, noProgress); err != nil {
		t.Error(err)
	}
	if kept, err = w.Run(t.Context(), ActionUp, dir, noProgress); err != nil || !kept.Outdated {
		t.Errorf("started again: %+v, %v", kept, err)
	}
	built, err := w.Run(t.Context(), ActionRebuild, dir, noProgress)
	if err != nil || built.Outdated || built.Container == first.Container {
		t.Errorf("%+v, %v", built, err)
	}
	if got := w.sh(request{workspace: dir}, "echo $A"); got != "b" {
		t.Errorf("got %q", got)
	}
	removed, err := w.Run(t.Context(), ActionRemove, dir, noProgress)
	if err != nil || removed.State != Discovered || removed.Container != "" {
		t.Errorf("%+v, %v", removed, err)
	}
	if left := w.containers(devcontainer.LabelFolder + "=" + dir); len(left) != 0 {
		t.Errorf("containers %v are left", left)
	}
	if _, err := os.Stat(dir + "/.devcontainer.json"); err != nil {
		t.Error(err)
	}
	if again, err := w.Run(t.Context(), ActionRemove, dir, noProgress); err != nil {
		t.Errorf("again: %+v, %v", again, err)
	}
	w.wantStates(dir, Discovered, Building, Running, Stopping, Stopped, Building, Running, Building,
		Running, Stopping, Discovered)
}

// A stop cancels an `up` that hangs. The next call brings the workspace up again (RT-07, RT-08).
func TestStop_CancelsUp(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `",
		"onCreateCommand": "test -e /workspaces/*/fixed || sleep 1000"}`)
	w.trustIt(dir)
	started, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		var once sync.Once
		_, err := w.environment(t.Context(), request{workspace: dir}, func(phase, _ string) {
			if phase == "onCreateCommand" {
				once.Do(func() { close(started) })
			}
		})
		failed <- err
	}()
	<-started
	info, err := w.Run(t.Context(), ActionStop, dir, noProgress)
	if err != nil || info.State != Stopped {
		t.Errorf("%+v, %v", info, err)
	}
	err = <-failed
	wantCode(t, "the call", err, dray.CodeContainerFailed)
	if err != nil && !strings.Contains(err.Error(), "the workspace was stopped") {
		t.Error(err)
	}
	if err := os.WriteFile(dir+"/fixed", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.sh(request{workspace: dir}, "true")
}

// Containers are listed by their names with their states: compose services, those that other
// programs made, and those that do not exist (RT-07, RT-12).
func TestListOfContainers(t *testing.T) {
	w := newFixture(t, Config{Named: map[string]Named{
		"gone": {ID: "nobody-has-this"}, "plain": {Label: "dray.test.list=" + t.Name()},
	}})
	id := w.docker("run", "-d", "--init", "--label", "dray.test.list="+t.Name(), busybox,
		"sleep", "1000000")
	t.Cleanup(func() { w.docker("rm", "-f", id) })
	dir := w.project(`{"image": "` + busybox + `"}`)
	w.trustIt(dir)
	info, err := w.Run(t.Context(), ActionUp, dir, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	list, err := w.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	find := func(match func(ContainerState) bool) ContainerState {
		if i := slices.IndexFunc(list, match); i >= 0 {
			return list[i]
		}
		return ContainerState{}
	}
	byName := func(name string) ContainerState {
		return find(func(c ContainerState) bool { return c.Name == name })
	}
	if c := byName("gone"); c.State != Discovered || c.ID != "" {
		t.Errorf("%+v", c)
	}
	if c := byName("plain"); c.State != Running || c.ID != id {
		t.Errorf("%+v", c)
	}
	c := find(func(c ContainerState) bool { return c.ID == info.Container })
	if c.State != Running || c.Workspace != dir || c.Name == "" {
		t.Errorf("%+v", c)
	}
}
