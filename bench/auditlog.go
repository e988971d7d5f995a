package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
)

// The methods of the part audit: the process alone, and the same with its begin and end record
// committed to an audit log.
const (
	methodUnrecorded  = "executor, host, no audit log"
	methodLogInMemory = "executor, host, audit log in memory"
	methodLogOnDisk   = "executor, host, audit log on disk"
)

var (
	auditLoads = []load{{1, &runTrue}, {16, &runTrue}, {128, &runTrue}}
	auditCalls = map[int]int{1: 50, 16: 320, 128: 1280}
)

// newAuditMethods opens two audit logs, in memory and on the disk of the state directories.
func newAuditMethods(ctx context.Context, b *testbed) ([]method, error) {
	var host runner
	for _, e := range b.environments {
		if e.name == methodPool {
			host = startAndWait(e.Environment)
		}
	}
	all := []method{{name: methodUnrecorded, calls: auditCalls, run: host}}
	for _, place := range []struct{ name, dir string }{
		{methodLogInMemory, b.memory}, {methodLogOnDisk, b.dir},
	} {
		recorded, err := b.record(ctx, host, filepath.Join(place.dir, "auditlog"))
		if err != nil {
			return nil, err
		}
		all = append(all, method{name: place.name, calls: auditCalls, run: recorded})
	}
	return all, nil
}

// record returns a runner whose calls are recorded in a new audit log.
func (b *testbed) record(ctx context.Context, run runner, dir string) (runner, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	store, _, err := audit.Open(ctx, audit.Options{
		Path: filepath.Join(dir, "audit.db"), CapturesDir: filepath.Join(dir, "captures"),
	})
	if err != nil {
		return nil, err
	}
	b.onClose(store.Close)
	began := time.Now().UnixMilli()
	var calls atomic.Int64
	return func(ctx context.Context, c *command) error {
		input, err := json.Marshal(map[string][]string{"argv": c.argv})
		if err != nil {
			return err
		}
		inv := dray.Invocation{
			ID:   fmt.Sprintf("%08x-%04x-7000-8000-%012x", began>>16, began&0xffff, calls.Add(1)),
			Tool: "exec", Input: input, Principal: "uid:0", Workspace: b.workspace,
		}
		execute := func(ctx context.Context, _ dray.Call, _ dray.Sink) (dray.Result, error) {
			return dray.Result{Reason: dray.ReasonExited, ExitCode: new(int)}, run(ctx, c)
		}
		res, err := store.Executor(dray.ExecutorFunc(execute)).
			Execute(ctx, dray.Call{Invocation: inv}, dray.Discard)
		if err == nil && res.Error != nil {
			err = res.Error
		}
		return err
	}, nil
}

func auditTable(m *measurements, l load) string {
	var rows [][]string
	none := m.runs.of(l, methodUnrecorded).rate()
	memory := m.runs.of(l, methodLogInMemory).rate()
	for _, name := range []string{methodUnrecorded, methodLogInMemory, methodLogOnDisk} {
		if r := m.runs.of(l, name); r.count() > 0 {
			rows = append(rows, []string{
				name, fmt.Sprint(r.count()), millis(r.quantile(0.5)), millis(r.quantile(0.99)),
				digits(r.rate()), ratio(r.rate(), none), ratio(r.rate(), memory),
			})
		}
	}
	return table([]string{
		"method", "calls", "p50", "p99", "calls/s", "calls/s / no log's", "calls/s / in memory",
	}, rows)
}
