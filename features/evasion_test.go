package features

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// evasions are spellings of "touch witness". Each makes the file if it runs.
var evasions = []string{
	`touch witness`, `\touch witness`, `"t"ouch witness`, `t''ouch witness`, "to\\\nuch witness",
	`/bin/touch witness`, `/usr/bin/../bin/touch witness`, `//bin//touch witness`,
	`/proc/self/root/usr/bin/touch witness`, `/bin/touc? witness`, `/bin/t[o]uch witness`,
	`command touch witness`, `command -p touch witness`, `exec touch witness`, `( touch witness )`,
	`{ touch witness; }`, `true && touch witness`, `false || touch witness`, "true\ntouch witness",
	`: | touch witness`, `touch witness & wait`, `! touch witness`, `if touch witness; then :; fi`,
	`for i in witness; do touch $i; done`, `case x in x) touch witness;; esac`,
	`f() { touch witness; }; f`, `ls() { touch witness; }; ls`, `sh -c 'touch witness'`,
	`sh -c "sh -c 'touch witness'"`, `sh -ec 'touch witness'`, `bash -c 'touch witness'`,
	`bash -c "\$'t\x6fuch' witness"`, `bash -c '{touch,witness}'`, `bash -c 'touch$IFS"witness"'`,
	`bash -c 'bash <<<"touch witness"'`, `bash -c '. <(echo touch witness)'`,
	`bash -c 'echo x > >(touch witness); wait; sleep 0.3'`, "sh <<E\ntouch witness\nE", "cat <<E | sh\ntouch witness\nE",
	"cat <<E\n$(touch witness)\nE", `echo touch witness | sh`, `echo dG91Y2ggd2l0bmVzcw== | base64 -d | sh`,
	`echo $(touch witness)`, "echo `touch witness`", `echo "${a:-$(touch witness)}"`,
	`echo $(( $(touch witness; echo 1) ))`, `a=$(touch witness)`, `T=touch; $T witness`,
	`T='touch witness'; $T`, `set -- touch witness; "$@"`, `a=to; ${a}uch witness`, `to$@uch witness`,
	`IFS=,; T=touch,witness; $T`, `eval touch witness`, `eval 't''ouch witness'`,
	"echo touch witness >s; . ./s", `echo touch witness >s; sh s`, `echo touch witness >s; chmod +x s; ./s`,
	`trap 'touch witness' EXIT`, `trap -- 'touch witness' EXIT`, `echo witness | xargs touch`,
	`echo touch witness | xargs env`, `echo 'touch witness' | xargs -I{} sh -c '{}'`,
	`echo witness | xargs sh -c 'touch "$@"' _`, `find . -maxdepth 0 -exec touch witness \;`,
	`find . -maxdepth 0 -execdir sh -c 'touch witness' \;`, `find . -maxdepth 0 -fprint witness -exec touch {} +`,
	`env touch witness`, `env -i touch witness`, `env -S 'touch witness'`, `env A=1 touch witness`,
	`nohup touch witness`, `nice -n 5 touch witness`, `timeout 5 touch witness`,
	`timeout -s KILL 5 touch witness`, `setsid -w touch witness`, `stdbuf -oL touch witness`,
	`perl -e 'open F, ">witness"'`, `awk 'BEGIN{system("touch witness")}'`, `echo x | sed '1e touch witness'`,
	`tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='touch witness' .`,
	`tar cIf 'sh -c "touch witness; cat"' /dev/null .`, `split --filter='touch witness; cat' /etc/hostname`,
	`cp /bin/touch z; ./z witness`, `ln -s /bin/touch z; ./z witness`, `ln -s /bin/touch z; PATH=.:$PATH; z witness`,
	`bash -c 'printf -v PATH .; cd . && /bin/touch witness'`, `bash -c 'shopt -s expand_aliases
alias z=touch
z witness'`,
	`bash -c 'jobs -x touch witness'`, `bash -c 'x="a[\$(touch witness)]"; echo $((x))'`,
	`bash -c 'test -v "a[\$(touch witness)]"'`, `bash -c 'x="\$(touch witness)"; echo "${x@P}"'`,
	`bash -c 'command_not_found_handle() { touch witness; }; zz'`, `BASH_ENV=s bash -c 'touch witness'`,
	`bash -c 'coproc touch witness; wait; sleep 0.3'`, `bash -c 'exec -a ls touch witness'`,
	`bash -c 'set -k; ls . ; touch witness'`, "ls \r# ; touch witness",
	`/lib64/ld-linux-x86-64.so.2 /bin/touch witness`, `ssh-agent touch witness`, `prlimit touch witness`,
	// what shells read otherwise than a parser, and programs that run others
	": # a \\\ntouch witness", "echo \"$\\\n(touch witness)\"", `echo "${a:-'$(touch witness)'}"`,
	"cat <<E\n${a:-'$(touch witness)'}\nE", "bash -c \"cat <<E\n\\$(echo '\nE\ntouch witness\ncat <<E\n')\nE\"",
	"bash -c \"cat <<E\n\\`x='\\`\\$(touch witness)\\`'\\`\nE\n\"", `bash -c "find . -maxdepth 0 \$'\x{2d}exec' touch witness \;"`,
	`mkdir '$(touch witness)'; find . -exec sh -c 'echo {}' \;`,
	`echo >+; find . -maxdepth 0 -exec xargs -a + touch witness \;`,
	`mkdir -p a/b c; ln -s "$PWD/a/b" c/l; mkdir -p a/usr/bin; ln -s /bin/touch a/usr/bin/ls; "$PWD/c/l/../usr/bin/ls" witness`,
	`mkdir 63; ln -s /bin/touch 63/ls; : $((PATH=63)); ls witness`,
	`bash -c 'for i in 1 6; do /bin/mkdir ${i}0 ${i}1 ${i}2 ${i}3; done; for i in 1[01] 6[23]; do /bin/ln -s /bin/touch $i/ls; done; exec {PATH}>f; ls witness'`,
	"bash -c 'set -o history -o histexpand\nhistory -s \"; touch witness\"\nls !?touch?'",
	`: >a; install -s --strip-program=touch a witness`,
	`setpriv touch witness`, `mkdir d; cd d; touch ../witness`, strings.Repeat("true;", 12000) + "touch witness",
	strings.Repeat("(", 40) + "touch witness" + strings.Repeat(")", 40),
}

