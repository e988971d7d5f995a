package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// maxDescription bounds the description of a tool of an MCP server in bytes.
const maxDescription = 4 << 10

// UpstreamReply is what a tool of an MCP server returned.
type UpstreamReply struct {
	Text string
	// Output is a JSON object, or nil.
	Output json.RawMessage
	// Failed reports whether the tool reported a failure.
	Failed bool
}

// UpstreamFunc calls a tool of an MCP server. It blocks until the call has ended, and fails with
// the cause of ctx.
type UpstreamFunc func(ctx context.Context, arguments json.RawMessage) (UpstreamReply, error)

// AddUpstream registers a tool of an MCP server. t has the name, the description and the schemas of
// the server, and the requirements of the configuration; AddUpstream sets the rest. It fails with
// an [*InvalidError] for an invalid name or schema.
func (r *Registry) AddUpstream(t dray.Tool, call UpstreamFunc) error {
	d, found := r.upstream(t, call)
	return r.register(d, found)
}

// UnlistedUpstream returns a tool as AddUpstream does, and does not register it: its server has not
// said yet whether it has this tool. It fails with unknown_tool for an invalid name, and with
// denied and the tool if that is disabled: the state of a tool remains when its server is not
// known.
func (r *Registry) UnlistedUpstream(ctx context.Context, t dray.Tool, call UpstreamFunc,
) (*dray.Tool, error) {
	d, found := r.upstream(t, call)
	if len(found) > 0 {
		return nil, dray.Errorf(dray.CodeUnknownTool, "unknown tool %q", t.Name).
			WithHint("dray tools lists all tools")
	}
	return r.activeTool(d), r.check(ctx, t.Name)
}

func (r *Registry) upstream(t dray.Tool, call UpstreamFunc) (*definition, []Violation) {
	t.Description = lexical.Truncate(t.Description, maxDescription)
	t.InputSchema, t.OutputSchema = withoutDraft(t.InputSchema), withoutDraft(t.OutputSchema)
	d := &definition{Tool: t}
	found := d.compile()
	if len(t.Name) > maxName || !lexical.IsName(t.Name) {
		found = append(found, Violation{"name", "is not a valid tool name", "rename it"})
	}
	d.run = r.fetchOutputs(func(ctx context.Context, c dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		return d.callUpstream(ctx, r, c, sink, call)
	})
	return d, found
}

// withoutDraft removes the draft of a schema, so that it is read as one of draft 2020-12. Servers
// use older drafts, mostly draft-07, whose keywords have the same meaning there, and check their
// inputs themselves.
func withoutDraft(schema json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(schema, &members); err != nil {
		return schema // compile reports it
	}
	draft := string(members["$schema"])
	if !strings.HasPrefix(draft, `"http://json-schema.org/`) &&
		!strings.HasPrefix(draft, `"https://json-schema.org/`) {
		return schema
	}
	delete(members, "$schema")
	text, err := json.Marshal(members)
	if err != nil {
		return schema
	}
	return text
}

// callUpstream runs a call as a process whose stdout is the text of the reply. The error of a
// server that fails is in the result and is not returned: the breaker of the container must not
// count it.
func (d *definition) callUpstream(ctx context.Context, r *Registry, call dray.Call, sink dray.Sink,
	do UpstreamFunc,
) (dray.Result, error) {
	if len(call.Invocation.Env) > 0 {
		return dray.Result{}, dray.Errorf(dray.CodeUnsupported,
			"tool %s runs in a server that is started already: a call cannot set variables", d.Name).
			WithHint("remove env from the call, or set mcp.servers.NAME.env in the configuration")
	}
	env := &upstreamEnvironment{Environment: call.Environment, arguments: call.MappedInput, do: do}
	call.Environment = env
	outcome, err := r.start(ctx, call, []string{d.Name}, nil, sink)
	defer outcome.Release()
	res := outcome.Result
	run := env.run
	if run == nil || err != nil || res.Reason != dray.ReasonExited {
		return res, err
	}
	switch {
	case run.err != nil:
		res.Error, res.ExitCode = dray.AsError(run.err), nil
		res.Reason = dray.ReasonUnavailable
		switch res.Error.Code {
		case dray.CodeInvalidInput, dray.CodeUnknownTool:
			res.Reason = dray.ReasonInvalid
		}
		return res, nil
	case run.reply.Failed:
		res.Error = (&dray.Error{
			Message: "the tool failed: " + lexical.PlainLine(run.reply.Text, maxMessage),
		}).WithHint("the output of the call has all that the tool reported")
	}
	res.Output = run.reply.Output
	if d.output != nil && !run.reply.Failed {
		output := run.reply.Output
		if output == nil {
			output = json.RawMessage("null")
		}
		res.Error = d.checkOutput(output, nil)
	}
	return res, nil
}

// upstreamEnvironment is the environment of a call that an MCP server runs.
type upstreamEnvironment struct {
	dray.Environment

	arguments json.RawMessage
	do        UpstreamFunc
	run       *upstreamRun // nil before Start
}

// Start returns the call as a process. The server gets it when its stdout is read. Only Stop ends
// it: with the context of the call it would end before the caller has seen why, as if by itself.
func (e *upstreamEnvironment) Start(ctx context.Context, _ dray.ProcessSpec) (dray.Process, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.run = &upstreamRun{cancel: cancel}
	e.run.do = sync.OnceFunc(func() {
		e.run.reply, e.run.err = e.do(ctx, e.arguments)
		e.run.text.WriteString(e.run.reply.Text)
	})
	return e.run, nil
}

// upstreamRun is a call of an MCP server as a [dray.Process].
type upstreamRun struct {
	cancel context.CancelFunc
	do     func() // sets the fields below
	reply  UpstreamReply
	err    error
	text   bytes.Buffer
}

// Read reads the text of the reply. It blocks until the server has replied.
func (u *upstreamRun) Read(p []byte) (int, error) {
	u.do()
	return u.text.Read(p)
}

// Stdin implements [dray.Process]. There is none.
func (u *upstreamRun) Stdin() io.WriteCloser { return noStdin{io.Discard} }

type noStdin struct{ io.Writer }

func (noStdin) Close() error { return nil }

// Output implements [dray.Process].
func (u *upstreamRun) Output(stream dray.Stream) io.Reader {
	if stream == dray.Stdout {
		return u
	}
	return strings.NewReader("")
}

// Signal implements [dray.Process].
func (u *upstreamRun) Signal(syscall.Signal) error {
	return dray.Errorf(dray.CodeUnsupported, "a call of an MCP server takes no signals").
		WithHint("cancel the call")
}

// Resize implements [dray.Process].
func (u *upstreamRun) Resize(dray.TerminalSize) error { return dray.ErrNoTerminal }

// Stop implements [dray.Process]. The server is ended if it does not answer any more.
func (u *upstreamRun) Stop(time.Duration) { u.cancel() }

// Wait implements [dray.Process]. The processes of the server continue, so the survivors of a call
// that was stopped are unknown.
func (u *upstreamRun) Wait() (dray.Exit, error) {
	u.do()
	u.cancel()
	exit := dray.Exit{Survivors: dray.Survivors{Proven: u.err == nil}}
	if u.err != nil || u.reply.Failed {
		exit.Code = 1
	}
	return exit, nil
}
