package tool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// EX-04: argv arrives byte for byte, whatever a shell would make of it.
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

// EX-04: the command reaches the environment's own shell, once and whole.
func TestShell(t *testing.T) {
	b := newFixture(t)
	res := b.call(t, "shell", object{"command": `printf '%s|' "$0" $((6*7)); exit 3`})
	if res.Stdout.Text != "/bin/sh|42|" || res.ExitCode == nil || *res.ExitCode != 3 || res.Status != dray.StatusFailed || res.Error.Code != "" {
		t.Errorf("stdout %q, exit code %v, error %+v", res.Stdout.Text, res.ExitCode, res.Error)
	}
	succeeded(t, b.call(t, "shell", object{"command": "[ -n \"$BASH_VERSION\" ]", "shell": "bash"}))
	failedWith(t, b.call(t, "shell", object{"command": "true", "shell": "/no/shell"}), dray.CodeExecutableNotFound)
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

func command(name, script string, change ...func(*Command)) Command {
	c := Command{Name: name, Argv: []string{"/bin/sh", "-c", script}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func asJSON(c *Command) { c.Output = FormatJSON }

func promising(schema string) func(*Command) {
	return func(c *Command) { c.OutputSchema = json.RawMessage(schema) }
}

// EX-03: a command tool reads its input on stdin: one JSON object, then end of file, and nothing of it in argv.
func TestCommandInput(t *testing.T) {
	b := newFixture(t, command("echo", `cat; printf '|%s' "$#" "$*"`))
	res := b.call(t, "echo", `{"b": 1, "a": "$(touch x) é\n", "n": 12345678901234567890}`)
	succeeded(t, res)
	if want := `{"b": 1, "a": "$(touch x) é\n", "n": 12345678901234567890}|0|`; res.Stdout.Text != want {
		t.Errorf("stdout %q, want %q", res.Stdout.Text, want)
	}
	res = b.call(t, "echo", `{}`, func(c *dray.Call) { c.Stdin = strings.NewReader("more") })
	failedWith(t, res, dray.CodeInvalidRequest)
	failedWith(t, b.call(t, "read_file", object{"path": "x"}, func(c *dray.Call) { c.Stdin = strings.NewReader("") }), dray.CodeInvalidRequest)
	succeeded(t, newFixture(t, command("deaf", "exit 0")).call(t, "deaf", object{"long": strings.Repeat("x", 1<<20)}))
}

// CA-06: output as JSON, in every ending.
func TestCommandOutput(t *testing.T) {
	b := newFixture(t,
		command("text", `echo '{"a":1}'`),
		command("object", `echo '{"a": 1}'`, asJSON),
		command("silent", `exit 0`, asJSON),
		command("noise", `echo hello; exit 4`, asJSON),
		command("partial", `printf '{"a":'; kill -9 $$`, asJSON),
		command("long", `printf '['; head -c 1100000 /dev/zero | tr '\0' 1; printf ']'`, asJSON),
		command("missing", "", asJSON, func(c *Command) { c.Argv = []string{"no-such-program"} }),
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
		t.Errorf("truncated %v became an output of %d bytes that ends with %s", res.Stdout.Truncated, len(res.Output), res.Output[max(0, len(res.Output)-200):])
	}
}

// CA-06: with an output schema a violation is a failure, although the tool exited with 0.
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
	for name, pointer := range map[string]string{"broken": "/output/n", "wrapped": "/output", "noise": "/output"} {
		res := b.call(t, name, `{}`)
		failedWith(t, res, dray.CodeOutputInvalid)
		if res.Reason != dray.ReasonExited || res.ExitCode == nil || *res.ExitCode != 0 || len(res.Output) == 0 {
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

// A call that is over before it begins starts nothing and writes nothing.
func TestCancelledBefore(t *testing.T) {
	b := newFixture(t)
	inv := dray.Invocation{ID: "gone", Tool: "write_file", Input: json.RawMessage(`{"path":"new","content":"x"}`)}
	_, err := b.exec.Execute(cancelled(executor.ErrTimeout), dray.Call{Invocation: inv, Environment: b.env}, dray.Discard)
	if !errors.Is(err, executor.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if out := output[listOutput](t, b.call(t, "list_dir", object{"path": "."})); len(out.Entries) != 0 {
		t.Errorf("left behind: %v", out.Entries)
	}
}

// EX-08: the idle timeout is the call's, else the configured one.
func TestIdleTimeout(t *testing.T) {
	b := newFixture(t)
	res := b.call(t, "exec", object{"argv": []string{"sleep", "60"}}, func(c *dray.Call) { c.Invocation.IdleTimeout = 10 * time.Millisecond })
	if res.Reason != dray.ReasonIdleTimeout {
		t.Errorf("reason %s, error %+v", res.Reason, res.Error)
	}
}

// A tool that vanished between the layers is an error, not a crash.
func TestUnknownTool(t *testing.T) {
	b := newFixture(t)
	call := dray.Call{Invocation: dray.Invocation{Tool: "exce"}, Environment: b.env}
	for _, e := range []dray.Executor{b.exec, &Runner{Tools: b.tools}} {
		if _, err := e.Execute(context.Background(), call, dray.Discard); dray.CodeOf(err) != dray.CodeUnknownTool {
			t.Errorf("got %v", err)
		}
	}
}