// noTouch denies touch and asks about what policies do not see.
const noTouch = `
@id("any") permit (principal, action == Action::"call", resource);
@id("opaque") @ask("it can run what policies do not see")
permit (principal, action == Action::"call", resource) when { context.opaque };
@id("outside") @ask("it writes outside")
permit (principal, action == Action::"call", resource) when { !context.writes_outside.isEmpty() };
@id("no-touch") forbid (principal, action == Action::"call", resource)
when { context.programs.contains("touch") };
`

// guarded is a daemon whose policies deny touch, a directory on the host and a workspace with a
// container.
type guarded struct {
	*daemon
	t    *testing.T
	root string
	last string // id of the last call that was checked
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	needsEngine(t)
	g := &guarded{t: t, root: newDir(t)}
	writeFiles(t, g.root, map[string]string{
		"p.cedar": noTouch, "host/x": "", "outside/x": "",
		"app/.devcontainer.json": withImages(`{"image": "DEBIAN", "userEnvProbe": "none"}`),
	})
	g.daemon = startDaemon(t, strings.ReplaceAll(`
host: {roots: [ROOT/host]}
trust: {workspaces: [ROOT/app]}
policy: {files: [ROOT/p.cedar]}
`, "ROOT", g.root))
	t.Cleanup(func() { removeContainers(t, g.root+"/app") })
	g.runs(g.body(g.root+"/app", "shell", map[string]any{"command": "true"})) // starts the container
	return g
}

func (g *guarded) body(dir, tool string, input map[string]any) map[string]any {
	body := map[string]any{"tool": tool, "input": input}
	if filepath.Base(dir) == "host" {
		body["cwd"], body["environment"] = dir, "host"
	} else {
		body["workspace"], body["environment"] = dir, "container"
	}
	return body
}

// runs makes a call that must run.
func (g *guarded) runs(body map[string]any) {
	g.t.Helper()
	a, err := g.call(g.t.Context(), "?wait_ms=60000", body)
	if err != nil || a.at("/status") != "succeeded" {
		g.t.Fatalf("%v: %v: %s", body, err, a.raw)
	}
}

// refused checks that the last recorded call was denied or asked, and that nothing ran.
func (g *guarded) refused(what, dir, id string) {
	g.t.Helper()
	if id == "" {
		list := getFrom(g.t, g.daemon, "/v1/invocations?limit=1")
		id = fmt.Sprint(list.at("/items/0/id"))
	}
	if id == g.last {
		g.t.Errorf("%s has no row", what)
	}
	g.last = id
	row := getFrom(g.t, g.daemon, "/v1/invocations/"+id)
	code := row.at("/error/code")
	if row.at("/reason") != "denied" ||
		code != string(dray.CodeDenied) && code != string(dray.CodeApprovalRequired) {
		g.t.Errorf("%s: the audit log has %s", what, row.raw)
	}
	want := map[string]string{"app": "container", "host": "host"}[filepath.Base(dir)]
	if row.at("/route/environment") != want {
		g.t.Errorf("%s: the call was not for the %s: %s", what, want, row.raw)
	}
	if _, err := os.Lstat(dir + "/witness"); !os.IsNotExist(err) {
		g.t.Errorf("%s ran: %v", what, err)
		_ = os.Remove(dir + "/witness")
	}
}

