package command

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// invoke runs one command line in this process. A command that uses the daemon would create state.
func invoke(t *testing.T, args ...string) (code int, stdout, stderr, state string) {
	t.Helper()
	state = filepath.Join(t.TempDir(), "state")
	t.Setenv("DRAY_STATE", state)
	var out, err bytes.Buffer
	code = Execute(t.Context(), args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String(), state
}

// With --json an invalid command line prints its error as one JSON value, wherever the flag stands,
// unless it is an argument of the program.
func TestUsageErrors_JSON(t *testing.T) {
	for line, isJSON := range map[string]bool{
		"audit list --nope --json": true, "audit list --limit x --json": true,
		"exec --nope --json -- true": true, "exec --nope -- true --json": false,
		"completion --json": false,
	} {
		t.Run(line, func(t *testing.T) {
			_, stdout, _, _ := invoke(t, strings.Fields(line)...)
			if got := strings.HasPrefix(stdout, `{"error":{"code":"invalid_request",`); got != isJSON ||
				(!isJSON && stdout != "") {
				t.Errorf("stdout is %q", stdout)
			}
		})
	}
}

// A usage error is one line and a hint, exits with 2 (125 for exec and call, whose other codes are
// the tool's), and does not start a daemon.
func TestUsageErrors(t *testing.T) {
	tests := []struct {
		line   string
		code   int
		stderr string // a pattern
	}{
		{"exce", 2, `^dray: unknown command "exce" for "dray" \(invalid_request\)\nhint: did you mean dray exec\?\n$`},
		{"exce --cwd x -- y", 2, `^dray: unknown command "exce" for "dray"`},
		{"workspace lst", 2, `\nhint: did you mean dray workspace ls\?\n$`},
		{"workspace xyz", 2, `^dray: unknown command .*\nhint: see dray workspace --help\n$`},
		{"--nope", 2, `^dray: unknown flag: --nope \(invalid_request\)\nhint: see dray --help\n$`},
		{"tools a b", 2, `^dray: unexpected argument "b": dray tools takes the name of one tool`},
		{"audit show", 2, `^dray: dray audit show takes the id of a call \(invalid_request\)\nhint: run dray audit list to find it\n$`},
		{"audit list x", 2, `takes no arguments`},
		{"ps build", 2, `takes no arguments .*\nhint: name a session with --session build\n$`},
		{"python reset x", 2, `takes no arguments .*\nhint: name a session with --session x\n$`},
		{"ps a b", 2, `takes no arguments .*\nhint: see dray ps --help\n$`},
		{"audit list --limit 0", 2, `\nhint: see dray audit list --help\n$`},
		{"audit list --limit x", 2, `^dray: invalid integer "x" for --limit \(invalid_request\)\nhint: see dray audit list --help\n$`},
		{"help nope", 2, `^dray: unknown command "nope" for "dray" \(invalid_request\)\nhint: see dray --help\n$`},
		{"help audit lst", 2, `\nhint: did you mean dray audit list\?\n$`},
		{"help exec sh", 2, `^dray: unknown command "sh" for "dray exec"`},
		{"audit list --since someday", 2, `^dray: invalid time "someday" for --since`},
		{"path to-host", 2, `^dray: missing path`},
		{"path to-host --workspace . --container c /x", 2, `exclude each other`},
		{"completion", 2, `\nhint: use bash, zsh or fish\n$`},
		{"completion tcsh", 2, `\nhint: use bash, zsh or fish\n$`},
		{"serve now", 2, `takes no arguments`},
		{"config chek", 2, `\nhint: did you mean dray config check\?\n$`},
		{"config check x", 2, `takes no arguments`},
		{"config show limits", 2, `takes no arguments`},
		{"config schema x", 2, `takes no arguments`},
		{"route explain --host --container c", 2, `exclude each other`},
		{"route explain --input {", 2, `not a JSON value`},
		{"exec", 125, `^dray: missing program \(invalid_request\)\nhint: .*dray exec -- go test`},
		{"exec --nope -- true", 125, `unknown flag: --nope .*\nhint: see dray exec --help\n$`},
		{"exec --worspace . -- true", 125, `\nhint: did you mean --workspace\? see dray exec --help\n$`},
		{"audit list --stae x", 2, `\nhint: did you mean --state\? see dray audit list --help\n$`},
		{"mcp instal cursor", 2, `\nhint: did you mean dray mcp install\?\n$`},
		{"exec -q -- true", 125, `unknown shorthand flag`},
		{"exec -t -T -- true", 125, `^dray: --tty and --no-tty exclude each other`},
		{"exec --timeout 0s -- true", 125, `^dray: --timeout 0s is not positive`},
		{"exec --timeout -1s -- true", 125, `is not positive`},
		{"exec --timeout 5 -- true", 125, `^dray: invalid duration "5" for --timeout \(invalid_request\)\nhint: .* 90s`},
		{"exec --env =x -- true", 125, `K=V`},
		{"exec --env x -- true", 125, `K=V`},
		{"exec --host --container c -- true", 125, `exclude each other`},
		{"exec --cwd \xff -- true", 125, `UTF-8`},
		{"exec --env A=\xff -- true", 125, `UTF-8`},
		{"exec -- echo \xff", 125, `UTF-8`},
		{"call", 125, `^dray: dray call takes the name of one tool`},
		{"call stat {}", 125, `\nhint: .* pass the input as --input JSON\n$`},
		{"call exec --input {", 125, `^dray: the input is not a JSON value \(invalid_input\)\nhint: `},
		{"call exec --input -", 125, `not a JSON value`},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			code, stdout, stderr, state := invoke(t, strings.Fields(tt.line)...)
			if code != tt.code || !regexp.MustCompile(tt.stderr).MatchString(stderr) || stdout != "" {
				t.Errorf("exit code %d, want %d; stderr %q, want %s; stdout %q", code, tt.code, stderr,
					tt.stderr,
					stdout)
			}
			if _, err := os.Lstat(state); err == nil {
				t.Error("it created a state directory")
			}
		})
	}
}

