package policy_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/policy"
)

// frames are shell texts around others, whose place is @.
var frames = []string{
	`echo "@"`, `$(@)`, "`@`", `echo $(@)`, `echo "$(@)"`, `echo "${x:-@}"`, `echo "${x#@}"`, `echo "${x/a/@}"`,
	`echo ${x:-$(@)}`, "cat <<E\n@\nE\n@", "cat <<'E'\n@\nE\n@", "cat <<-E\n\t@\n\tE\n@", ": # @\n@",
	`echo '@'`, `echo $'@'`, "echo \"`@`\"", "cat <<E\n$(@)\nE", "cat <<E | cat\n`@`\nE\n", `echo $((1 + @))`,
	`case x in x) @;; esac`, `if :; then @; fi`, `{ @; }`, `( @ )`, `: && @`, `echo a | @`, `x='@'; echo "$x"`,
	`f() { @; }; f`, `echo a; @`, "echo a \\\n @",
}

// pieces change a text where they are put.
var pieces = []string{
	"\\\n", `\`, `'`, `"`, "`", `$`, `(`, `)`, `{`, `}`, `#`, ` #`, "\n", `;`, `&`, `|`, `<`, `>`, `E`, "\nE\n", ` `,
	`$'`, `\'`, `\"`, `${x:-`, `$(`, "\t", `!`, "<<E\n", "<<'E'\n", `-`, `[`, `]`, `*`, `\\`, `\$`, "\\`", `$((`, `))`,
}

// shellText returns a text with the command witness somewhere, often within quotes, and a few
// pieces at random places.
func shellText(r *rand.Rand) string {
	text := "@"
	for range 1 + r.IntN(4) {
		for strings.Contains(text, "@") && r.IntN(5) > 0 {
			text = strings.Replace(text, "@", frames[r.IntN(len(frames))], 1)
		}
	}
	text = strings.ReplaceAll(text, "@", "witness")
	for range r.IntN(4) {
		at := r.IntN(len(text) + 1)
		text = text[:at] + pieces[r.IntN(len(pieces))] + text[at:]
	}
	return text
}

// A command that the analysis does not see does not run: bash and dash read no text otherwise,
// unless it is opaque (SE-04).
func TestShellsReadNothingElse(t *testing.T) {
	var shells []string
	for _, name := range []string{"bash", "dash"} {
		if file, err := exec.LookPath(name); err == nil {
			shells = append(shells, file)
		}
	}
	if len(shells) == 0 {
		t.Skip("there is neither bash nor dash")
	}
	dir := t.TempDir()
	for file, text := range map[string]string{"witness": ": >" + dir + "/ran", "cat": `while read -r x; do :; done`} {
		if err := os.WriteFile(dir+"/"+file, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	e, r := newEngine(t, strings.ReplaceAll(noRemove, `"rm"`, `"witness"`)), rand.New(rand.NewPCG(1, 2))
	call, ran := shell(t, ""), 0
	for range 4000 {
		text := shellText(r)
		for _, file := range shells {
			call.Invocation.Input, _ = json.Marshal(map[string]string{"command": text, "shell": file})
			if e.Decide(t.Context(), call).Effect != policy.Allow {
				continue
			}
			ran++
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			cmd := exec.CommandContext(ctx, file, "-c", text)
			cmd.Dir, cmd.Env, cmd.WaitDelay = call.Invocation.Workspace, []string{"PATH=" + dir}, time.Second
			_ = cmd.Run()
			cancel()
			if _, err := os.Stat(dir + "/ran"); err == nil {
				t.Errorf("%s runs the witness of %q", file, text)
				_ = os.Remove(dir + "/ran")
			}
		}
	}
	if ran < 300 {
		t.Errorf("only %d texts were allowed", ran)
	}
}

// Where bash and dash differ from the parser, a call is opaque (SE-04).
func TestMisreadTextsAreOpaque(t *testing.T) {
	for _, command := range []string{
		": # a \\\nrm x", ": # a\\\nrm x", "echo \"$\\\n(rm x)\"", "cat <<E\n$\\\n(rm x)\nE", `echo "${x:-'$(rm x)'}"`,
		"cat <<E\n${x:-'$(rm x)'}\nE", `echo "${x:='$(rm x)'}"`, `echo "${x-'a}'$(rm x)"`, "echo `echo '`rm x`'`",
		"echo \"`x='`rm x`'; echo $x`\"", "cat <<E\n$(echo '\nE\nrm x\ncat <<E\n')\nE", "cat <<$'E'\nx\nE\nrm x",
		"cat <<E $(\nE\nrm x\n)", "cat <<A; cat <<B\na\nA\nrm x\nB", "cat <<E", `find . $'\x{2d}exec' rm {} \;`,
		`sort $'\x{2d}-compress-program=rm' x`, `sort ['-']-compress-program=./x b`, `find . $"-exec" rm {} \;`,
		"X=-exec; find . \"$\\\n{X}\" rm {} \\;", "echo hi >['x']",
	} {
		call := callOf(t, "shell", map[string]string{"command": command, "shell": "bash"})
		if f := policy.FactsOf(t.Context(), call, nil); !f.Opaque && !slices.Contains(f.Programs, "rm") {
			t.Errorf("%q is not opaque: %+v", command, f)
		}
	}
}
