package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
)

// Another program can read the begin record while the tool runs, and the end record when Execute
// has returned (AU-01).
func TestBeginRecordBeforeRunEndRecordBeforeReply(t *testing.T) {
	s := open(t, options(t.TempDir()))
	db := rawDB(t, s.path)
	inv := newInvocation("exec")
	ran := false
	next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		ran = true
		if got := scan[string](t, db, `SELECT group_concat(kind) FROM events WHERE invocation = ?`, inv.ID); got != "begun" {
			t.Errorf("events while the tool runs: %s, want begun", got)
		}
		rec := get(t, s, inv.ID)
		if rec.Status != dray.StatusRunning || rec.Reason != "" || rec.EndedAt != nil ||
			rec.Tool != "exec" {
			t.Errorf("the record while the tool runs is %+v", rec)
		}
		return exited(3), nil
	})
	res, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv},
		dray.Discard)
	if err != nil || !ran {
		t.Fatalf("Execute: ran %v, error %v", ran, err)
	}
	if res.Status != dray.StatusFailed || res.Error == nil {
		t.Errorf("the result of exit code 3 is not normalized: %+v", res)
	}
	if got := scan[string](t, db, `SELECT group_concat(kind, ' ') FROM events`); got != "begun ended" {
		t.Errorf("events after the reply: %s, want begun ended", got)
	}
	if got := scan[string](t, db, `SELECT status || ' ' || reason || ' ' || exit_code FROM invocations`); got != "failed exited 3" {
		t.Errorf("the row is %q", got)
	}
}

var roundTrips = map[string]struct {
	change func(*dray.Invocation)
	result dray.Result
	err    error
}{
	"a tool in a container": {
		change: func(inv *dray.Invocation) {
			inv.Input = json.RawMessage("{ \"argv\": [\"grep\",\t\"<a & b>\", \"\\u003c\", 1.50] }")
			inv.Context = dray.CallContext{
				PlanID: "p1", SessionID: "s1", SandboxID: "b1",
				Labels: map[string]string{"k": "v"},
			}
			inv.Workspace, inv.Cwd = "/home/me/app", "sub"
			inv.Sync, inv.RewriteText = []string{"out", "/tmp/é"}, new(bool)
		},
		result: dray.Result{
			Reason: dray.ReasonExited, ExitCode: new(int), Output: json.RawMessage(`{"x": [1,  2]}`),
			Stdout: dray.StreamSummary{
				Text: "a\x00\u2028<é>\n", HeadBytes: 9, TotalBytes: 9, KeptBytes: 9,
				SHA256: "ab",
			},
			Stderr: dray.StreamSummary{Truncated: true, OmittedBytes: 1 << 40, TotalBytes: 1 << 40},
			Route: dray.Route{
				Environment: dray.KindContainer, Rule: "call.container", Container: "web", Workspace: "/home/me/app",
				Candidates: []dray.Candidate{{
					Rule: "call.container", Environment: "container",
					Reason: "named",
				}},
			},
			Metadata: dray.Metadata{
				Container: &dray.ContainerMetadata{
					ID: strings.Repeat("c",
						64), Name: "vsc-app", Image: "debian:12", ImageDigest: "sha256:1", Engine: "docker 20.10",
					WorkspaceFolder: "/workspaces/app", User: "vscode", ConfigHash: "h", ExecMS: 0.1 +
						0.2, ExitCode: new(int),
					Transport: "agent", Channel: "stdio",
				},
				Mapping: &dray.MappingReport{
					Mapped: []dray.MappedPath{{
						Pointer: "/input/argv/1", From: "/home/me/app/a",
						To: "/workspaces/app/a",
					}},
					Unmapped: []dray.UnmappedPath{}, Errors: []dray.Detail{},
				},
				Kill: &dray.KillReport{
					Survivors: dray.Survivors{Proven: true, PIDs: []int{7}},
					Leftover:  2,
				},
				Warnings: []string{"the engine's exec was used"},
			},
		},
	},
	"a signal on the host": {
		result: dray.Result{
			Reason: dray.ReasonSignalled, Signal: &dray.Signal{Name: "SIGKILL", Number: 9},
			Route:    dray.Route{Environment: dray.KindHost, Rule: "default"},
			Metadata: dray.Metadata{Kill: &dray.KillReport{Survivors: dray.Survivors{Proven: true}}},
		},
	},
	"could not run": {
		err: dray.Errorf(dray.CodeBadCwd, "no directory /nowhere").WithHint("use another"),
	},
	"long input and output": {
		change: func(inv *dray.Invocation) { inv.Input = longJSON(1 << 20) },
		result: dray.Result{
			Reason: dray.ReasonExited, ExitCode: new(int),
			Output: longJSON(maxInline + 1),
		},
	},
	"the longest input within a row": {
		change: func(inv *dray.Invocation) { inv.Input = longJSON(maxInline) },
		result: dray.Result{Reason: dray.ReasonTimeout},
	},
	"no input at all": {
		change: func(inv *dray.Invocation) { inv.Input = nil },
		result: dray.Result{Reason: dray.ReasonCancelled},
	},
}

