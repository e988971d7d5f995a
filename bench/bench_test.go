package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

func TestSampleQuantiles(t *testing.T) {
	var s sample
	if s.quantile(0.5) != 0 || s.count() != 0 {
		t.Errorf("an empty sample has p50 %s of %d", s.quantile(0.5), s.count())
	}
	s.add(4*ms, 2*ms, 3*ms)
	s.add(10*ms, 1*ms)
	if got := s.quantile(0.5); got != 3*ms {
		t.Errorf("p50 is %s, want 3ms", got)
	}
	if got := s.quantile(0.99); got != 10*ms {
		t.Errorf("p99 is %s, want 10ms", got)
	}
	if low, high := s.spread(); low != 1*ms || high != 3*ms {
		t.Errorf("the medians of the rounds are %s to %s, want 1ms to 3ms", low, high)
	}
}

func TestMeasureCallsRunsMethodsWithCalls(t *testing.T) {
	var running, most, calls atomic.Int64
	all := runs{}
	methods := []method{
		{name: "many", calls: map[int]int{1: 3, 4: 8}, run: func(context.Context, *command) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			calls.Add(1)
			return nil
		}},
		{name: "none", run: func(context.Context, *command) error { return errors.New("called") }},
	}
	loads := []load{oneCaller, {4, &runTrue}}
	if err := all.measureCalls(t.Context(), methods, loads, 2); err != nil {
		t.Fatal(err)
	}
	if one, four := all.of(loads[0], "many"), all.of(loads[1], "many"); one.count() != 6 ||
		four.count() != 16 || four.rate() <= 0 {
		t.Errorf("%d and %d calls were counted, want 6 and 16", one.count(), four.count())
	}
	if calls.Load() != 6+16+4 || most.Load() > 4 {
		t.Errorf("%d calls were made, %d at once", calls.Load(), most.Load())
	}
}

