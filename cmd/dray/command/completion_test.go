package command

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// shells complete the words of a command line, the last of which is incomplete, with the script of
// `dray completion`. bash and zsh run without their line editors, so what these provide is replaced.
var shells = map[string]string{
	"bash": `
		_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${words[cword]} prev=${words[cword-1]}; }
		compopt() { :; }
		source <(dray completion bash)
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_TYPE=9
		COMP_POINT=${#COMP_LINE}
		__start_dray
		printf '%s\n' "${COMPREPLY[@]}"`,
	"zsh": `
		compdef() { }
		_describe() { print -rl -- "${(@P)@[-1]}" }
		_arguments() { }
		source <(dray completion zsh)
		words=("$@") CURRENT=$#
		_dray`,
	"fish": `
		dray completion fish | source
		complete --do-complete "$argv"`,
}

// Commands, tools, ids, containers, workspaces and values of flags are completed by the running
// daemon, in real shells (OP-04). No shell starts a daemon.
func TestCompletionInShells(t *testing.T) {
	for name, script := range shells {
		t.Run(name, func(t *testing.T) {
			shell, err := exec.LookPath(name)
			if err != nil {
				t.Skip("this shell is not installed")
			}
			h := newHome(t)
			complete := func(words ...string) string {
				t.Helper()
				args := append([]string{"-c", script, name}, words...)
				if name == "fish" {
					args = append([]string{"-c", script}, strings.Join(words, " "))
				}
				cmd := h.dray(t)
				cmd.Path, cmd.Args = shell, append([]string{name}, args...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%q: %v: %s", words, err, out)
				}
				return string(out)
			}
			complete("dray", "call", "cou") // without a daemon: nothing, or files
			if out, err := h.dray(t, "status").CombinedOutput(); exitOf(err) != exitNoDaemon {
				t.Errorf("a completion has started a daemon: %s", out)
			}
			if out, err := h.dray(t, "exec", "--", "true").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			id := h.onlyCall(t)
			for line, want := range map[string]string{
				"dray rel":                     "reload",
				"dray call cou":                "count",
				"dray audit show " + id[:8]:    id,
				"dray workspace up /srv/":      "/srv/other",
				"dray audit list --status que": "queued",
				"dray exec --leftovers ke":     "keep",
				"dray exec --container d":      "db",
				"dray completion fi":           "fish",
				"dray mcp install vs":          "vscode",
				"dray policy explain cou":      "count",
				"dray audit events --kind app": "approval",
			} {
				if got := complete(strings.Fields(line)...); !strings.Contains(got, want) {
					t.Errorf("%s: got %q, want %s", line, got, want)
				}
			}
			if got := complete("dray", "workspace", "up", "/srv/a"); strings.Contains(got, "\x1b") {
				t.Errorf("a folder with control codes is offered: %q", got)
			}
		})
	}
}

// onlyCall returns the id of the only call.
func (h testState) onlyCall(t *testing.T) string {
	t.Helper()
	out, err := h.dray(t, "audit", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var when, id string
	_, row, _ := strings.Cut(string(out), "\n")
	if _, err := fmt.Sscan(row, &when, &id); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return id
}