func sameRecord(a, b dray.Record) bool {
	return reflect.DeepEqual(a, b) //nolint:govet // the errors in records are data
}

func longJSON(n int) json.RawMessage {
	return json.RawMessage(`{"s":"` + strings.Repeat("x", n-len(`{"s":""}`)) + `"}`)
}

// The record of the audit log equals the result of the call, including the container's metadata
// from its column (AU-02, RS-03).
func TestRecordsReadBackEqual(t *testing.T) {
	for name, tt := range roundTrips {
		t.Run(name, func(t *testing.T) {
			s := open(t, options(t.TempDir()))
			inv := newInvocation("exec")
			if tt.change != nil {
				tt.change(&inv)
			}
			next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result,
				error,
			) {
				return tt.result, tt.err
			})
			res, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv},
				dray.Discard)
			must(t, err)
			want := dray.NewRecord(inv, res.StartedAt).WithResult(res)
			if got := get(t, s, inv.ID); !sameRecord(got, want) {
				t.Errorf("Get returns\n%+v\nwant\n%+v", got, want)
			}
			if len(inv.Input) > maxInline {
				want.Input, want.Output = nil, nil // omitted in lists
			}
			if got := list(t, s, Query{}).Items; len(got) != 1 || !sameRecord(got[0], want) {
				t.Errorf("List returns\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// The column metadata_container is the record's metadata.container (AU-02).
func TestMetadataColumnEqualsRecord(t *testing.T) {
	s := open(t, options(t.TempDir()))
	want := roundTrips["a tool in a container"].result
	run(t, s, newInvocation("exec"), want)
	column := scan[string](t, s.read, `SELECT metadata_container FROM invocations`)
	var got dray.ContainerMetadata
	if err := json.Unmarshal([]byte(column), &got); err != nil ||
		!reflect.DeepEqual(&got, want.Metadata.Container) {
		t.Errorf("the column holds %s (%v), want %+v", column, err, want.Metadata.Container)
	}
}

func TestEnvironmentValuesAreNotStored(t *testing.T) {
	s := open(t, options(t.TempDir()))
	inv := newInvocation("exec")
	inv.Env = map[string]string{"TOKEN": "hunter2", "A": "hunter2"}
	inv.LocalEnv = map[string]string{"LOCAL": "hunter2"}
	run(t, s, inv, exited(0))
	body := scan[string](t, s.read, `SELECT group_concat(body) FROM events`)
	if !strings.Contains(body, `"env":["A","TOKEN"]`) || strings.Contains(body, "hunter2") || strings.Contains(body, "LOCAL") {
		t.Errorf("the bodies are %s", body)
	}
}

// A call whose input cannot be encoded fails, with a row that says so (AU-05).
func TestInvalidInputDoesNotRun(t *testing.T) {
	s := open(t, options(t.TempDir()))
	inv := newInvocation("exec")
	inv.Input = json.RawMessage(`{"a":`)
	res, err := s.Executor(mustNotRun(t)).Execute(context.Background(), dray.Call{Invocation: inv},
		dray.Discard)
	if err != nil || res.Reason != dray.ReasonInvalid || res.Error.Code != dray.CodeInvalidInput {
		t.Fatalf("Execute returns %+v, %v", res, err)
	}
	if rec := get(t, s, inv.ID); rec.Status != dray.StatusFailed || rec.Reason != dray.ReasonInvalid ||
		rec.Input != nil {
		t.Errorf("the record is %+v", rec)
	}
}

// A result that cannot be encoded leaves a row with how the call ended (AU-05).
func TestInvalidResultLeavesRow(t *testing.T) {
	results := map[string]dray.Result{
		"output":   {Output: json.RawMessage(`{]`)},
		"metadata": {Metadata: dray.Metadata{Container: &dray.ContainerMetadata{ExecMS: math.NaN()}}},
	}
	for name, res := range results {
		t.Run(name, func(t *testing.T) {
			s := open(t, options(t.TempDir()))
			inv := newInvocation("exec")
			res.Reason, res.ExitCode = dray.ReasonExited, new(int)
			got := run(t, s, inv, res)
			rec := get(t, s, inv.ID)
			if rec.Status != dray.StatusFailed || rec.Reason != dray.ReasonExited || rec.ExitCode == nil ||
				rec.Error == nil || rec.Error.Code != dray.CodeInternal {
				t.Errorf("the record is %+v, its error %+v", rec, rec.Error)
			}
			if want := dray.NewRecord(inv, got.StartedAt).
				WithResult(got); rec.Error.Message != want.Error.Message || rec.Status != want.Status {
				t.Errorf("the result is %+v, the audit log has %+v", want, rec)
			}
		})
	}
}

// A result that cannot be written to the captures directory leaves a row; such an input does not
// run (AU-05).
func TestUnwritableCaptures(t *testing.T) {
	s := open(t, options(t.TempDir()))
	s.blobs.dir += "/missing"
	inv := newInvocation("exec")
	res := exited(0)
	res.Output = longJSON(maxInline + 1)
	if got := run(t, s, inv, res); got.Status != dray.StatusFailed || got.Output != nil ||
		get(t, s, inv.ID).Status != dray.StatusFailed {
		t.Errorf("the result is %+v", got)
	}
	inv = newInvocation("exec")
	inv.Input = longJSON(maxInline + 1)
	_, err := s.Executor(returning(exited(0))).
		Execute(context.Background(), dray.Call{Invocation: inv}, dray.Discard)
	if codeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("a call whose input cannot be stored returns %v", err)
	}
}

// A panic fails only its own call, and the log has the stack (EX-18).
func TestPanicFailsOnlyItsCall(t *testing.T) {
	core, logs := observer.New(zapcore.ErrorLevel)
	opts := options(t.TempDir())
	opts.Log = zap.New(core)
	s := open(t, opts)
	inv := newInvocation("exec")
	next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result,
		error,
	) {
		return dray.Result{}, explode()
	})
	res, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv},
		dray.Discard)
	if err != nil || res.Error.Code != dray.CodeInternal || res.Status != dray.StatusFailed ||
		!strings.Contains(res.Error.Hint, inv.ID) {
		t.Errorf("Execute returns %+v, %v", res, err)
	}
	if rec := get(t, s, inv.ID); rec.Error == nil || rec.Error.Code != dray.CodeInternal ||
		rec.EndedAt == nil {
		t.Errorf("the record is %+v", rec)
	}
	all := logs.All()
	if len(all) != 1 || all[0].ContextMap()["invocation"] != inv.ID ||
		!strings.Contains(fmt.Sprint(all[0].ContextMap()["stack"]), "explode") {
		t.Errorf("the log is %+v", all)
	}
	run(t, s, newInvocation("exec"), exited(0))
}

