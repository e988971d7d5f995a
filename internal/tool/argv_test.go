package tool

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// The arguments that an argv makes of an input, or the pointer of what it refuses (RT-14).
func TestArgvTemplate(t *testing.T) {
	schema := `{"properties": {"flags": {"items": {"x-option": true}}, "flag": {"x-option": true}}}`
	tests := []struct {
		argv    []string
		input   string
		want    []string
		refused string
	}{
		{argv: []string{"${x}", "$input.a", "${input}"}, want: []string{"${x}", "$input.a", "${input}"}},
		{argv: []string{"${input.a}"}, input: `{"a": "x y"}`, want: []string{"x y"}},
		{argv: []string{"${input.a}"}, input: `{"a": ""}`, want: []string{""}},
		{argv: []string{"${input.a}"}, input: `{"a": 12345678901234567890.10}`, want: []string{"12345678901234567890.10"}},
		{argv: []string{"${input.a}"}, input: `{"a": true}`, want: []string{"true"}},
		{argv: []string{"a", "${input.a}", "b"}, input: `{"a": null}`, want: []string{"a", "b"}},
		{argv: []string{"a", "--a=${input.a}", "b"}, want: []string{"a", "b"}},
		{argv: []string{"${input.a}:${input.b}"}, input: `{"a": 1, "b": "-"}`, want: []string{"1:-"}},
		{argv: []string{"${input.a}:${input.b}"}, input: `{"a": 1}`, want: nil},
		{argv: []string{"${input.a}"}, input: `{"a": []}`, want: nil},
		{argv: []string{"${input.a}"}, input: `{"a": ["x", 1, false, ""]}`, want: []string{"x", "1", "false", ""}},
		{argv: []string{"${input.flag}"}, input: `{"flag": "--all"}`, want: []string{"--all"}},
		{argv: []string{"${input.flags}"}, input: `{"flags": ["-a", "-b"]}`, want: []string{"-a", "-b"}},
		{argv: []string{"--${input.flag}"}, input: `{"flag": "all"}`, want: []string{"--all"}},
		{argv: []string{"${input.flag}${input.a}"}, input: `{"flag": "-", "a": "-x"}`, want: []string{"--x"}},
		{argv: []string{"${input.a}"}, input: `{"a": -5}`, refused: "/input/a"},
		{argv: []string{"${input.a}"}, input: `{"a": ["x", "-rf"]}`, refused: "/input/a/1"},
		{argv: []string{"${input.a}x"}, input: `{"a": "-"}`, refused: "/input/a"},
		{argv: []string{"${input.a}${input.b}"}, input: `{"a": "", "b": "-x"}`, refused: "/input/b"},
		{argv: []string{"${input.a}"}, input: `{"a": {}}`, refused: "/input/a"},
		{argv: []string{"${input.a}"}, input: `{"a": [[]]}`, refused: "/input/a/0"},
		{argv: []string{"${input.a}"}, input: `{"a": [null]}`, refused: "/input/a/0"},
		{argv: []string{"--a=${input.a}"}, input: `{"a": ["x"]}`, refused: "/input/a"},
		{argv: []string{"--a=${input.a}"}, input: `{"a": "\u0000"}`, refused: "/input/a"},
		{argv: []string{"${input.flag}"}, input: `{"flag": "-\u0000"}`, refused: "/input/flag"},
	}
	for _, tt := range tests {
		template, invalid := parseArgv(append([]string{"p"}, tt.argv...), json.RawMessage(schema))
		if len(invalid) > 0 {
			t.Errorf("%q: %v", tt.argv, invalid)
			continue
		}
		if tt.input == "" {
			tt.input = "{}"
		}
		got, details := template.expand(json.RawMessage(tt.input))
		switch {
		case tt.refused == "" && (len(details) > 0 || !slices.Equal(got, append([]string{"p"}, tt.want...))):
			t.Errorf("%q with %s became %q, %v", tt.argv, tt.input, got, details)
		case tt.refused != "" && (len(details) != 1 || details[0].Pointer != tt.refused):
			t.Errorf("%q with %s became %q, refused are %v", tt.argv, tt.input, got, details)
		}
	}
}

// x-option of the whole input schema is that of every member.
func TestArgvTemplate_OptionsOfTheSchema(t *testing.T) {
	schema := json.RawMessage(`{"x-option": true, "properties": {"a": {}}}`)
	template, _ := parseArgv([]string{"p", "${input.a}"}, schema)
	if got, details := template.expand(json.RawMessage(`{"a": "-x"}`)); len(got) != 2 {
		t.Errorf("got %q, %v", got, details)
	}
}

