package command

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
)

// singleSlotDaemon is the real daemon without its server, for one call at a time.
type singleSlotDaemon struct {
	*daemon
	chain  dray.Executor
	tool   *dray.Tool // exec
	folder string
	logs   *observer.ObservedLogs
}

func newSingleSlotDaemon(t *testing.T) *singleSlotDaemon {
	t.Helper()
	folder := t.TempDir()
	d, logs := newConfiguredDaemon(t, fmt.Sprintf("limits: {concurrent: 1, queue: 0, grace: 100ms}\n"+
		"host: {roots: [%s]}\n", folder))
	cfg := d.current.Load().cfg
	tools, err := newToolRegistry(cfg, d.toolOptions(cfg))
	if err != nil {
		t.Fatal(err)
	}
	exec, err := tools.Get(t.Context(), "exec")
	if err != nil {
		t.Fatal(err)
	}
	return &singleSlotDaemon{
		daemon: d, chain: d.newExecutor(cfg, d.current.Load().policies), tool: exec, folder: folder,
		logs: logs,
	}
}

// newConfiguredDaemon returns the real daemon without its server and without an engine, with the
// text of its configuration.
func newConfiguredDaemon(t *testing.T, text string) (*daemon, *observer.ObservedLogs) {
	t.Helper()
	state, file := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "config.yaml")
	text += "engine: {host: \"unix:///nowhere/docker.sock\"}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{State: state, ConfigFile: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.MakeState(); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.WarnLevel)
	d, err := newDaemon(t.Context(), cfg, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return d, logs
}

// exec runs a shell script on the host.
func (o *singleSlotDaemon) exec(t *testing.T, script string, sink dray.Sink) (id string,
	res dray.Result,
) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"argv": []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	id = uuid.Must(uuid.NewV7()).String()
	res, err = o.chain.Execute(t.Context(), dray.Call{
		Tool: o.tool, Route: dray.Route{Environment: dray.KindHost, Workspace: o.folder},
		Invocation: dray.Invocation{
			ID: id, Tool: "exec", Input: input, Workspace: o.folder, Principal: "uid:0",
		},
	}, sink)
	if err != nil {
		t.Fatal(err)
	}
	return id, res
}

// panicCase is a sink that panics.
type panicCase struct {
	dray.Sink
	where string
}

func (p panicCase) Started() { p.panicIf("running") }

func (p panicCase) Output(stream dray.Stream, _ []byte) { p.panicIf(stream.String()) }

func (p panicCase) panicIf(where string) {
	if p.where == where {
		panic("panic in " + where)
	}
}

// A panic in a call's sink ends this call with the code internal. Its id is in the log, its
// processes are killed, its slot is released and its end is recorded. The daemon continues (EX-18).
func TestSinkPanicFailsOnlyItsCall(t *testing.T) {
	o := newSingleSlotDaemon(t)
	const script = `echo $$ > %s; (trap '' TERM; sleep 1000) & echo out; echo err >&2; trap '' TERM; while :; do yes | head -c 1000000; sleep 1000; done`
	for _, where := range []string{"running", "stdout", "stderr"} {
		t.Run(where, func(t *testing.T) {
			pidFile := filepath.Join(t.TempDir(), "pid")
			begun := time.Now()
			id, res := o.exec(t, fmt.Sprintf(script, pidFile), panicCase{dray.Discard, where})
			if res.Error == nil || res.Error.Code != dray.CodeInternal || res.Status != dray.StatusFailed ||
				!strings.Contains(res.Error.Hint, id) {
				t.Fatalf("the call ended after %v with: %+v, %+v", time.Since(begun), res, res.Error)
			}
			rec, err := o.audit.Get(t.Context(), "", id)
			if err != nil || rec.Status != dray.StatusFailed || rec.Error == nil ||
				rec.Error.Code != dray.CodeInternal {
				t.Errorf("the audit log has %+v, %v", rec, err)
			}
			o.wantLogged(t, id, "panic in "+where, "panic_test.go")
			text, _ := os.ReadFile(pidFile)
			pid := strings.TrimSpace(string(text))
			if pid == "" && where != "running" { // killed before it could write
				t.Error("the tool did not write its pid")
			}
			if _, err := os.Stat("/proc/" + pid); pid != "" && err == nil {
				t.Errorf("process %s still runs", pid)
			}
			if _, res := o.exec(t, "echo next", dray.Discard); res.Status != dray.StatusSucceeded ||
				res.Stdout.Text != "next\n" {
				t.Errorf("the next call: %+v, %+v", res, res.Error)
			}
		})
	}
}

// wantLogged checks that one line of the log contains all texts.
func (o *singleSlotDaemon) wantLogged(t *testing.T, texts ...string) {
	t.Helper()
lines:
	for _, entry := range o.logs.All() {
		line := fmt.Sprint(entry.Message, entry.ContextMap())
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		return
	}
	t.Errorf("no log line contains %q: %v", texts, o.logs.All())
}
