package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/assets"
)

// The rows of the part python.
const (
	pythonWarm       = "container, warm `1+1`, at the interface"
	pythonWarmHTTP   = "container, warm `1+1`, over HTTP with the log"
	pythonFirst      = "container, first call of a session, over HTTP with the log"
	pythonProcess    = "`python3 -I -c pass`, a process of the container"
	pythonProcHTTP   = "`python3 -I -c pass`, over HTTP with the log"
	pyodideWarm      = "pyodide, warm `1+1`, at the interface"
	pyodideFirst     = "pyodide, first start, which makes the snapshot"
	pyodideStart     = "pyodide, start from the snapshot, without bubblewrap"
	pyodideBwrap     = "pyodide, start from the snapshot, in bubblewrap"
	kernelWarm       = "ipykernel, warm `1+1`"
	kernelStart      = "ipykernel, start and first `1+1`"
	pythonCalls      = 50 // in a round of a warm row
	kernelProgram    = ".tools/ipykernel/bin/python"
	pyodideAssetsDir = ".tools/pyodide"
)

// pythonRow is one way to run Python. run returns the times of the calls of a round.
type pythonRow struct {
	name string
	few  bool // three rounds are enough
	run  func(ctx context.Context) ([]time.Duration, error)
}

// pythonRuns are the times by row, and the memory of an idle process of the runtime pyodide.
type pythonRuns struct {
	names []string
	times map[string]*sample
	idle  int64 // bytes, 0 if not measured
}

// pythonBench has what the rows use.
type pythonBench struct {
	*testbed

	pool      *process.Pool
	assets    *assets.Store
	container dray.Environment
	kernel    *kernel
	sessions  int // that were started over HTTP
	generator uint32
}

// measurePython measures all rows in each round, in an order that changes.
func measurePython(ctx context.Context, b *testbed, rounds int) (_ *pythonRuns, err error) {
	p := &pythonBench{testbed: b, container: b.environments[0]}
	if p.pool, err = b.supervisors(); err != nil {
		return nil, err
	}
	rows, closeRows, err := p.rows(ctx)
	if err != nil {
		return nil, errors.Join(err, closeRows())
	}
	defer func() { err = errors.Join(err, closeRows()) }()
	r := &pythonRuns{times: map[string]*sample{}}
	for _, row := range rows {
		r.names = append(r.names, row.name)
		r.times[row.name] = &sample{}
	}
	for round, order := range shuffled(rounds, len(rows)) {
		progress(fmt.Sprintf("python: round %d of %d", round+1, rounds))
		for _, i := range order {
			if rows[i].few && round > 2 {
				continue
			}
			times, err := rows[i].run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rows[i].name, err)
			}
			r.times[rows[i].name].add(times...)
		}
	}
	r.idle, err = p.idleMemory(ctx)
	return r, err
}

