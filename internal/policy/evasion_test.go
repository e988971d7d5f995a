package policy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/policy"
)

const noRemove = `
@id("any") permit (principal, action == Action::"call", resource);
@id("opaque") @ask("it can run what policies do not see")
permit (principal, action == Action::"call", resource) when { context.opaque };
@id("outside") @ask("it writes outside")
permit (principal, action == Action::"call", resource) when { !context.writes_outside.isEmpty() };
@id("no-rm") forbid (principal, action == Action::"call", resource)
when { context.programs.contains("rm") };
`

func newEngine(t *testing.T, text string) *policy.Engine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.cedar")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := policy.New(policy.Options{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func callOf(t *testing.T, tool string, input any) dray.Call {
	t.Helper()
	b, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	return dray.Call{
		Tool: &dray.Tool{Name: tool, StartsProcess: true},
		Invocation: dray.Invocation{
			Tool: tool, Input: b, Principal: "uid:1000", Workspace: t.TempDir(),
		},
		Route: dray.Route{Environment: dray.KindContainer},
	}
}

func shell(t *testing.T, command string) dray.Call {
	t.Helper()
	return callOf(t, "shell", map[string]string{"command": command})
}

// Where rm is denied, no spelling of it runs without a question (SE-04).
func TestEvasions(t *testing.T) {
	e := newEngine(t, noRemove)
	for _, command := range []string{
		"rm x", `\rm x`, `"r"m x`, `'rm' x`, `r''m x`, `$'\x72m' x`, `$'\162m' x`, `$"rm" x`, "r\\\nm x",
		"/bin/rm x", "/bin/../bin/rm x", "//bin//rm x", "./rm x", "command rm x", "builtin command rm x",
		"exec rm x", "exec -a ls rm x", "( rm x )", "{ rm x; }", "true && rm x", "false || rm x",
		"true; rm x", "true\nrm x", "true\r\nrm x\r\n", "true & rm x", "true | rm x", "\trm\tx", "! rm x",
		"time rm x", "if true; then rm x; fi", "for i in 1; do rm $i; done", "while rm x; do :; done",
		"case a in a) rm x;; esac", "f() { rm x; }; f", "ls() { rm x; }; ls", "function ls { rm x; }; ls",
		"sh -c 'rm x'", `bash -c "sh -c 'rm x'"`, "sh -ec 'rm x'", "sh -c -- 'rm x'", "bash -lc 'rm x'",
		"sh <<E\nrm x\nE", "sh <<<'rm x'", "echo rm x | sh", "echo cm0geAo= | base64 -d | sh",
		"bash <(echo rm x)", "cat <(rm x)", "echo $(rm x)", "echo `rm x`", `echo "$(rm x)"`,
		"echo ${a:-$(rm x)}", "echo $(( $(rm x) ))", "cat <<E\n$(rm x)\nE", "a=$(rm x)",
		"R=rm; $R x", "R=rm; ${R} x", `"$0" x`, "r{m,} x", "{rm,x}", "/bin/r? x", "/bin/[r]m x", "r*m x",
		"eval rm x", "eval 'r''m x'", "eval \"$X\"", ". ./x", "source x", "alias ls=rm; ls x",
		"trap 'rm x' EXIT", `trap "$X" EXIT`, "coproc rm x", "PATH=. ls", "LD_PRELOAD=./x.so ls",
		"export PATH=.; ls", "declare -x LD_PRELOAD=x; ls", "BASH_ENV=x bash -c ls", "A=1 rm x",
		"GIT_SSH_COMMAND='rm x' git fetch", "git -c alias.x='!rm x' x", "git config alias.x '!rm x'",
		"xargs rm <x", "echo x | xargs -n1 rm", "echo rm x | xargs env", "echo rm | xargs -I{} {} x",
		"echo x | xargs -I{} sh -c '{}'", "find . -exec rm {} ;", `find . -exec rm {} \;`, "find . -delete",
		`find . -execdir sh -c 'rm x' \;`, `find . -ok rm {} +`, `find . $X rm {} \;`,
		`find /bin -name rm -exec {} x \;`, "env rm x", "env -i rm x", "env A=1 rm x", "env -S 'rm x'",
		"env -u A rm x", "sudo rm x", "sudo -u root rm x", "sudo -u root -- rm x", "sudo -s", "doas rm x",
		"nice rm x", "nice -n 5 rm x", "nice -5 rm x", "nohup rm x", "timeout 5 rm x",
		"timeout -s KILL 5 rm x", "timeout --signal=KILL 5 rm x", "setsid rm x", "stdbuf -oL rm x",
		"ionice -c 3 rm x", "taskset 1 rm x", "busybox rm x", "busybox sh -c 'rm x'", "toybox rm x",
		"python3 -c 'x'", "python3.12 x.py", "perl -e x", "ruby -e x", "node -e x", "php -r x",
		"awk 'BEGIN{system(\"rm x\")}'", "gawk x", "sed '1e rm x'", "sed -n 's/a/rm x/e'", "vim -c ':!rm x'",
		"ex -c x", "ed x", "make", "make -f x", "ssh h rm x", "nc -e rm h 1", "script -c 'rm x'",
		"su -c 'rm x'", "tar -cf x --checkpoint-action=exec=rm x", "tar -I rm -xf x", "tar xf a --to-command=rm",
		"zsh -c 'rm x'", "fish -c x", "ksh -c x", "go run x.go", "npm run x", "watch rm x", "parallel rm ::: x",
		"strace rm x", "flock x rm x", "chroot / rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
		"enable -f x y", "hash -p /bin/rm ls; ls x", "mapfile -C rm -c1 a", "rg --pre rm x", "fd -x rm",
		"sort --compress-program=rm x", "split --filter=rm x", "~/x", "echo &>f rm x", "if", "'", "$(",
		"echo x > /etc/passwd", "echo x >$F", "cat x &> /etc/x", "[ 1 ] && rm x", "[[ 1 ]] && rm x",
		// evasions through builtins, options and programs that dray does not know
		"trap -- 'rm x' EXIT", "jobs -x rm x", "printf -v PATH .; ls", "read -r BASH_ENV", "for PATH in .; do ls; done",
		"getopts a PATH", "let PATH=1", "unset PATH", ": ${PATH:=x}", "command export PATH=.", "builtin export PATH=.",
		"set -k; ls PATH=.", "set -o keyword; ls PATH=.", "bash -kc 'ls PATH=.'", "shopt -so keyword",
		"let 'a[$(rm x)]=1'", "x='a[$(rm x)]'; echo $((x))", "echo $((x)); x=$1", "echo $(( $1 ))", "read x; echo $((x))",
		"[ -v 'a[$(rm x)]' ]", "test -v 'a[$(rm x)]'", "a=-v; [ $a \"$b\" ]", "unset 'a[$(rm x)]'", "read 'a[$(rm x)]' <y",
		"printf -v 'a[$(rm x)]' x", "wait -p 'a[$(rm x)]'", "getopts a 'a[$(rm x)]'", "echo ${x@P}", "echo ${!x}",
		"cat <<E | sh\nrm x\nE", ". /dev/stdin <<E\nrm x\nE", "rm$IFS'x'", "rm${IFS}x", "r$@m x", "r``m x",
		"ls \r# ; rm x", "ls\rrm x", "гm x", "r\u200bm x", "ls\u00a0rm", "tar xIf rm a", "tar -xFf rm a", "tar --to-c rm -xf a",
		"sort --comp rm x", "curl -sKx", "git x", "git -p log", "git log --ext-diff", "git log --format=%G?", "git hook run x",
		"git --git-dir=/tmp/e status", "git clea -fdx", "setpriv rm x", "run0 rm x", "x86_64 rm x", "ld.so /bin/rm x",
		"choom -n 1 -- rm x", "prlimit --nofile=10 rm x", "chronic rm x", "tini -- rm x", "gosu root rm x", "ssh-agent rm x",
		"micropython x", "uv run x", "poetry run rm", "julia -e x", "dotnet run", "gsed '1e rm x'", "bfs . -exec rm {} ;",
		"fzf --preview 'rm x'", "hg --config alias.x='!rm' x", "rvim -c x", "sudoedit x", "emulate sh -c 'rm x'",
		"f() { ls; }; f", "mytool x", "cd /etc; echo x > passwd", "env -C /etc sh -c 'echo x >y'",
		"find . -fprint /etc/x", "find . -fprintf /etc/x a",
		// commands that programs run which dray knows, and variables that change them
		`find . -exec sh -c 'echo {}' \;`, `find . -exec xargs -a + rm \;`, `find . -exec xargs -E + rm {} +`,
		"/x/link/../../usr/bin/ls", "bash -c 'set -o history -o histexpand\nls !x'", "bash -c 'set -H; ls'", "bash -Hc ls",
		": $((PATH=63)); ls", ": $((PATH++)); ls", "bash -c '((PATH=63)); ls'", "bash -c 'coproc PATH { cat; }; ls'",
		"bash -c 'exec {PATH}>f; ls'", "bash -c ': {PATH}>f; ls'", "bash -c 'cat <(ls); [[ PATH=63 -eq 63 ]]; ls'",
		"install -s --strip-program=./x a b", "nm --plugin=./x.so a", "objdump --plugin ./x.so a", "size --plug x a",
		"tar -cMf a -L 10 b", "tar --multi -cf a b", "tar cMf a b", "tar -cf host:a b", "TAPE=host:a tar c b",
		"rg --hostname-bin=./x a", "RIPGREP_CONFIG_PATH=x rg a", "curl --engine ./x.so u", "wget --config=x u", "WGETRC=x wget u",
		"OPENSSL_CONF=x curl u", "go build -ldflags '-linkmode=external -extld=./x'", "go fix ./...", "go build -compiler=gccgo",
		"GOENV=x go build", "GOCACHEPROG=./x go build", "GOAUTH=./x go build", "PKG_CONFIG=./x go build", "CGO_CFLAGS=x go build",
		"git add -e", "git add -i", "git add --edit", "git reset --pat", "git stash -p", "git --shallow-file status x",
		"git --super-prefix status x", "git status --help", "git --bare status", "git -C . x", "chrt -o rm ls", "find /etc -execdir sh -c 'echo x >y' \\;",
		"echo x >/proc/self/cwd/y", "echo x >/dev/fd/3", "echo x >/proc/thread-self/root/y",
		"exec 3<>/dev/tcp/h/80; cat <&3", "cat </dev/udp/h/53",
		"gdb -ex x", "docker run x", "env - rm x", "env - -u A rm x", "env --chdir=/ rm x", "command -p rm x",
	} {
		if d := e.Decide(t.Context(), shell(t, command)); d.Effect == policy.Allow {
			t.Errorf("%q is allowed: %+v", command, policy.FactsOf(t.Context(), shell(t, command), nil))
		}
	}
}