func explode() error { panic("boom") }

// A call that is cancelled while it waits for its begin record, or in next, is recorded.
func TestCancelledCallIsRecorded(t *testing.T) {
	s := open(t, options(t.TempDir()))
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("the client left"))
	inv := newInvocation("exec")
	next := dray.ExecutorFunc(func(ctx context.Context, _ dray.Call, _ dray.Sink) (dray.Result,
		error,
	) {
		if ctx.Err() == nil {
			t.Error("the context of next has not ended")
		}
		return dray.Result{Reason: dray.ReasonCancelled}, nil
	})
	if _, err := s.Executor(next).Execute(ctx, dray.Call{Invocation: inv}, dray.Discard); err != nil {
		t.Fatal(err)
	}
	if rec := get(t, s, inv.ID); rec.Reason != dray.ReasonCancelled {
		t.Errorf("the record is %+v", rec)
	}
}

// The duration is monotonic; the times are UTC without a monotonic reading (RS-03).
func TestSetTimes(t *testing.T) {
	started := time.Now().Add(-time.Second)
	res := setTimes(dray.Result{}, started)
	if res.Duration < time.Second || res.Duration > time.Minute || res.StartedAt != started.Round(0).
		UTC() || res.EndedAt.Location() != time.UTC {
		t.Errorf("setTimes returns %+v", res)
	}
}