// rows opens what the rows measure. closeRows ends it.
func (p *pythonBench) rows(ctx context.Context) (rows []pythonRow, closeRows func() error,
	err error,
) {
	var workers []python.Worker
	closeRows = func() error {
		for _, w := range workers {
			endWorker(w)
		}
		return p.kernel.close()
	}
	warm := func(runtime python.Runtime) (python.Worker, error) {
		w, err := p.start(ctx, runtime)
		if err == nil {
			workers = append(workers, w)
		}
		return w, err
	}
	inContainer, err := warm(&python.Container{Log: zap.NewNop()})
	if err != nil {
		return nil, closeRows, err
	}
	once := startAndWait(p.container)
	process := &command{argv: []string{"python3", "-I", "-c", "pass"}}
	rows = []pythonRow{
		{name: pythonWarm, run: p.warm(inContainer, p.folder)},
		{name: pythonWarmHTTP, run: repeat(pythonCalls, func(ctx context.Context) error {
			return p.call(ctx, "warm", "1+1")
		})},
		{name: pythonFirst, run: p.firstCall},
		{name: pythonProcess, run: repeat(5, func(ctx context.Context) error {
			return once(ctx, process)
		})},
		{name: pythonProcHTTP, run: repeat(5, func(ctx context.Context) error {
			return p.daemon.call(p.workspace, dray.ChooseContainer)(ctx, process)
		})},
	}
	more, inPyodide, err := p.pyodideRows(ctx)
	if inPyodide != nil {
		workers = append(workers, inPyodide)
	}
	if err != nil {
		return nil, closeRows, err
	}
	rows = append(rows, more...)
	if !isFile(kernelProgram) {
		progress("ipykernel is not installed and is left out; to install it run scripts/setup ipykernel")
		return rows, closeRows, nil
	}
	if p.kernel, err = startKernel(ctx); err != nil {
		return nil, closeRows, err
	}
	return append(rows,
		pythonRow{name: kernelStart, run: func(context.Context) ([]time.Duration, error) {
			return p.kernel.do("start")
		}},
		pythonRow{name: kernelWarm, run: func(context.Context) ([]time.Duration, error) {
			return p.kernel.do(fmt.Sprintf("run %d", pythonCalls))
		}}), closeRows, nil
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// pyodideRows returns the rows of the runtime pyodide, and its worker.
func (p *pythonBench) pyodideRows(ctx context.Context) ([]pythonRow, python.Worker, error) {
	dir, err := filepath.Abs(pyodideAssetsDir)
	if err != nil {
		return nil, nil, err
	}
	p.assets = assets.New(assets.Options{Dir: dir})
	found, err := p.assets.Open(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("find Pyodide: %w (run `make setup`)", err)
	}
	plain := p.pyodide("plain", "")
	w, err := p.start(ctx, plain)
	if err != nil {
		return nil, nil, err
	}
	installations := 0
	rows := []pythonRow{
		{name: pyodideFirst, few: true, run: func(ctx context.Context) ([]time.Duration, error) {
			installations++
			return p.timeStart(ctx, p.pyodide(fmt.Sprint("first", installations), ""))
		}},
		{name: pyodideStart, run: func(ctx context.Context) ([]time.Duration, error) {
			return p.timeStart(ctx, plain)
		}},
		{name: pyodideWarm, run: p.warm(w, "/")},
	}
	bwrap, _ := exec.LookPath("bwrap") // empty if it is not installed
	confined, err := python.NewConfinement(ctx, p.pool.Start, bwrap, found.Deno)
	if err != nil || confined.Bwrap == "" {
		progress("bubblewrap is left out: " + confined.Reason)
		return rows, w, err
	}
	inBwrap := p.pyodide("bwrap", bwrap)
	if _, err := p.timeStart(ctx, inBwrap); err != nil { // makes the snapshot
		return nil, w, err
	}
	return append(rows, pythonRow{
		name: pyodideBwrap, run: func(ctx context.Context) ([]time.Duration, error) {
			return p.timeStart(ctx, inBwrap)
		},
	}), w, nil
}

// pyodide returns the runtime with a snapshot of its own.
func (p *pythonBench) pyodide(name, bwrap string) python.Runtime {
	return python.NewPyodide(python.PyodideConfig{
		Start: p.pool.Start, Assets: p.assets.Open, Dir: filepath.Join(p.dir, "pyodide-"+name),
		Bwrap: bwrap,
	})
}

func (p *pythonBench) start(ctx context.Context, runtime python.Runtime) (python.Worker, error) {
	p.generator++
	return runtime.Start(ctx, python.WorkerSpec{
		Environment: p.container, Generation: p.generator, Memory: 512 << 20,
	})
}

// timeStart times a start up to the hello, which comes after the self-test.
func (p *pythonBench) timeStart(ctx context.Context, runtime python.Runtime,
) ([]time.Duration, error) {
	begun := time.Now()
	w, err := p.start(ctx, runtime)
	took := time.Since(begun)
	if err != nil {
		return nil, err
	}
	endWorker(w)
	return []time.Duration{took}, nil
}

func endWorker(w python.Worker) {
	w.Kill()
	<-w.Done()
}

// warm makes calls in a worker.
func (p *pythonBench) warm(w python.Worker, cwd string) func(context.Context) ([]time.Duration,
	error) {
	req := python.Request{Code: "1+1", Argv: []string{}, State: python.Persistent, Cwd: cwd}
	return repeat(pythonCalls, func(ctx context.Context) error {
		e, err := w.Execute(ctx, req, python.Workspace{})
		if err != nil {
			return err
		}
		_ = e.Stdin().Close() // fails if the request has ended
		var reading sync.WaitGroup
		for _, stream := range []dray.Stream{dray.Stdout, dray.Stderr} {
			reading.Go(func() { _, _ = io.Copy(io.Discard, e.Output(stream)) })
		}
		reading.Wait()
		<-e.Done()
		reply, err := e.Reply()
		if err == nil && string(reply.Value) != "2" {
			err = fmt.Errorf("1+1 is %s", reply.Value)
		}
		return err
	})
}

// repeat makes one call that is not counted, and times the next ones.
func repeat(calls int, call func(context.Context) error) func(context.Context) ([]time.Duration,
	error) {
	return func(ctx context.Context) ([]time.Duration, error) {
		if err := call(ctx); err != nil {
			return nil, err
		}
		times := make([]time.Duration, calls)
		for i := range times {
			begun := time.Now()
			if err := call(ctx); err != nil {
				return nil, err
			}
			times[i] = time.Since(begun)
		}
		return times, nil
	}
}

// firstCall starts a session by its first call, and ends the session.
func (p *pythonBench) firstCall(ctx context.Context) ([]time.Duration, error) {
	p.sessions++
	name := fmt.Sprint("first", p.sessions)
	begun := time.Now()
	if err := p.call(ctx, name, "1+1"); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	return []time.Duration{took}, p.post(ctx, map[string]any{"operation": "reset", "session": name})
}

func (p *pythonBench) call(ctx context.Context, session, code string) error {
	return p.post(ctx, map[string]any{"session": session, "code": code})
}

// post calls the tool python in the container.
func (p *pythonBench) post(ctx context.Context, input map[string]any) error {
	text, err := json.Marshal(map[string]any{
		"tool": "python", "input": input, "workspace": p.workspace,
		"environment": dray.ChooseContainer,
	})
	if err != nil {
		return err
	}
	record, err := p.daemon.http.post(ctx, text)
	if err == nil && record.Status != dray.StatusSucceeded {
		err = fmt.Errorf("call %s is %s: %w", record.ID, record.Status, record.Error)
	}
	if err == nil {
		p.daemon.calls.Add(1)
	}
	return err
}

// idleMemory returns the resident memory of Deno in bytes, after its start from the snapshot.
func (p *pythonBench) idleMemory(ctx context.Context) (int64, error) {
	before, err := denoProcesses()
	if err != nil {
		return 0, err
	}
	w, err := p.start(ctx, p.pyodide("plain", ""))
	if err != nil {
		return 0, err
	}
	defer endWorker(w)
	after, err := denoProcesses()
	if err != nil {
		return 0, err
	}
	for _, pid := range after {
		if !slices.Contains(before, pid) {
			return memoryOf(pid, "VmRSS")
		}
	}
	return 0, errors.New("the process of Deno was not found")
}

// denoProcesses returns the pids of Deno.
func denoProcesses() (pids []int, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		text, _ := os.ReadFile(name) // it may have ended
		var pid int
		if strings.TrimSpace(string(text)) == "deno" {
			if _, err := fmt.Sscanf(name, "/proc/%d/comm", &pid); err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// kernel is bench/kernel/kernel.py, a client of ipykernel.
type kernel struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startKernel starts the client and a first kernel.
func startKernel(ctx context.Context) (*kernel, error) {
	k := &kernel{cmd: exec.CommandContext(ctx, kernelProgram, "bench/kernel/kernel.py")}
	var err error
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	k.out = bufio.NewReader(out)
	if err := k.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the client of ipykernel: %w", err)
	}
	_, err = k.do("start")
	return k, err
}

// do sends a command and returns the times that the client measured.
func (k *kernel) do(command string) ([]time.Duration, error) {
	if _, err := fmt.Fprintln(k.in, command); err != nil {
		return nil, err
	}
	line, err := k.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("read from the client of ipykernel: %w", err)
	}
	var seconds []float64
	if err := json.Unmarshal(line, &seconds); err != nil {
		return nil, err
	}
	var times []time.Duration
	for _, s := range seconds {
		times = append(times, time.Duration(s*float64(time.Second)))
	}
	return times, nil
}

// close ends the kernel and its client. A nil kernel was not started.
func (k *kernel) close() error {
	if k == nil {
		return nil
	}
	return errors.Join(k.in.Close(), k.cmd.Wait())
}

// pythonP50 returns the median of a row in nanoseconds.
func pythonP50(row string) value {
	return func(m *measurements) (float64, bool) {
		if m.python == nil || m.python.times[row] == nil || m.python.times[row].count() == 0 {
			return 0, false
		}
		return float64(m.python.times[row].quantile(0.5)), true
	}
}

func pythonTable(r *pythonRuns) string {
	if r == nil {
		return ""
	}
	var rows [][]string
	for _, name := range r.names {
		s := r.times[name]
		rows = append(rows, []string{
			name, fmt.Sprint(s.count()), millis(s.quantile(0.5)), millis(s.quantile(0.99)), spreadText(s),
		})
	}
	return table([]string{"Python", "calls", "p50", "p99", "p50 of the rounds"}, rows)
}

// pythonTargets are the targets of Python sessions.
func pythonTargets() []target {
	const ms = float64(time.Millisecond)
	ratio := func(text, a, b string, limit float64, atLeast bool) target {
		return target{
			text: text, limit: limit, atLeast: atLeast, value: over(pythonP50(a), pythonP50(b)),
		}
	}
	return []target{
		ratio("Python in the container, warm `1+1`, p50, over `python3 -I -c pass`", pythonWarm,
			pythonProcess, 0.05, false),
		ratio("Python in the container, warm `1+1`, p50, over ipykernel's", pythonWarm, kernelWarm, 0.1,
			false),
		ratio("Python in the container, warm `1+1` over HTTP with the log, p50, over ipykernel's",
			pythonWarmHTTP, kernelWarm, 0.5, false),
		ratio("Python in the container, first call, p50, over `python3 -I -c pass` over HTTP",
			pythonFirst, pythonProcHTTP, 4, false),
		ratio("start of an ipykernel, p50, over the first call of a session in the container",
			kernelStart, pythonFirst, 6, true),
		{
			text: "Pyodide ready without a snapshot, which it makes, p50", limit: 4000 * ms, show: nanos,
			value: pythonP50(pyodideFirst),
		},
		{
			text: "Pyodide ready from a snapshot, p50", limit: 600 * ms, show: nanos,
			value: pythonP50(pyodideStart),
		},
		{
			text: "Pyodide ready from a snapshot, in bubblewrap, p50", limit: 900 * ms, show: nanos,
			value: pythonP50(pyodideBwrap),
		},
		ratio("Pyodide ready without a snapshot, p50, over with one", pyodideFirst, pyodideStart, 4,
			true),
		ratio("Pyodide, warm `1+1`, p50, over ipykernel's", pyodideWarm, kernelWarm, 0.5, false),
		{
			text: "resident memory of an idle Pyodide session", limit: 180 << 20, show: mebibytes,
			value: func(m *measurements) (float64, bool) {
				return float64(idleOf(m)), idleOf(m) > 0
			},
		},
	}
}

func idleOf(m *measurements) int64 {
	if m.python == nil {
		return 0
	}
	return m.python.idle
}
