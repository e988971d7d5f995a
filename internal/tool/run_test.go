package tool

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/transfer"
)

// Argv arrives byte for byte, without a shell (EX-04).
func TestExec(t *testing.T) {
	b := newFixture(t)
	res := b.call(t, "exec", object{"argv": []string{"printf", `[%s]`, "a b", "$HOME", `"'\`, "", "*", "é\n"}})
	succeeded(t, res)
	if want := "[a b][$HOME][\"'\\][][*][é\n]"; res.Stdout.Text != want || res.Output != nil {
		t.Errorf("stdout %q and output %s, want %q and none", res.Stdout.Text, res.Output, want)
	}
	res = b.call(t, "exec", object{"argv": []string{"no-such-program"}})
	failedWith(t, res, dray.CodeExecutableNotFound)
	if res.Reason != dray.ReasonStartFailed {
		t.Errorf("reason %s", res.Reason)
	}
}

// The command reaches the shell of the environment once and whole (EX-04).
func TestShell(t *testing.T) {
	b := newFixture(t)
	res := b.call(t, "shell", object{"command": `printf '%s|' "$0" $((6*7)); exit 3`})
	if res.Stdout.Text != "/bin/sh|42|" || res.ExitCode == nil || *res.ExitCode != 3 ||
		res.Status != dray.StatusFailed || res.Error.Code != "" {
		t.Errorf("stdout %q, exit code %v, error %+v", res.Stdout.Text, res.ExitCode, res.Error)
	}
	succeeded(t, b.call(t, "shell", object{"command": "[ -n \"$BASH_VERSION\" ]", "shell": "bash"}))
	failedWith(t, b.call(t, "shell", object{"command": "true", "shell": "/no/shell"}),
		dray.CodeExecutableNotFound)
}

func TestStdinAndEnv(t *testing.T) {
	b := newFixture(t)
	res := b.call(t, "shell", object{"command": `read line; echo "$line $X"`}, func(c *dray.Call) {
		c.Stdin, c.Invocation.Env = strings.NewReader("from the caller\n"), map[string]string{"X": "x=1"}
	})
	succeeded(t, res)
	if res.Stdout.Text != "from the caller x=1\n" {
		t.Errorf("stdout %q", res.Stdout.Text)
	}
}

func command(name, script string, change ...func(*commandTool)) commandTool {
	c := commandTool{
		Tool: dray.Tool{Name: name}, Command: Command{Argv: []string{"/bin/sh", "-c", script}},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func asJSON(c *commandTool) { c.JSONOutput = true }

func promising(schema string) func(*commandTool) {
	return func(c *commandTool) { c.JSONOutput, c.OutputSchema = true, json.RawMessage(schema) }
}

// A command tool reads its input on stdin: one JSON object, then end of file. Nothing of it is in
// argv (EX-03).
func TestCommandInput(t *testing.T) {
	b := newFixture(t, command("echo", `cat; printf '|%s' "$#" "$*"`))
	res := b.call(t, "echo", `{"b": 1, "a": "$(touch x) é\n", "n": 12345678901234567890}`)
	succeeded(t, res)
	if want := `{"b": 1, "a": "$(touch x) é\n", "n": 12345678901234567890}|0|`; res.Stdout.Text != want {
		t.Errorf("stdout %q, want %q", res.Stdout.Text, want)
	}
	succeeded(t, newFixture(t, command("deaf", "exit 0")).
		call(t, "deaf", object{"long": strings.Repeat("x", 1<<20)}))
}

// The JSON output of every way to end (CA-06).
func TestCommandOutput(t *testing.T) {
	b := newFixture(t,
		command("text", `echo '{"a":1}'`),
		command("object", `echo '{"a": 1}'`, asJSON),
		command("silent", `exit 0`, asJSON),
		command("noise", `echo hello; exit 4`, asJSON),
		command("partial", `printf '{"a":'; kill -9 $$`, asJSON),
		command("long", `printf '['; head -c 1100000 /dev/zero | tr '\0' 1; printf ']'`, asJSON),
		command("missing", "", asJSON, func(c *commandTool) { c.Argv = []string{"no-such-program"} }),
	)
	for name, want := range map[string]string{
		"text":    ``,
		"object":  `{"a":1}`,
		"silent":  `{}`,
		"noise":   `{"raw_output":"hello","parse_error":{"message":"invalid character 'h' at start of value","offset":0}}`,
		"partial": `{"raw_output":"{\"a\":","parse_error":{"message":"unexpected EOF","offset":5}}`,
		"missing": ``,
	} {
		if res := b.call(t, name, `{}`); string(res.Output) != want {
			t.Errorf("%s: output %s, want %s", name, res.Output, want)
		}
	}
	res := b.call(t, "long", `{}`)
	succeeded(t, res)
	if !res.Stdout.Truncated || !strings.Contains(string(res.Output), `"offset":1048576`) || len(res.Output) > 40<<10 {
		t.Errorf("truncated %v became an output of %d bytes that ends with %s", res.Stdout.Truncated,
			len(res.Output), res.Output[max(0, len(res.Output)-200):])
	}
}

// A violation of the output schema is a failure although the tool exited with 0 (CA-06).
func TestOutputSchema(t *testing.T) {
	schema := promising(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	b := newFixture(t,
		command("kept", `echo '{"n":1}'`, schema),
		command("broken", `echo '{"n":"one"}'`, schema),
		command("wrapped", `echo 5`, schema),
		command("noise", `echo hello`, promising(`{}`)),
		command("failed", `echo '{"n":"one"}'; exit 1`, schema),
	)
	succeeded(t, b.call(t, "kept", `{}`))
	for name, pointer := range map[string]string{
		"broken": "/output/n", "wrapped": "/output",
		"noise": "/output",
	} {
		res := b.call(t, name, `{}`)
		failedWith(t, res, dray.CodeOutputInvalid)
		if res.Reason != dray.ReasonExited || res.ExitCode == nil || *res.ExitCode != 0 ||
			len(res.Output) == 0 {
			t.Errorf("%s: reason %s, exit code %v, output %s", name, res.Reason, res.ExitCode, res.Output)
		}
		if len(res.Error.Details) != 1 || res.Error.Details[0].Pointer != pointer {
			t.Errorf("%s: %v, want a pointer to %s", name, res.Error.Details, pointer)
		}
	}
	if res := b.call(t, "failed", `{}`); res.Error.Code != "" || string(res.Output) != `{"n":"one"}` {
		t.Errorf("a tool that failed by itself has %+v", res.Error)
	}
}

// A call that is cancelled before it starts writes nothing.
func TestCall_CancelledBeforeStart(t *testing.T) {
	b := newFixture(t)
	inv := dray.Invocation{ID: "gone", Tool: "write_file", Input: json.RawMessage(`{"path":"new","content":"x"}`)}
	_, err := b.exec.Execute(cancelled(executor.ErrTimeout),
		dray.Call{Invocation: inv, Environment: b.env}, dray.Discard)
	if !errors.Is(err, executor.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if out := output[listOutput](t, b.call(t, "list_dir",
		object{"path": "."})); len(out.Entries) != 0 {
		t.Errorf("left behind: %v", out.Entries)
	}
}

// The idle timeout is the call's, else the configured one (EX-08).
func TestIdleTimeout(t *testing.T) {
	b := newFixture(t)
	res := b.call(t, "exec", object{"argv": []string{"sleep", "60"}},
		func(c *dray.Call) { c.Invocation.IdleTimeout = 10 * time.Millisecond })
	if res.Reason != dray.ReasonIdleTimeout {
		t.Errorf("reason %s, error %+v", res.Reason, res.Error)
	}
}

// fakeTransfer records its requests and returns fixed results.
type fakeTransfer struct {
	asked  []transfer.Request
	pushed bool
	report dray.SyncReport
	err    error
	during func(ctx context.Context) error
}

func (c *fakeTransfer) Fetch(_ context.Context, _ dray.Environment,
	req transfer.Request,
) (dray.SyncReport, error) {
	c.asked = append(c.asked, req)
	return c.report, c.err
}

func (c *fakeTransfer) Push(ctx context.Context, env dray.Environment,
	req transfer.Request,
) (dray.SyncReport, error) {
	c.pushed = true
	return c.Fetch(ctx, env, req)
}

func (c *fakeTransfer) Declare(env dray.Environment, req transfer.Request,
) *transfer.Declaration {
	return new(transfer.Syncer).Declare(env, req)
}

func (c *fakeTransfer) CheckHostWrite(string) error        { return nil }
func (c *fakeTransfer) CheckHostChange(string, bool) error { return nil }

func (c *fakeTransfer) FetchDeclared(ctx context.Context, env dray.Environment,
	req transfer.Request,
) dray.SyncReport {
	r, _ := c.Fetch(ctx, env, req)
	if c.during != nil && c.during(ctx) != nil {
		r.State = dray.SyncFailed
	}
	return r
}

// outsideEnv is a container with capabilities only.
type outsideEnv struct {
	dray.Environment
	caps dray.Capabilities
}

func (a outsideEnv) Capabilities() dray.Capabilities { return a.caps }

func syncCall(input string) dray.Call {
	return dray.Call{
		Invocation: dray.Invocation{
			ID: "the-id", Tool: "sync", Input: json.RawMessage(input),
			Workspace: "/home/me/app",
		},
		Route: dray.Route{Environment: dray.KindContainer, Workspace: "/home/me/app"},
		Environment: outsideEnv{caps: dray.Capabilities{
			Kind: dray.KindContainer, WorkspaceFolder: "/ws", Mounts: []dray.Mount{{
				Host:      "/home/me/app",
				Container: "/ws",
			}},
		}},
	}
}

var oneFile = dray.SyncReport{
	State: dray.SyncComplete, Bytes: 3, Refused: []dray.RefusedPath{},
	Files: []dray.SyncedFile{{
		Path: "/ws/out/a", Source: "/tmp/out/a", Size: 3, SHA256: "ff", SHA256Before: "ee", Mode: "0600", Action: dray.FileReplaced,
	}},
	Targets: []dray.SyncTarget{{Source: "/tmp/out", Path: "/srv/box/out"}},
}

// The output is the manifest, the metadata have the report, and the audit log the changes (AU-11,
// SY-10).
func TestSyncTool(t *testing.T) {
	c := &fakeTransfer{report: oneFile}
	run := resolving(registryWith(t, Options{Transfer: c}), dray.RunTool)
	res, err := run.Execute(t.Context(), syncCall(`{"paths":["/home/me/app/x","../y"],"destination":"d","on_refused":"skip","dry_run":true}`), dray.Discard)
	if err != nil || res.Reason != dray.ReasonExited {
		t.Fatalf("got %+v, %v", res, err)
	}
	req := c.asked[0]
	if req.ID != "the-id" || req.Dir != "/ws" || req.Workspace != "/home/me/app" ||
		req.Destination != "d" || !req.SkipRefused || !req.DryRun || c.pushed ||
		len(req.Paths) != 2 || req.Paths[0] != "/home/me/app/x" || req.Paths[1] != "../y" {
		t.Errorf("asked %+v", req)
	}
	want := `{"files":[{"path":"/ws/out/a","source":"/tmp/out/a","size":3,"sha256":"ff","sha256_before":"ee","mode":"0600","action":"replaced"}],"refused":[],"bytes":3,"dry_run":false}`
	if string(res.Output) != want {
		t.Errorf("got %s", res.Output)
	}
	if res.Metadata.Sync == nil || len(res.Metadata.Changes) != 1 ||
		res.Metadata.Changes[0] != (dray.FileChange{
			Environment: dray.KindHost, Path: "/ws/out/a", Action: dray.FileReplaced, SHA256Before: "ee", SHA256After: "ff",
		}) {
		t.Errorf("got %+v", res.Metadata)
	}
	if _, err := run.Execute(t.Context(), syncCall(`{"paths":["x"],"direction":"to_container"}`), dray.Discard); err != nil || !c.pushed {
		t.Errorf("pushed %v, %v", c.pushed, err)
	}
}

func TestSyncToolFails(t *testing.T) {
	c := &fakeTransfer{report: dray.SyncReport{
		State:   dray.SyncRefused,
		Refused: []dray.RefusedPath{{Path: "x", Code: dray.CodeDenied}},
	}}
	run := resolving(registryWith(t, Options{Transfer: c}), dray.RunTool)
	for _, code := range []dray.Code{
		dray.CodeSyncRefused, dray.CodeLimitExceeded, dray.CodeDiskFull,
		dray.CodeTransferFailed,
	} {
		c.err = dray.Errorf(code, "no")
		res, err := run.Execute(t.Context(), syncCall(`{"paths":["x"]}`), dray.Discard)
		if dray.CodeOf(err) != code || res.Metadata.Sync == nil || len(res.Metadata.Sync.Refused) != 1 ||
			res.Output != nil {
			t.Errorf("%s: got %+v, %v", code, res, err)
		}
		if rec := dray.NormalizeResult(res, err); rec.Reason == dray.ReasonStartFailed {
			t.Errorf("%s: reason %s", code, rec.Reason)
		}
	}
}

// The tool that Sync returns uses the typed input and never decodes the one of the call.
func TestSync_TypedInput(t *testing.T) {
	c := &fakeTransfer{report: oneFile}
	in := SyncInput{Paths: []string{"/ws/<a>"}, DryRun: true, Direction: transfer.ToContainer}
	r := registryWith(t, Options{Transfer: c, SyncTimeout: time.Minute})
	tool, input, err := r.Sync(in)
	if err != nil || string(input) != `{"paths":["/ws/<a>"],"dry_run":true,"direction":"to_container"}` {
		t.Fatalf("input %s, %v", input, err)
	}
	if tool.Name != "sync" || tool.Timeout != time.Minute || tool.CheckInput(input) != nil {
		t.Errorf("got %+v", tool)
	}
	call := syncCall(`{"paths":["other"]}`)
	call.Tool = tool
	if _, err := dray.RunTool.Execute(t.Context(), call, dray.Discard); err != nil {
		t.Fatal(err)
	}
	if req := c.asked[0]; !c.pushed || !req.DryRun || len(req.Paths) != 1 ||
		req.Paths[0] != "/ws/<a>" {
		t.Errorf("asked %+v", req)
	}
}

func TestSyncToolInput(t *testing.T) {
	tool, err := registry(t).Get(t.Context(), "sync")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{}`, `{"paths":[]}`, `{"paths":"x"}`, `{"paths":["x"],"on_refused":"maybe"}`, `{"paths":["x"],"direction":"up"}`, `{"paths":["x"],"else":1}`} {
		if err := tool.CheckInput(json.RawMessage(bad)); dray.CodeOf(err) != dray.CodeInvalidInput {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

// outputs runs a tool with declared outputs whose process ends as given.
func outputs(t *testing.T, c *fakeTransfer, invSync []string,
	end func() (dray.Result, error),
) (dray.Result, error) {
	t.Helper()
	report := commandTool{Command: Command{Argv: []string{"report"}, JSONOutput: true}}
	report.Name, report.Results = "report", []string{"out", "/tmp/log"}
	r := registryWith(t, Options{Transfer: c})
	next := func(context.Context, dray.Call, dray.Sink) (dray.Result, error) { return end() }
	call := syncCall(`{}`)
	call.Invocation.Tool, call.Invocation.Sync, call.Invocation.Cwd = "report", invSync, "sub"
	return replaced(defined(t, r, "report", report), r.fetchOutputs(next)).
		Execute(t.Context(), call, dray.Discard)
}

// The declared outputs of tool and call are fetched however the process ended, and the fetched
// paths in the output are the host's (SY-11).
func TestDeclaredOutputs_Fetched(t *testing.T) {
	for name, reason := range map[string]dray.Reason{
		"exit":   dray.ReasonExited,
		"signal": dray.ReasonSignalled, "timeout": dray.ReasonTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			c := &fakeTransfer{report: oneFile}
			res, err := outputs(t, c, []string{"more"}, func() (dray.Result, error) {
				return dray.Result{
					Reason: reason, Metadata: dray.Metadata{Kill: &dray.KillReport{}},
					Output: json.RawMessage(`{"report":"/tmp/out/a","folder":"/tmp/out","source":"/ws/x","other":"/tmp/else"}`),
				}, nil
			})
			if err != nil || res.Reason != reason || res.Metadata.Sync == nil ||
				len(res.Metadata.Changes) != 1 {
				t.Fatalf("got %+v, %v", res, err)
			}
			if got := c.asked[0]; strings.Join(got.Paths, " ") != "out /tmp/log more" ||
				got.Dir != "/ws/sub" || got.ID != "the-id" {
				t.Errorf("asked %+v", got)
			}
			if want := `{"report":"/srv/box/out/a","folder":"/srv/box/out","source":"/home/me/app/x","other":"/tmp/else"}`; string(res.Output) != want {
				t.Errorf("got %s", res.Output)
			}
			if m := res.Metadata.Mapping; len(m.Mapped) != 4 { // the working folder, and three of the output
				t.Errorf("the report lists %+v", m.Mapped)
			}
		})
	}
}

// A failed fetch changes neither the result of the tool nor a path of its output (SY-11).
func TestDeclaredOutputs_FetchFails(t *testing.T) {
	failed := oneFile
	failed.State, failed.Error = dray.SyncFailed, dray.Errorf(dray.CodeDiskFull, "full")
	code := 0
	res, err := outputs(t, &fakeTransfer{report: failed}, nil, func() (dray.Result, error) {
		return dray.Result{Reason: dray.ReasonExited, ExitCode: &code, Output: json.RawMessage(`{"report":"/tmp/out/a"}`)}, nil
	})
	if done := dray.NormalizeResult(res, err); done.Status != dray.StatusSucceeded || done.Metadata.Sync.State != dray.SyncFailed || string(done.Output) != `{"report":"/tmp/out/a"}` {
		t.Errorf("got %+v", done)
	}
}

// If nothing was started nothing is fetched (SY-11).
func TestDeclaredOutputs_NothingStarted(t *testing.T) {
	c := &fakeTransfer{report: oneFile}
	_, err := outputs(t, c, nil, func() (dray.Result, error) {
		return dray.Result{}, dray.Errorf(dray.CodeExecutableNotFound, "no such program")
	})
	if dray.CodeOf(err) != dray.CodeExecutableNotFound || len(c.asked) > 0 {
		t.Errorf("got %v, asked %v", err, c.asked)
	}
}

// A fetch outlives the deadline of the call, and ends with a cancel or a shutdown.
func TestWithoutDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		before, during error
		cut            bool
	}{
		"timed out":       {before: executor.ErrTimeout},
		"cancelled":       {before: executor.ErrCancelled},
		"time over":       {during: executor.ErrTimeout},
		"cancelled later": {during: executor.ErrCancelled, cut: true},
		"shut down later": {during: executor.ErrShutdown, cut: true},
		"shut down":       {before: executor.ErrShutdown, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if tc.before != nil {
				cancel(tc.before)
			}
			out, done := withoutDeadline(ctx)
			defer done()
			cancel(tc.during)
			if tc.cut {
				<-out.Done()
			}
			cause := errors.Join(tc.before, tc.during)
			if tc.cut != (out.Err() != nil) || tc.cut && !errors.Is(context.Cause(out), cause) &&
				!errors.Is(cause, context.Cause(out)) {
				t.Errorf("got %v", context.Cause(out))
			}
			cancel(nil)
		})
	}
}

// A single fetched file is found under its own path (SY-11).
func TestDeclaredOutputs_SingleFile(t *testing.T) {
	home := t.TempDir() + "/report.csv"
	if err := os.WriteFile(home, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	report := oneFile
	report.Targets = []dray.SyncTarget{{Source: "/tmp/report.csv", Path: home}}
	res, err := outputs(t, &fakeTransfer{report: report}, nil, func() (dray.Result, error) {
		return dray.Result{Reason: dray.ReasonExited, Output: json.RawMessage(`{"report":"/tmp/report.csv"}`)}, nil
	})
	if want := `{"report":"` + home + `"}`; err != nil || string(res.Output) != want || len(res.Metadata.Mapping.Errors) > 0 {
		t.Errorf("got %s, %+v, %v", res.Output, res.Metadata.Mapping, err)
	}
}