func TestMeasureCallsStopsAtFirstFailure(t *testing.T) {
	failure := errors.New("failure")
	methods := []method{{
		name: "m", calls: map[int]int{1: 1},
		run: func(context.Context, *command) error { return failure },
	}}
	err := runs{}.measureCalls(t.Context(), methods, []load{oneCaller}, 1)
	if !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

func TestCallsDuringKeepsCallsThatEndedBefore(t *testing.T) {
	calls, release := 0, make(chan struct{})
	call := func(context.Context, *command) error {
		if calls++; calls == 3 {
			close(release)
		}
		return nil
	}
	flood := func(context.Context) error { <-release; return nil }
	times, err := callsDuring(t.Context(), call, flood)
	if err != nil || len(times) < 2 || len(times) >= calls {
		t.Errorf("%d of %d calls were kept: %v", len(times), calls, err)
	}
	failure := errors.New("failure")
	flood = func(context.Context) error { return failure }
	if _, err := callsDuring(t.Context(), call, flood); !errors.Is(err, failure) {
		t.Errorf("the flood's failure became %v", err)
	}
}

func TestExpect(t *testing.T) {
	c := &command{argv: []string{"x"}, stdout: "a"}
	for _, tt := range []struct {
		code   int
		stdout string
		ok     bool
	}{{0, "a", true}, {1, "a", false}, {0, "b", false}} {
		if err := expect(c, tt.code, tt.stdout); (err == nil) != tt.ok {
			t.Errorf("%d, %q: %v", tt.code, tt.stdout, err)
		}
	}
}

func TestDigitsHasThreeSignificantDigits(t *testing.T) {
	for x, want := range map[float64]string{0.5: "0.50", 9.996: "10.0", 99.96: "100", 1234: "1234"} {
		if got := digits(x); got != want {
			t.Errorf("%v is %s, want %s", x, got, want)
		}
	}
}

// fixedRun is a run in which every method took a time under one caller.
func fixedRun(times map[string]time.Duration) *measurements {
	m := &measurements{runs: runs{}}
	for name, took := range times {
		m.methods = append(m.methods, method{name: name})
		m.runs.add(oneCaller, name, []time.Duration{took}, took)
	}
	return m
}

// A limit that the floor forbids is restated by the floor; another stays.
func TestJudgeRestatesLimitByFloor(t *testing.T) {
	m := fixedRun(map[string]time.Duration{
		methodHost: 10 * ms, methodHTTP: 24 * ms, floorRecorded: 22 * ms,
		methodSocket: 16 * ms, floorSupervised: 9 * ms,
	})
	verdicts := judge(m)
	http, socket := verdicts[0], verdicts[2]
	if !http.met() || http.figure() != "2.40" || http.limitText() != "at most 2.53" {
		t.Errorf("over HTTP: %s of %s", http.figure(), http.limitText())
	}
	if socket.met() || socket.limitText() != "at most 1.50" {
		t.Errorf("at the executor: %s of %s", socket.figure(), socket.limitText())
	}
	text := verdictTable(verdicts)
	if !strings.Contains(text, "| at most 1.50 | 0.90 | 1.60 | **missed** |") ||
		!strings.Contains(text, "Not measured: ") {
		t.Errorf("the table is\n%s", text)
	}
}

func TestMissedIsAnErrorIfChecked(t *testing.T) {
	met := verdict{target: target{text: "a", limit: 2, show: digits}, got: 1, measured: true}
	bad := verdict{target: target{text: "b", limit: 2, show: digits}, got: 3, measured: true}
	var told string
	tell := func(text string) { told = text }
	if err := missed([]verdict{met}, true, tell); err != nil || told != "" {
		t.Errorf("a met target: %v, %q", err, told)
	}
	if err := missed([]verdict{met, bad}, false, tell); err != nil ||
		!strings.Contains(told, "b: 3.00, want at most 2.00") {
		t.Errorf("a missed target: %v, %q", err, told)
	}
	if err := missed([]verdict{met, {target: met.target}}, true, tell); err == nil {
		t.Error("a target that was not measured counts as met")
	}
}

func TestPageHasTableOfEveryPart(t *testing.T) {
	m := fixedRun(map[string]time.Duration{methodHost: ms})
	for _, l := range parallelLoads {
		m.runs.add(l, methodHost, []time.Duration{ms}, ms)
	}
	m.runs.add(manyCallers, methodHost, []time.Duration{ms}, ms)
	m.cold.add(ms)
	m.streams = []*streamRun{{name: streamHost, bytes: 1}}
	m.beside = []*interference{{name: "beside"}}
	m.memory = []memoryGrowth{{load: "memory", grew: map[string]int64{processDaemon: 1 << 20}}}
	m.kills = []*killRun{{name: "kill", left: []int{3, 1}}}
	m.syncs = []*syncRun{{method: syncDocker, load: loadFiles, storage: storage{name: onDisk}}}
	m.syncs[0].add(ms)
	text := page(m, judge(m))
	for _, want := range []string{
		"| host, os/exec | 1 | 1.00 ms |", "first call of a daemon | 1 |", "32 callers at once",
		"256 callers at once", "| host pipe |", "| beside |", "| memory | 1.00 MiB |", "| kill |",
		"| 3 |", "| `docker cp` | 1 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

func TestPublishKeepsTextAroundFigures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	text := "before\n" + beginMark + "\nold\n" + endMark + "\nafter\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := publish(path, "new\n", nil); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	want := "before\n" + beginMark + "\n\nnew\n\n" + endMark + "\nafter\n"
	if err != nil || string(got) != want {
		t.Errorf("the page is %q, %v", got, err)
	}
	if _, err := replaceFigures("no marks", "new"); !errors.Is(err, errMarks) {
		t.Errorf("without marks: %v", err)
	}
	var out bytes.Buffer
	if err := publish("", "new\n", &out); err != nil || out.String() != "new\n" {
		t.Errorf("without a page: %q, %v", out.String(), err)
	}
}

func TestRunRefusesUnknownPart(t *testing.T) {
	err := run(t.Context(), options{parts: []string{"calls", "paths"}})
	if err == nil || !strings.Contains(err.Error(), `"paths"`) {
		t.Errorf("got %v", err)
	}
	if err := run(t.Context(), options{parts: []string{"calls"}, write: "page"}); err == nil {
		t.Error("-write accepts a run of one part")
	}
}

func TestFloorProgramMakesCalls(t *testing.T) {
	f, err := compileFloor(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"exec", "supervised", "recorded"} {
		for _, callers := range []int{1, 5} {
			m := method{floor: mode, floorProgram: f}
			times, took, err := m.batch(t.Context(), load{callers, &runTrue}, 10)
			if err != nil || len(times) != 10 || took <= 0 || quantile(times, 0) <= 0 {
				t.Errorf("%s by %d: %d times, %s, %v", mode, callers, len(times), took, err)
			}
		}
	}
	f.tool = "/bin/false"
	m := method{floor: "exec", floorProgram: f}
	if _, _, err := m.batch(t.Context(), oneCaller, 1); err == nil {
		t.Error("a program that fails is not noticed")
	}
}

func TestToolWritesBytesAndLeavesTree(t *testing.T) {
	dir := t.TempDir()
	if err := compileTool(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	b := &testbed{workspace: dir}
	if err := b.hostPipe(t.Context(), 1<<20); err != nil {
		t.Error(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, toolName), "tree", "3")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 6)
	if _, err := out.Read(line); err != nil || string(line) != "ready\n" {
		t.Errorf("it printed %q, %v", line, err)
	}
	pids, err := trees()
	if err != nil || len(pids) < 4 {
		t.Errorf("%d processes run, want 4: %v", len(pids), err)
	}
	if err := endAll(pids); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
}

func TestStatusField(t *testing.T) {
	n, err := statusField("Name:\tx\nVmRSS:\t   12 kB\n", "VmRSS")
	if err != nil || n != 12<<10 {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := statusField("Name:\tx\n", "VmRSS"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the field: %v", err)
	}
}

func TestIsTree(t *testing.T) {
	for stat, want := range map[string]bool{
		"1 (benchtool) S 1": true, "1 (benchtool) Z 1": false, "1 (other) S 1": false, "": false,
	} {
		if isTree([]byte(stat)) != want {
			t.Errorf("%q: want %v", stat, want)
		}
	}
}

func TestVerifySyncedCountsFiles(t *testing.T) {
	dir := t.TempDir()
	if err := fill(dir, false); err != nil {
		t.Fatal(err)
	}
	if err := verifySynced(dir+"/"+loadFiles, loadFiles); err != nil {
		t.Error(err)
	}
	if err := os.Remove(dir + "/" + loadFiles + "/0/7"); err != nil {
		t.Fatal(err)
	}
	if err := verifySynced(dir+"/"+loadFiles, loadFiles); err == nil {
		t.Error("a missing file was not noticed")
	}
}
