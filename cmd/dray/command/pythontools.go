package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/policy"
	"github.com/dray-dev/dray/internal/python"
)

// parentLabel is the label of a nested call with the id of the call whose code made it.
const parentLabel = "dray.parent"

// nestedKey marks the context of a nested call.
type nestedKey struct{}

func isNested(ctx context.Context) bool { return ctx.Value(nestedKey{}) != nil }

// newNestedExecutor returns the layers of a call that code of another call makes. It needs no slot:
// the other call has one, and waits for this one.
func (d *daemon) newNestedExecutor(cfg *config.Config, policies *policy.Engine) dray.Executor {
	return d.newRecordedExecutor(cfg, policies, func(context.Context, string, dray.Sink) (func(),
		time.Duration, error,
	) {
		return func() {}, 0, nil
	})
}

// errParentEnded is the cause that cancels a nested call whose parent has ended or was interrupted.
var errParentEnded = fmt.Errorf("%w: the Python code that made it was ended", executor.ErrCancelled)

// callTool runs a call for code of a Python session (PY-27): with the principal, the workspace, the
// working directory and the context of its parent, with its own route and record, and as long as
// ctx, which ends with the parent. It blocks until the call has ended.
func (d *daemon) callTool(ctx context.Context, parent dray.Call, name string,
	input json.RawMessage, may python.Permissions,
) (json.RawMessage, error) {
	inv := parent.Invocation
	p, err := d.current.Load().Intake.Prepare(ctx, inv.Principal, &call.Request{
		Tool: name, Input: input, Workspace: inv.Workspace, Cwd: inv.Cwd, LocalEnv: inv.LocalEnv,
		Plan: inv.Plan, Context: inv.Context,
	})
	if err != nil {
		return nil, err
	}
	if err := checkNested(p.Tool, may); err != nil {
		return nil, err
	}
	labels := map[string]string{}
	maps.Copy(labels, inv.Context.Labels)
	labels[parentLabel] = inv.ID
	p.Invocation.Context.Labels = labels
	c, err := d.calls.Start(context.WithValue(ctx, nestedKey{}, true), p)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		c.Cancel(errParentEnded)
		<-c.Done()
	}
	if err := c.Rejected(); err != nil {
		return nil, err
	}
	return nestedOutput(c)
}

// checkNested fails with denied if code with the given permissions may not call a tool. Tools are
// not bound by the permissions of the session, so what they declare decides.
func checkNested(t *dray.Tool, may python.Permissions) error {
	caps, need := t.Capabilities, python.FSWrite
	if caps.ReadOnly {
		need = python.FSRead
	}
	switch {
	case t.Name == pythonTool:
		return dray.Errorf(dray.CodeDenied, "code in a Python session cannot call the tool %s", t.Name).
			WithHint("run the code itself, or make the call from outside")
	case may.FS != need && may.FS != python.FSWrite:
		return dray.Errorf(dray.CodeDenied,
			"the tool %s needs the permission fs %s, and this run has fs %s", t.Name, need, may.FS).
			WithHint("set python.permissions.fs in the configuration; a run with read_only has fs read " +
				"at most")
	case (caps.Network || caps.Unsafe) && len(may.Network) == 0:
		return dray.Errorf(dray.CodeDenied,
			"the tool %s may use the network, and this session has no host in its permissions", t.Name).
			WithHint("set python.permissions.network in the configuration")
	default:
		return nil
	}
}

// nestedRecord is what code gets of the record of its call.
type nestedRecord struct {
	ID       string           `json:"id"`
	Reason   dray.Reason      `json:"reason"`
	ExitCode *int             `json:"exit_code"`
	Output   *json.RawMessage `json:"output"`
	Stdout   struct {
		Text string `json:"text"`
	} `json:"stdout"`
	Stderr struct {
		Text string `json:"text"`
	} `json:"stderr"`
	Error *dray.Error `json:"error"`
}

// nestedOutput returns the output of a call that has ended: of a tool without one its exit code and
// the head and tail of its streams. It fails if the call did not end by itself, or with a code.
func nestedOutput(c *call.Call) (json.RawMessage, error) {
	encoded, _ := c.Encoded()
	var rec nestedRecord
	if err := json.Unmarshal(encoded, &rec); err != nil {
		return nil, fmt.Errorf("decode the record of call %s: %w", c.ID(), err)
	}
	switch {
	case rec.Error != nil && rec.Error.Code != "":
		return nil, rec.Error
	case rec.Reason == dray.ReasonTimeout || rec.Reason == dray.ReasonIdleTimeout:
		return nil, fmt.Errorf("call %s of the tool timed out: %w", rec.ID, context.DeadlineExceeded)
	case rec.Reason != dray.ReasonExited:
		return nil, fmt.Errorf("call %s of the tool ended: %w", rec.ID, errors.New(string(rec.Reason)))
	case rec.Output != nil && string(*rec.Output) != "null":
		return *rec.Output, nil
	}
	return json.Marshal(map[string]any{
		"id": rec.ID, "exit_code": rec.ExitCode, "stdout": rec.Stdout.Text, "stderr": rec.Stderr.Text,
	})
}