// Spellings of a command that makes a file do not run over HTTP, MCP and dray exec, in a container
// and on the host. Each does make the file where no policy stands before it (SE-04, SE-05).
func TestEvasionsByRealCalls(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	for _, command := range evasions {
		g.checkWitness(command)
	}
	client := connectMCP(t, g.daemon, revisions[1], "")
	for _, dir := range []string{g.root + "/host", g.root + "/app"} {
		for i, command := range evasions {
			what := fmt.Sprintf("%s %d %.60q", filepath.Base(dir), i, command)
			body := g.body(dir, "shell", map[string]any{"command": command})
			body["context"] = map[string]any{"labels": map[string]string{"approved": "yes"}}
			a, err := g.call(t.Context(), "", body)
			if err != nil {
				t.Fatal(err)
			}
			g.refused("HTTP "+what, dir, a.id())
			args := map[string]any{"command": command}
			for name, value := range body {
				if name == "cwd" || name == "workspace" {
					args[name] = value
				}
			}
			if r := client.call("shell", args); !r.isError {
				t.Errorf("MCP %s: %s", what, r.text)
			}
			g.refused("MCP "+what, dir, "")
			flags := []string{"exec", "--workspace", dir}
			if filepath.Base(dir) == "host" {
				flags = []string{"exec", "--host", "--cwd", dir}
			}
			if ran := g.dray(t.Context(), nil, append(flags, "--", "sh", "-c", command)...); ran.code == 0 {
				t.Errorf("dray exec %s: %s", what, ran.stdout)
			}
			g.refused("dray exec "+what, dir, "")
		}
		g.runs(g.body(dir, "shell", map[string]any{"command": "ls && echo ok"}))
	}
	t.Logf("%d spellings, 6 ways each", len(evasions))
}

// checkWitness checks that an evasion makes the file if nothing stands before it.
func (g *guarded) checkWitness(command string) {
	dir := g.t.TempDir()
	cmd := exec.CommandContext(g.t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput()
	if _, err := os.Stat(dir + "/witness"); err != nil {
		g.t.Errorf("%.60q makes no file, so it shows nothing: %s", command, out)
	}
}

// Evasions that need several calls, other members or other tools ask or are denied (SE-04, SE-05).
func TestEvasionsOfSeveralCalls(t *testing.T) {
	g := startGuarded(t)
	host, app := g.root+"/host", g.root+"/app"
	for _, dir := range []string{host, app} {
		g.runs(g.body(app, "write_file", map[string]any{"path": app + "/s", "content": "touch witness\n"}))
		writeFiles(t, host, map[string]string{"s": "touch witness\n"})
		type attempt struct {
			name, tool string
			input      map[string]any
			more       map[string]any
		}
		attempts := []attempt{
			{"script", "exec", map[string]any{"argv": []string{"sh", "s"}}, nil},
			{"source", "shell", map[string]any{"command": ". ./s"}, nil},
			{"stdin", "exec", map[string]any{"argv": []string{"sh"}}, map[string]any{"stdin": "touch witness"}},
			{"BASH_ENV", "exec", map[string]any{"argv": []string{"ls"}}, map[string]any{"env": map[string]any{"BASH_ENV": "s"}}},
			{"PATH", "exec", map[string]any{"argv": []string{"ls"}}, map[string]any{"env": map[string]any{"PATH": "."}}},
			{"interpreter", "exec", map[string]any{"argv": []string{"python3", "-c", "import os; os.system('touch witness')"}}, nil},
			{"shell member", "shell", map[string]any{"command": "touch witness", "shell": "bash"}, nil},
			{"function of a session", "shell", map[string]any{"command": "ls", "session": "s"}, nil},
			{"exec in a session", "exec", map[string]any{"argv": []string{"ls"}, "session": "s"}, nil},
			{"redirection", "shell", map[string]any{"command": "cd /tmp; echo x >y"}, nil},
		}
		for _, a := range attempts {
			body := g.body(dir, a.tool, a.input)
			maps.Copy(body, a.more)
			got, err := g.call(t.Context(), "", body)
			if err != nil {
				t.Fatal(err)
			}
			if a.name == "PATH" || a.name == "BASH_ENV" {
				if got.status == http.StatusBadRequest || got.status == http.StatusUnprocessableEntity {
					continue // the host accepts no such variable
				}
			}
			g.refused(a.name, dir, got.id())
		}
	}
	if err := os.Symlink(g.root+"/outside", app+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/link/witness", "/../outside/witness"} {
		a, err := g.call(t.Context(), "", g.body(app, "write_file",
			map[string]any{"path": app + p, "content": "x"}))
		if err != nil || a.at("/status") == "succeeded" {
			t.Errorf("%s: %v %s", p, err, a.raw)
		}
	}
	if _, err := os.Stat(g.root + "/outside/witness"); !os.IsNotExist(err) {
		t.Error("a file was written outside")
	}
	for name, raw := range map[string]string{
		"other case": `{"command": "touch witness", "COMMAND": "ls"}`,
		"twice":      `{"command": "touch witness", "command": "ls"}`,
		"NUL":        `{"command": "ls\u0000; touch witness"}`,
	} {
		body := g.body(app, "shell", nil)
		body["input"] = json.RawMessage(raw)
		text, err := json.Marshal(body)
		if name == "twice" { // json.Marshal keeps both
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err := g.ask(context.WithoutCancel(t.Context()), http.MethodPost, "/v1/invocations", string(text))
		if err != nil || a.at("/status") == "succeeded" {
			t.Errorf("%s: %v %s", name, err, a.raw)
		}
	}
	if _, err := os.Stat(app + "/witness"); !os.IsNotExist(err) {
		t.Error("a refused call ran")
	}
}