// What runs nothing hidden is allowed: the analysis does not ask about everything.
func TestPlainCommandsAreAllowed(t *testing.T) {
	e := newEngine(t, noRemove)
	for _, command := range []string{
		"ls", "ls -la *.go", "cat a b | grep x", "echo 'rm x'", "go build ./...", "cd x && ls", "echo x >y",
		"ls 2>&1 >/dev/null", "timeout 5 ls", "env A=1 ls", "xargs -n 1 ls <x", "sh -c 'ls; cat x'",
		"find . -name '*.go' -exec grep x {} +", "[ -f x ] && cat x", "for i in a b; do echo $i; done",
		"git status", "git -h", "i=1; i=$((i+1)); echo $((i * 2))", "[ $# -eq 0 ]", "[ -n \"$X\" ]",
		"read line && echo $line", "export A=1; ls", "printf '%s\\n' $X", "set -eu; ls", "unset A", "trap - EXIT",
		"git log --oneline -5", "tar -xzf a.tgz", "curl -sSL x", "jobs -l", "wait", "test -f x", "command -v rm",
		"cat <<E\nhello $x\nE\nls", "cat >f <<'EOF'\nit's `here`\nEOF", "x=$(cat <<-E\n\ta\n\tE\n)", "ls \\\n  -l \\\n  x # y",
		"echo `date +%s`", "echo \"${x:-y}\" $'a\\tb'", "set -euo pipefail; set -- a b; ls", "CGO_ENABLED=0 GOOS=linux go build .",
		"git add -A", "git -C sub status", "git add config.go commit/x", "git log -p", "git diff -C", "git clean -fdx",
		"git rev-parse --git-dir", "git branch --remotes", "git --no-pager log -c", "go build -ldflags '-s -w'", "install -m 755 a b", "tar -C a -czf b.tgz .", "find . -exec wc -l {} +",
	} {
		if d := e.Decide(t.Context(), shell(t, command)); d.Effect != policy.Allow {
			t.Errorf("%q: %+v %+v", command, d, policy.FactsOf(t.Context(), shell(t, command), nil).OpaqueReasons)
		}
	}
	argv := callOf(t, "exec", map[string]any{"argv": []string{"echo", "$(rm x)", "; rm x"}})
	if d := e.Decide(t.Context(), argv); d.Effect != policy.Allow {
		t.Errorf("exec: %+v", d)
	}
}

