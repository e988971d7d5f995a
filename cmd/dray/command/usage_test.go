package command

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// invoke runs one command line in this process, with a state folder that a command which needs a
// daemon would make.
func invoke(t *testing.T, args ...string) (code int, stdout, stderr, state string) {
	t.Helper()
	state = filepath.Join(t.TempDir(), "state")
	t.Setenv("DRAY_STATE", state)
	var out, err bytes.Buffer
	code = Execute(t.Context(), args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String(), state
}

// Wrong usage is one line and a hint, exits with 2 (with 125 for exec and call, whose other codes
// are the tool's), and starts no daemon.
func TestWrongUsage(t *testing.T) {
	tests := []struct {
		line string
		code int
		says string // a pattern
	}{
		{"exce", 2, `^dray: unknown command "dray exce" \(invalid_request\)\nhint: did you mean: dray exec\n$`},
		{"exce --cwd x -- y", 2, `^dray: unknown command "dray exce"`},
		{"workspace lst", 2, `\nhint: did you mean: dray workspace ls\n$`},
		{"workspace xyz", 2, `^dray: unknown command .*\nhint: see dray workspace --help\n$`},
		{"--nope", 2, `^dray: unknown flag: --nope \(invalid_request\)\nhint: see dray --help\n$`},
		{"tools a b", 2, `^dray: dray tools takes the name of one tool, and "b" is one too many`},
		{"audit show", 2, `^dray: dray audit show takes the id of a call \(invalid_request\)\nhint: dray audit list shows them\n$`},
		{"audit list x", 2, `takes no arguments`},
		{"audit list --limit 0", 2, `\nhint: see dray audit list --help\n$`},
		{"audit list --limit x", 2, `^dray: --limit "x" is no whole number \(invalid_request\)\nhint: see dray audit list --help\n$`},
		{"help nope", 2, `^dray: unknown command "dray nope" \(invalid_request\)\nhint: see dray --help\n$`},
		{"help audit lst", 2, `\nhint: did you mean: dray audit list\n$`},
		{"help exec sh", 2, `^dray: dray exec has no commands`},
		{"audit list --since yesterday", 2, `^dray: --since "yesterday" is no time`},
		{"path to-host", 2, `^dray: there is no path`},
		{"path to-host --workspace . --container c /x", 2, `contradict`},
		{"completion", 2, `\nhint: one of bash, zsh, fish\n$`},
		{"completion tcsh", 2, `\nhint: one of bash, zsh, fish\n$`},
		{"serve now", 2, `takes no arguments`},
		{"config chek", 2, `\nhint: did you mean: dray config check\n$`},
		{"config check x", 2, `takes no arguments`},
		{"config show limits", 2, `takes no arguments`},
		{"config schema x", 2, `takes no arguments`},
		{"route explain --host --container c", 2, `contradict`},
		{"route explain --input {", 2, `not one JSON value`},
		{"exec", 125, `^dray: there is no program to run \(invalid_request\)\nhint: .*dray exec -- go test`},
		{"exec --nope -- true", 125, `unknown flag: --nope .*\nhint: see dray exec --help\n$`},
		{"exec -q -- true", 125, `unknown shorthand flag`},
		{"exec -t -T -- true", 125, `^dray: --tty and --no-tty contradict each other`},
		{"exec --timeout 0s -- true", 125, `^dray: --timeout 0s is not above 0`},
		{"exec --timeout -1s -- true", 125, `is not above 0`},
		{"exec --timeout 5 -- true", 125, `^dray: --timeout "5" is no time \(invalid_request\)\nhint: .* 90s`},
		{"exec --env =x -- true", 125, `K=V`},
		{"exec --env x -- true", 125, `K=V`},
		{"exec --host --container c -- true", 125, `contradict`},
		{"exec --cwd \xff -- true", 125, `UTF-8`},
		{"exec --env A=\xff -- true", 125, `UTF-8`},
		{"exec -- echo \xff", 125, `UTF-8`},
		{"call", 125, `^dray: dray call takes the name of one tool`},
		{"call exec --input {", 125, `^dray: the input is not one JSON value \(invalid_input\)\nhint: `},
		{"call exec --input -", 125, `not one JSON value`},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			code, stdout, stderr, state := invoke(t, strings.Fields(tt.line)...)
			if code != tt.code || !regexp.MustCompile(tt.says).MatchString(stderr) || stdout != "" {
				t.Errorf("exit code %d, want %d; stderr %q, want %s; stdout %q", code, tt.code, stderr, tt.says,
					stdout)
			}
			if _, err := os.Lstat(state); err == nil {
				t.Error("it made a state folder")
			}
		})
	}
}

// What tells about the program itself needs no daemon.
func TestWithoutDaemon(t *testing.T) {
	tests := map[string]string{
		"":                `(?s)^dray runs tools .*Exit codes .*5  not found\n.*Available Commands:`,
		"help exec":       `(?s)^exec runs a program .*124    the call timed out\n.*128\+N  signal N`,
		"exec --help":     `Usage:\n  dray exec \[flags\] -- ARGV`,
		"workspace":       `^See, start, stop and trust workspaces\n\nUsage:\n  dray workspace \[command\]\n`,
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
				t.Error("it made a state folder")
			}
		})
	}
}

// What is not there yet is not listed either, and no flag of it is known.
func TestHelpListsWhatThereIs(t *testing.T) {
	_, stdout, _, _ := invoke(t, "--help")
	for _, absent := range []string{"approvals", "container ", "doctor", "mcp"} {
		if strings.Contains(stdout, "\n  "+absent) {
			t.Errorf("help lists %s", absent)
		}
	}
}
