package main

import (
	"context"
	"fmt"

	"github.com/dray-dev/dray"
)

// The parts of a run, in their order.
const (
	partCalls    = "calls"
	partParallel = "parallel"
	partAudit    = "audit"
	partStream   = "stream"
	partMemory   = "memory"
	partKill     = "kill"
	partSync     = "sync"
	partPython   = "python"
	partMCP      = "mcp"
	partShell    = "sessions"
)

var partNames = []string{
	partCalls, partParallel, partAudit, partStream, partMemory, partKill, partSync,
	partPython, partMCP, partShell,
}

// measurements are all that a run measured. What was not measured is empty.
type measurements struct {
	machine  machine
	methods  []method
	rounds   int
	runs     runs
	cold     sample
	streams  []*streamRun
	beside   []*interference
	memory   []memoryGrowth
	kills    []*killRun
	syncs    []*syncRun
	python   *pythonRuns // nil if not measured
	mcp      *mcpRuns    // nil if not measured
	recorded string
}

// measure runs one part. Streams, syncs and many callers at once take longer and have fewer rounds.
func (m *measurements) measure(ctx context.Context, b *testbed, part string) (err error) {
	fewer := (m.rounds + 6) / 7
	switch part {
	case partCalls:
		if err = m.runs.measureCalls(ctx, m.methods, callLoads, m.rounds); err == nil {
			err = m.measureCold(ctx, b)
		}
	case partParallel:
		err = m.runs.measureCalls(ctx, m.methods, parallelLoads, fewer)
	case partAudit:
		var methods []method
		if methods, err = newAuditMethods(ctx, b); err == nil {
			err = m.runs.measureCalls(ctx, methods, auditLoads, m.rounds)
		}
	case partStream:
		m.streams = newStreamRuns(b)
		if err = measureStreams(ctx, m.streams, fewer); err == nil {
			m.beside, err = measureInterference(ctx, b)
		}
	case partMemory:
		m.memory, err = measureMemory(ctx, memoryLoads(b))
	case partKill:
		m.kills = newKillRuns(b)
		err = measureKills(ctx, m.kills, 2*m.rounds)
	case partSync:
		if m.syncs, err = newSyncRuns(ctx, b); err == nil {
			err = measureSyncs(ctx, m.syncs, fewer)
		}
	case partPython:
		m.python, err = measurePython(ctx, b, m.rounds)
	case partMCP:
		err = m.measureMCP(ctx, b)
	case partShell:
		var methods []method
		if methods, err = newShellMethods(ctx, b); err == nil {
			err = m.runs.measureCalls(ctx, methods, shellLoads, m.rounds)
		}
	}
	return err
}

// measureCold restarts the daemon in each round and times its first call, in the container that
// runs all the time.
func (m *measurements) measureCold(ctx context.Context, b *testbed) error {
	progress("calls: the first call of a daemon")
	for range m.rounds {
		if err := b.restart(ctx); err != nil {
			return err
		}
		took, err := timed(ctx, b.daemon.call(b.workspace, dray.ChooseContainer), &runTrue)
		if err != nil {
			return fmt.Errorf("first call: %w", err)
		}
		m.cold.add(took)
	}
	return nil
}

// checkAuditLogs checks for every daemon that its audit log contains every call.
func checkAuditLogs(ctx context.Context, b *testbed) (string, error) {
	sum := 0
	for _, d := range b.daemons() {
		calls, err := d.checkAuditLog(ctx)
		if err != nil {
			return "", err
		}
		sum += calls
	}
	const text = "After the run the audit logs contained all %d calls that the daemons had made."
	return fmt.Sprintf(text, sum), nil
}