// A symlink that leads out of the workspace does not hide where a file is written (SE-04).
func TestSymlinkOutside(t *testing.T) {
	e := newEngine(t, noRemove)
	call := callOf(t, "write_file", map[string]string{"path": "link/x"})
	call.Tool.InputSchema = json.RawMessage(`{"properties": {"path": {"format": "path"}}}`)
	if d := e.Decide(t.Context(), call); d.Effect != policy.Allow {
		t.Errorf("inside: %+v", d)
	}
	if err := os.Symlink(t.TempDir(), call.Invocation.Workspace+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"link/x", "link/../x", "../x", "/etc/x"} {
		call.Invocation.Input, _ = json.Marshal(map[string]string{"path": p})
		if d := e.Decide(t.Context(), call); d.Effect != policy.Ask {
			t.Errorf("%s: %+v", p, d)
		}
	}
}

// The directory of a tool that works in the workspace is the workspace, whatever directory its
// caller names: relative paths lead from there (SE-04).
func TestDirectoryOfWorkspaceTool(t *testing.T) {
	call := callOf(t, "lint", map[string]string{"path": "link/x"})
	call.Tool.InputSchema = json.RawMessage(`{"properties": {"path": {"format": "path"}}}`)
	call.Tool.InWorkspace = true
	workspace := call.Invocation.Workspace
	if err := os.Mkdir(workspace+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), workspace+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, call.Invocation.Cwd = range []string{"", "sub", workspace + "/sub", "/"} {
		f := policy.FactsOf(t.Context(), call, nil)
		if f.Cwd != workspace || len(f.WritesOutside) != 1 {
			t.Errorf("cwd %q: %+v", call.Invocation.Cwd, f)
		}
	}
}

