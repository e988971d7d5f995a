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

// singleSlotDaemon is the real chain of a daemon in which one call runs at a time, with all of its
// rooms, and no server in front.
type singleSlotDaemon struct {
	*daemon
	chain  dray.Executor
	folder string
	logs   *observer.ObservedLogs
}

func newOneSlot(t *testing.T) *singleSlotDaemon {
	t.Helper()
	state, folder := filepath.Join(t.TempDir(), "state"), t.TempDir()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("limits: {concurrent: 1, queue: 0, grace: 100ms}\nhost: {roots: [%s]}\nengine: {host: \"unix:///nowhere/docker.sock\"}\n", folder)
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
	tools, err := newToolRegistry(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := newRouter(cfg, tools, d.nearest)
	if err != nil {
		t.Fatal(err)
	}
	return &singleSlotDaemon{
		daemon: d, chain: d.newExecutor(cfg, tools, rules), folder: folder,
		logs: logs,
	}
}

// exec makes a call of a shell command on the host.
func (o *singleSlotDaemon) exec(t *testing.T, script string, sink dray.Sink) (id string,
	res dray.Result,
) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"argv": []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	id = uuid.Must(uuid.NewV7()).String()
	res, err = o.chain.Execute(t.Context(), dray.Call{Invocation: dray.Invocation{
		ID: id, Tool: "exec", Input: input, Environment: dray.ChooseHost, Workspace: o.folder, Principal: "uid:0",
	}}, sink)
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
		panic("planted in " + where)
	}
}

// EX-18: a panic in what hears a call, be it in a goroutine of the call's own, ends this call as
// internal, with its id in the log, its process gone, its slot given back and its end in the trail;
// the daemon lives.
func TestPlantedPanics(t *testing.T) {
	o := newOneSlot(t)
	const script = `echo $$ > %s; (trap '' TERM; sleep 1000) & echo out; echo err >&2; trap '' TERM; while :; do yes | head -c 1000000; sleep 1000; done`
	for _, where := range []string{"running", "stdout", "stderr"} {
		t.Run(where, func(t *testing.T) {
			pidFile := filepath.Join(t.TempDir(), "pid")
			begun := time.Now()
			id, res := o.exec(t, fmt.Sprintf(script, pidFile), panicCase{dray.Discard, where})
			if res.Error == nil || res.Error.Code != dray.CodeInternal || res.Status != dray.StatusFailed ||
				!strings.Contains(res.Error.Hint, id) {
				t.Fatalf("the call ended so after %v: %+v, %+v", time.Since(begun), res, res.Error)
			}
			rec, err := o.audit.Get(t.Context(), "", id)
			if err != nil || rec.Status != dray.StatusFailed || rec.Error == nil ||
				rec.Error.Code != dray.CodeInternal {
				t.Errorf("the trail has %+v, %v", rec, err)
			}
			o.wantLogged(t, id, "planted in "+where, "panic_test.go")
			text, _ := os.ReadFile(pidFile)
			pid := strings.TrimSpace(string(text))
			if pid == "" && where != "running" { // there it may be ended before it can write
				t.Error("the tool did not write its pid")
			}
			if _, err := os.Stat("/proc/" + pid); pid != "" && err == nil {
				t.Errorf("process %s is still there", pid)
			}
			if _, res := o.exec(t, "echo next", dray.Discard); res.Status != dray.StatusSucceeded ||
				res.Stdout.Text != "next\n" {
				t.Errorf("the next call: %+v, %+v", res, res.Error)
			}
		})
	}
}

// wantLogged looks for one line of the log that has all of these.
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
	t.Errorf("no line of the log has %q: %v", texts, o.logs.All())
}