func TestInvalidAndDuplicateIDs(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for _, id := range []string{
		"", "x", "019A7B2C-0000-7000-8000-000000000001",
		"019a7b2c-0000-7000-8000-00000000000\n", "019a7b2c00000-7000-8000-000000000001",
	} {
		inv := newInvocation("exec")
		inv.ID = id
		if _, err := s.Executor(mustNotRun(t)).Execute(context.Background(), dray.Call{Invocation: inv},
			dray.Discard); codeOf(err) != dray.CodeInternal {
			t.Errorf("id %q returns %v", id, err)
		}
	}
	inv := newInvocation("exec")
	run(t, s, inv, exited(0))
	if _, err := s.Executor(mustNotRun(t)).Execute(context.Background(), dray.Call{Invocation: inv},
		dray.Discard); codeOf(err) != dray.CodeConflict {
		t.Errorf("a used id returns %v", err)
	}
}

func TestGetChecksPrincipal(t *testing.T) {
	s := open(t, options(t.TempDir()))
	inv := newInvocation("exec")
	run(t, s, inv, exited(0))
	for principal, want := range map[string]dray.Code{
		"": "", "uid:0": "",
		"uid:1": dray.CodeNotFound,
	} {
		_, err := s.Get(context.Background(), principal, inv.ID)
		if codeOf(err) != want {
			t.Errorf("Get for %q returns %v, want code %q", principal, err, want)
		}
	}
	if _, err := s.Get(context.Background(), "", newID()); codeOf(err) != dray.CodeNotFound {
		t.Errorf("an unknown id returns %v", err)
	}
}

// Equal inputs share one file, whose hash is in the rows.
func TestEqualInputsShareFile(t *testing.T) {
	s := open(t, options(t.TempDir()))
	for range 3 {
		inv := newInvocation("exec")
		inv.Input = longJSON(maxInline + 1)
		run(t, s, inv, exited(0))
	}
	entries, err := os.ReadDir(s.blobs.dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the directory contains %v, %v", entries, err)
	}
	if got := scan[string](t, s.read, `SELECT DISTINCT input_sha256 FROM invocations`); got != entries[0].Name() {
		t.Errorf("the rows name %s, the file is %s", got, entries[0].Name())
	}
	// A truncated file is written again.
	if err := os.Truncate(filepath.Join(s.blobs.dir, entries[0].Name()), 5); err != nil {
		t.Fatal(err)
	}
	inv := newInvocation("exec")
	inv.Input = longJSON(maxInline + 1)
	run(t, s, inv, exited(0))
	if rec := get(t, s, inv.ID); len(rec.Input) != maxInline+1 {
		t.Errorf("%d bytes of input read back", len(rec.Input))
	}
}