// Nothing in the context or the plan of a call changes a fact (SE-05).
func TestContextIsNoFact(t *testing.T) {
	call := shell(t, "rm x")
	before, _ := json.Marshal(policy.FactsOf(t.Context(), call, nil))
	call.Invocation.Context = dray.CallContext{
		PlanID: "p", SessionID: "s", SandboxID: "b", Labels: map[string]string{"approved": "yes"},
	}
	call.Invocation.Plan.Override = "host"
	if after, _ := json.Marshal(policy.FactsOf(t.Context(), call, nil)); !bytes.Equal(after, before) {
		t.Errorf("facts %s, without context %s", after, before)
	}
	if d := newEngine(t, noRemove).Decide(t.Context(), call); d.Effect != policy.Deny {
		t.Errorf("%+v", d)
	}
}

// The analysis neither panics nor hangs, whatever the text is.
func FuzzShell(f *testing.F) {
	for _, seed := range []string{"rm x", "{a,b}{1..99999999}", "sh -c 'sh -c \"x\"'", "find . -exec x {} \\;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) { policy.FactsOf(t.Context(), shell(t, command), nil) })
}

// A command that costs much to analyse makes the call opaque (SE-04).
func TestBombs(t *testing.T) {
	e := newEngine(t, noRemove)
	for name, command := range map[string]string{
		"nested eval":   strings.Repeat(strings.Repeat("eval ", 16)+"x;", 700),
		"parentheses":   strings.Repeat("(", 60000),
		"substitutions": strings.Repeat("$(", 30000),
		"backquotes":    strings.Repeat("`", 60000),
		"braces":        "echo " + strings.Repeat("{a,b}", 10000),
		"sequence":      "echo {1..999999999}",
		"heredocs":      strings.Repeat("cat <<E;", 8000),
		"arithmetic":    "echo $((" + strings.Repeat("(", 30000),
		"expansions":    strings.Repeat("${a:-", 10000),
		"programs":      strings.Repeat("a$RANDOM;", 7000),
		"long":          "ls " + strings.Repeat("x", 70<<10),
	} {
		if d := e.Decide(t.Context(), shell(t, command)); d.Effect == policy.Allow && name != "braces" &&
			name != "sequence" {
			t.Errorf("%s is allowed", name)
		}
	}
}

// Members whose names differ in letter case are not those that the tool reads (SE-05).
func TestMembersOfOtherCase(t *testing.T) {
	call := shell(t, "")
	call.Invocation.Input = json.RawMessage(`{"command": "rm x", "COMMAND": "ls"}`)
	if d := newEngine(t, noRemove).Decide(t.Context(), call); d.Effect != policy.Deny {
		t.Errorf("%+v", d)
	}
}

// Paths at any depth of an input are facts, and so are those in lists and URIs (SE-04).
func TestNestedPaths(t *testing.T) {
	call := callOf(t, "write", nil)
	call.Tool.InputSchema = json.RawMessage(`{"properties": {"o": {"properties": {
		"p": {"format": "path"}, "l": {"format": "path-list"}, "u": {"format": "file-uri"}}}}}`)
	for _, o := range []string{`"p": "/etc/x"`, `"l": "a:/etc/x"`, `"u": "file:///etc/x"`, `"p": "../x"`} {
		call.Invocation.Input = json.RawMessage(`{"o": {` + o + `}}`)
		if f := policy.FactsOf(t.Context(), call, nil); len(f.WritesOutside) != 1 {
			t.Errorf("%s: %+v", o, f)
		}
	}
}

// A sync reads the paths that it copies: the host's if it copies to the container (SE-04).
func TestSyncPaths(t *testing.T) {
	for _, paths := range []dray.PathsSide{"", dray.PathsOfContainer} {
		for _, tt := range []struct {
			path, direction string
			outside         bool
		}{
			{"/etc/hosts", "to_container", true},
			{"../x", "to_container", true},
			{"x", "to_container", false},
			{"/etc/hosts", "to_host", true},
			{"../x", "", true},
			{"x", "", false},
		} {
			call := callOf(t, "sync", map[string]any{"paths": []string{"x", tt.path}, "direction": tt.direction})
			call.Invocation.Paths = paths
			f := policy.FactsOf(t.Context(), call, nil)
			if len(f.Reads) == 0 || len(f.ReadsOutside) > 0 != tt.outside || len(f.Writes) > 0 {
				t.Errorf("%v of %q: %+v", tt, paths, f)
			}
		}
	}
}

// On a terminal git starts a pager, which runs commands that are typed (SE-04).
func TestPagerOnTerminal(t *testing.T) {
	for command, opaque := range map[string]bool{"git log": true, "git --no-pager log": false, "ls": false} {
		call := shell(t, command)
		call.Invocation.Terminal = &dray.TerminalSize{Columns: 80, Rows: 24}
		if f := policy.FactsOf(t.Context(), call, nil); f.Opaque != opaque {
			t.Errorf("%s: %+v", command, f.OpaqueReasons)
		}
	}
}

// The words of a command are facts without their quotes, in the texts of shells too (SE-04).
func TestWords(t *testing.T) {
	e := newEngine(t, `
@id("any") permit (principal, action == Action::"call", resource);
@id("no-push") forbid (principal, action == Action::"call", resource)
when { context.programs.contains("git") && context.argv.containsAny(["push", "?"]) };`)
	for command, effect := range map[string]policy.Effect{
		"git push": policy.Deny, `git pu""sh`: policy.Deny, `sh -c "git p'us'h"`: policy.Deny, "git $X": policy.Deny,
		"git p{ush,}": policy.Deny, "x | xargs git": policy.Deny, "git status": policy.Allow, "echo push": policy.Allow,
	} {
		if d := e.Decide(t.Context(), shell(t, command)); d.Effect != effect {
			t.Errorf("%s: %+v", command, d)
		}
	}
}

// Calls that are decided at the same time do not see each other's text (SE-04).
func TestFactsOf_AtTheSameTime(t *testing.T) {
	var group sync.WaitGroup
	for i := range 8 {
		word := strings.Repeat(string(rune('a'+i)), 40+i)
		call := shell(t, "echo "+word+" '"+word+"' \""+word+"\"; "+word+" x")
		group.Go(func() {
			for range 300 {
				f := policy.FactsOf(t.Context(), call, nil)
				if !slices.Contains(f.Argv, word) || !slices.Contains(f.Programs, word) || len(f.Programs) > 3 {
					t.Errorf("the facts of %s are %+v", word, f)
					return
				}
			}
		})
	}
	group.Wait()
}