// An argv that cannot work, or that lets the input choose what runs, is refused with its key.
func TestParseArgvRefuses(t *testing.T) {
	schema := json.RawMessage(`{"properties": {"a": {}}, "additionalProperties": false}`)
	for argv, says := range map[string]string{
		"${input.a}":      "choose the program",
		"/bin/${input.a}": "choose the program",
		"p -${input.a}":   "choose the option",
		"p --${input.a}":  "choose the option",
		"p ${input.b}":    "does not allow",
		"p ${input.}":     "invalid placeholder",
		"p ${input.a":     "invalid placeholder",
		"p ${input.a.b}":  "invalid placeholder",
		"p ${input.a[0]}": "invalid placeholder",
	} {
		_, invalid := parseArgv(strings.Fields(argv), schema)
		if len(invalid) != 1 || !strings.Contains(invalid[0].Problem, says) || invalid[0].Fix == "" {
			t.Errorf("%s: %v", argv, invalid)
		}
	}
}

// A tool whose argv takes a value of the input has an empty stdin, unless the declaration says
// otherwise; the input is not changed into something else on its way.
func TestCommandStdin(t *testing.T) {
	with := func(stdin string, argv ...string) func(*commandTool) {
		return func(c *commandTool) { c.Stdin, c.Argv = stdin, append(c.Argv, argv...) }
	}
	const script = `cat; echo "|$1"`
	b := newFixture(t,
		command("plain", script),
		command("none", script, with(StdinNone)),
		command("args", script, with("", "sh", "${input.a}")),
		command("both", script, with(StdinInput, "sh", "${input.a}")),
	)
	for name, want := range map[string]string{
		"plain": `{"a":"x"}|`, "none": "|", "args": "|x", "both": `{"a":"x"}|x`,
	} {
		res := b.call(t, name, `{"a":"x"}`)
		succeeded(t, res)
		if got := strings.TrimSpace(res.Stdout.Text); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A tool names its success codes. The error of a failure names the code and the last line of stderr
// (RT-14).
func TestSuccessCodes(t *testing.T) {
	codes := func(codes ...int) func(*commandTool) {
		return func(c *commandTool) { c.SuccessCodes = codes }
	}
	const script = `echo first >&2; echo last line >&2; exit `
	b := newFixture(t,
		command("listed", script+"1", codes(0, 1)),
		command("unlisted", script+"2", codes(0, 1)),
		command("zero", "exit 0", codes(3)),
		command("plain", script+"3"),
		command("killed", "kill -9 $$", codes(0, 137)),
		command("json", `echo '{"n": "x"}'; exit 1`, codes(1), promising(`{"properties":{"n":{"type":"integer"}}}`)),
	)
	for name, want := range map[string]struct {
		code int
		says string
	}{
		"listed": {1, ""}, "unlisted": {2, "exit code 2: first\nlast line"}, "zero": {0, "exit code 0"},
		"plain": {3, "exit code 3: first\nlast line"},
	} {
		res := b.call(t, name, `{}`)
		status := dray.StatusFailed
		if want.says == "" {
			status = dray.StatusSucceeded
		}
		if res.Status != status || res.ExitCode == nil || *res.ExitCode != want.code ||
			want.says != "" && res.Error.Message != want.says {
			t.Errorf("%s: %s, %+v", name, res.Status, res.Error)
		}
	}
	if res := b.call(t, "killed", `{}`); res.Status != dray.StatusFailed || res.Signal == nil {
		t.Errorf("killed: %s, %+v", res.Status, res.Signal)
	}
	failedWith(t, b.call(t, "json", `{}`), dray.CodeOutputInvalid)
}

// The variables of a tool take precedence over those of a call, and its working directory may be
// the workspace folder.
func TestCommandEnvAndCwd(t *testing.T) {
	b := newFixture(t, command("where", `echo "$A $B ${PWD##*/}"`, func(c *commandTool) {
		c.Env, c.InWorkspace = map[string]string{"A": "tool"}, true
	}), command("caller", `echo "${PWD##*/}"`))
	b.write(t, "sub/file", "", 0o644)
	in := func(call *dray.Call) {
		call.Invocation.Workspace, call.Invocation.Cwd = b.folder, "sub"
		call.Invocation.Env = map[string]string{"A": "call", "B": "call"}
	}
	folder := b.folder[strings.LastIndex(b.folder, "/")+1:]
	for name, want := range map[string]string{"where": "tool call " + folder, "caller": "sub"} {
		if res := b.call(t, name, `{}`, in); strings.TrimSpace(res.Stdout.Text) != want {
			t.Errorf("%s: %q, want %q: %+v", name, res.Stdout.Text, want, res.Error)
		}
	}
}