// Commands about the program itself do not use a daemon.
func TestCommandsWithoutDaemon(t *testing.T) {
	tests := map[string]string{
		"":                `(?s)^dray runs tools .*Exit codes .*5  not found\n.*Call Commands:.*Daemon Commands:`,
		"help exec":       `(?s)^exec runs a program .*124    the call timed out\n.*128\+N  the tool was ended by signal N`,
		"exec --help":     `Usage:\n  dray exec \[flags\] -- ARGV`,
		"workspace":       `^List, start, stop, rebuild, remove and trust workspaces\n\nUsage:\n  dray workspace \[command\]\n`,
		"--version":       `^dray \S+\n$`,
		"version":         `^dray .*\ncommit .*\ngo1.*\nagent protocol \d+\n$`,
		"version --json":  `^\{"version":".*","commit":".*","modified":(true|false),"go":"go1.*","platform":"\w+/\w+","agent_protocol":\d+\}\n$`,
		"completion bash": `__start_dray`,
		"completion zsh":  `#compdef dray`,
		"completion fish": `complete -c dray`,
	}
	for line, says := range tests {
		t.Run(line, func(t *testing.T) {
			code, stdout, stderr, state := invoke(t, strings.Fields(line)...)
			if code != 0 || !regexp.MustCompile(says).MatchString(stdout) || stderr != "" {
				t.Errorf("exit code %d; stderr %q; stdout %q, want %s", code, stderr, stdout, says)
			}
			if _, err := os.Lstat(state); err == nil {
				t.Error("it created a state directory")
			}
		})
	}
}

// The help lists each command in a group.
func TestHelpIsGrouped(t *testing.T) {
	root := newRoot(&app{})
	for _, cmd := range root.Commands() {
		if cmd.GroupID == "" {
			t.Errorf("%s is in no group", cmd.Name())
		}
	}
	var out strings.Builder
	if code := Execute(t.Context(), []string{"--help"}, nil, &out, io.Discard); code != 0 {
		t.Fatal(code)
	}
	order := regexp.MustCompile(`(?s)Call Commands:.*  exec .*Project Commands:.*  workspace ` +
		`.*Daemon Commands:.*  status .*Other Commands:.*  help `)
	if !order.MatchString(out.String()) || strings.Contains(out.String(), "Additional Commands") {
		t.Errorf("the help is\n%s", out.String())
	}
}
