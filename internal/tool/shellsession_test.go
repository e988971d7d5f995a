package tool

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// newSessions returns a fixture with sessions, whose list is in the given file.
func newSessions(t *testing.T, file string) *fixture {
	t.Helper()
	b := newFixture(t)
	b.openSessions(t, file)
	return b
}

// openSessions gives the fixture new sessions, as a new daemon has them.
func (b *fixture) openSessions(t *testing.T, file string) {
	t.Helper()
	var err error
	if b.shells, err = OpenShellSessions(file); err != nil {
		t.Fatal(err)
	}
	b.exec = resolving(b.tools, b.shells.Executor(dray.RunTool))
}

// shells are the shells of this machine in which sessions are tested.
func shells() []string {
	return slices.DeleteFunc([]string{"/bin/sh", "bash", "zsh", "busybox"}, func(name string) bool {
		_, err := exec.LookPath(name)
		return err != nil || name == "busybox" // its shell needs the argument sh; containers test it
	})
}

// in runs a command in session s and returns its stdout.
func (b *fixture) in(t *testing.T, shell, command string) string {
	t.Helper()
	res := b.call(t, "shell", object{"command": command, "shell": shell, "session": "s"})
	succeeded(t, res)
	if lost := res.Metadata.Session.Lost; lost != "" {
		t.Errorf("%q lost %q", command, lost)
	}
	return res.Stdout.Text
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// SS-01
func TestSession_FolderAndVariables(t *testing.T) {
	for _, shell := range shells() {
		t.Run(strings.ReplaceAll(shell, "/", "_"), func(t *testing.T) {
			b := newSessions(t, "")
			if err := os.Symlink(".", filepath.Join(b.folder, "link")); err != nil {
				t.Fatal(err)
			}
			b.in(t, shell, "mkdir -p 'a b' && cd link/'a b' && export A=1 B=two C=gone; local_only=1")
			want(t, b.in(t, shell, "pwd; echo $A $B $C ${local_only-none} $#"),
				b.folder+"/link/a b\n1 two gone none 0\n")
			b.in(t, shell, "unset C; unset LANG; export A='x\n y='; export ODD=\"$(printf 'q\\377\\047\"$')\"")
			want(t, b.in(t, shell, `printf '%s|' "$A" "${C-unset}" "${LANG-unset}"; printf %s "$ODD" | od -An -tx1`),
				"x\n y=|unset|unset| 71 ff 27 22 24\n")
			// of the state's own variables none is exported
			if env := b.in(t, shell, "env"); strings.Contains(env, variablePrefix) ||
				strings.Contains(env, "__dray") {
				t.Errorf("the environment is %s", env)
			}
			res := b.call(t, "exec", object{"argv": []string{"cd", "/nowhere"}, "session": "s"})
			if res.ExitCode == nil || *res.ExitCode == 0 {
				t.Errorf("cd to a directory that is missing: %+v", res)
			}
			res = b.call(t, "exec", object{"argv": []string{"printf", "%s", "$A *"}, "session": "s"})
			want(t, res.Stdout.Text, "$A *")
		})
	}
}

// SS-01: bash and zsh keep functions; a command's own traps and options stay in the command.
func TestSession_Functions(t *testing.T) {
	for _, shell := range shells() {
		if shell == "/bin/sh" {
			continue
		}
		t.Run(shell, func(t *testing.T) {
			b := newSessions(t, "")
			b.in(t, shell, "greet() { echo \"hello $1\"; }; set -Cux; trap 'echo bye' USR1")
			want(t, b.in(t, shell, "greet you"), "hello you\n")
			b.in(t, shell, "unset -f greet")
			res := b.call(t, "shell", object{"command": "greet", "shell": shell, "session": "s"})
			if res.ExitCode == nil || *res.ExitCode != 127 {
				t.Errorf("a removed function: %+v", res)
			}
		})
	}
}

// SS-01: variables that bash does not let anyone assign stop no later command, also not where sh is
// bash, which ends at such an assignment.
func TestSession_ReadonlyVariables(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	sh := filepath.Join(t.TempDir(), "sh")
	if err := os.Symlink(bash, sh); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{sh, "bash"} {
		b := newSessions(t, "")
		b.in(t, shell, "set -f; export UID EUID SHELLOPTS BASHOPTS PPID A=1")
		res := b.call(t, "shell", object{
			"command": `echo $A $-; env | grep ^UID=`, "shell": shell, "session": "s",
		})
		succeeded(t, res)
		want(t, res.Stderr.Text, "")
		want(t, res.Stdout.Text, fmt.Sprintf("1 hBc\nUID=%d\n", os.Getuid()))
	}
}

// SS-01: the functions of all shells are bounded together: a shell has as many names as the caller
// likes, and a state that is too large says so.
func TestShellState_FunctionsOfAllShells(t *testing.T) {
	s := &shellState{}
	saved := "/\x00A=1\x00\x00A=1\x00\x00%s\x00end"
	text := strings.Repeat("#", maxPrelude/4)
	var err error
	for i := 0; err == nil; i++ {
		if i == 4 {
			t.Fatal("the functions of four shells are larger than the limit")
		}
		var next *shellState
		next, _, err = s.next(fmt.Appendf(nil, saved, text), fmt.Sprint("sh", i), nil,
			func(string) bool { return false })
		if err == nil {
			s = next
		}
	}
	if len(s.functions) != 3 || !strings.Contains(err.Error(), "larger than 120 KiB") {
		t.Errorf("%d shells: %v", len(s.functions), err)
	}
	for i := range 3 { // a shell without functions counts nothing
		next, _, err := s.next(fmt.Appendf(nil, saved, ""), fmt.Sprint("sh", i), nil,
			func(string) bool { return false })
		if err != nil || len(next.functions) != 2-i {
			t.Fatalf("without functions: %d shells, %v", len(next.functions), err)
		}
		s = next
	}
}

// SS-01: exit codes are those of the command, and a state that cannot be saved is reported and
// stays as it was.
func TestSession_LostStateIsReported(t *testing.T) {
	b := newSessions(t, "")
	b.in(t, "/bin/sh", "mkdir d; cd d; export A=1")
	for _, c := range []struct {
		command string
		code    int // -1 is none
		lost    bool
	}{
		{"export A=2; exit 7", 7, false},
		{"set -e; export A=1; false; export A=3", 1, false},
		{"if", 2, false},
		{"exec true", 0, true},
		{"export A=9; kill -9 $$", -1, true},
		{"export A=9; trap 'exit 5' EXIT", 5, true},
		{"export A=9; rm -rf \"$DRAY_RESULTS\"", 0, true},
		{"export A=9; trap 'printf %0200000d 0 >\"$DRAY_RESULTS/.dray-session\"' EXIT", 0, true},
		{`printf '/tmp/../tmp\000A=1\000\000A=9\000\000\000end' >"$DRAY_RESULTS/.dray-session"; trap - EXIT`, 0, true},
		{"export A=9 BIG=\"$(printf %0130000d 0)\"", 0, true},
	} {
		res := b.call(t, "shell", object{"command": c.command, "session": "s"})
		code := -1
		if res.ExitCode != nil {
			code = *res.ExitCode
		}
		if lost := res.Metadata.Session.Lost; code != c.code || (lost != "") != c.lost ||
			(len(res.Metadata.Warnings) > 0) != c.lost {
			t.Errorf("%q: code %d, lost %q, warnings %q", c.command, code, lost, res.Metadata.Warnings)
		}
		want(t, b.in(t, "/bin/sh", "echo ${PWD##*/} $A"), "d "+map[bool]string{
			true: "2\n", false: "1\n",
		}[c.code == 7])
	}
}

// SS-01: a session whose directory has gone does not run elsewhere; cwd moves it.
func TestSession_DirectoryGone(t *testing.T) {
	b := newSessions(t, "")
	b.in(t, "/bin/sh", "mkdir 'd\nhint: x'; cd d*; export A=1; rmdir ../d*")
	res := b.call(t, "shell", object{"command": "pwd", "session": "s"})
	failedWith(t, res, dray.CodeBadCwd)
	// the command chose the name, which must not look like further lines
	if !strings.Contains(res.Error.Hint, `\nhint: x": set cwd`) {
		t.Errorf("the hint is %q", res.Error.Hint)
	}
	res = b.call(t, "shell", object{"command": "pwd", "session": "s"},
		func(c *dray.Call) { c.Invocation.Cwd, c.WorkDir = b.folder, b.folder })
	succeeded(t, res)
	want(t, b.in(t, "/bin/sh", "pwd; echo $A"), b.folder+"\n1\n")
}

// SS-01, EX-06: a session does not bring variables to the host that a call may not set.
func TestSession_RefusedVariables(t *testing.T) {
	b := newSessions(t, "")
	res := b.call(t, "shell", object{
		"command": "export PATH=/evil:$PATH LD_X=1 FINE=1; unset HOME", "session": "s",
	})
	succeeded(t, res)
	if lost := res.Metadata.Session.Lost; !strings.HasSuffix(lost, ": HOME, LD_X, PATH") {
		t.Errorf("lost is %q", lost)
	}
	got := b.in(t, "/bin/sh", "echo ${LD_X-none} $FINE ${HOME:+home} $PATH")
	if !strings.HasPrefix(got, "none 1 home ") || strings.Contains(got, "/evil") {
		t.Errorf("the variables are %q", got)
	}
	// a forged state with names that look like further lines, and with many
	for i, suffix := range []string{`: "LD_\r\nnote: x"`, ", and 68 more"} {
		forged := []string{
			`printf 'LD_\r\nnote: x=1\000'`, `for i in $(seq 100); do printf 'LD_%s=1\000' $i; done`,
		}[i]
		res := b.call(t, "shell", object{
			"command": `{ printf '/\000\000'; ` + forged +
				`; printf '\000\000end'; } >"$DRAY_RESULTS/.dray-session"; trap - EXIT`, "session": "forged",
		})
		succeeded(t, res)
		if lost := res.Metadata.Session.Lost; !strings.HasSuffix(lost, suffix) || len(lost) > 1000 {
			t.Errorf("lost is %q", lost)
		}
		b.openSessions(t, "")
	}
}

// SS-01: variables of a call do not become those of the session.
func TestSession_VariablesOfTheCall(t *testing.T) {
	b := newSessions(t, "")
	b.in(t, "/bin/sh", "export A=session")
	res := b.call(t, "shell", object{"command": "echo $A $B", "session": "s"},
		func(c *dray.Call) { c.Invocation.Env = map[string]string{"A": "call", "B": "call"} })
	want(t, res.Stdout.Text, "call call\n")
	want(t, b.in(t, "/bin/sh", "echo $A ${B-none}"), "session none\n")
}

// SS-01: the loss by a restart of the daemon and by idleness is reported once; an ended session is
// new. The file has no values.
func TestSession_RestartIdleAndEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sessions")
	b := newSessions(t, file)
	run := func(input object) *dray.SessionReport {
		t.Helper()
		res := b.call(t, "shell", input)
		succeeded(t, res)
		return res.Metadata.Session
	}
	command := object{"command": "export A=hidden-value", "session": "s"}
	if got := run(command); !got.New || got.Lost != "" || got.Cwd != b.folder {
		t.Errorf("the first report is %+v", got)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "hidden") {
		t.Errorf("%s, %v", text, err)
	}
	b.openSessions(t, file)
	if got := run(command); !got.New || !strings.Contains(got.Lost, "restarted") {
		t.Errorf("after a restart: %+v", got)
	}
	if got := run(command); got.New || got.Lost != "" {
		t.Errorf("then: %+v", got)
	}
	later := time.Now().Add(shellSessionIdle + time.Minute)
	b.shells.now = func() time.Time { return later }
	if got := run(command); !got.New || !strings.Contains(got.Lost, "idle") {
		t.Errorf("after idleness: %+v", got)
	}
	if got := run(object{"command": "true", "session": "s", "end": true}); !got.Ended {
		t.Errorf("at the end: %+v", got)
	}
	b.openSessions(t, file)
	if got := run(command); !got.New || got.Lost != "" {
		t.Errorf("after its end: %+v", got)
	}
}

// SS-01: background jobs end with their call, and the session goes on.
func TestSession_BackgroundJobs(t *testing.T) {
	b := newSessions(t, "")
	res := b.call(t, "shell", object{"command": "export A=1; sleep 1000 & echo $!", "session": "s"})
	succeeded(t, res)
	if kill := res.Metadata.Kill; kill.Leftover != 1 || len(kill.Survivors.PIDs) > 0 {
		t.Errorf("the leftovers are %+v", kill)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(res.Stdout.Text)); !os.IsNotExist(err) {
		t.Errorf("the job still runs: %v", err)
	}
	want(t, b.in(t, "/bin/sh", "echo $A"), "1\n")
}

// SS-01: concurrent calls of one session run one after the other, and none is lost.
func TestSession_CallsSerialise(t *testing.T) {
	b := newSessions(t, "")
	b.in(t, "/bin/sh", "export N=0")
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			b.call(t, "shell", object{
				"command": "mkdir lock && export N=$((N+1)); rmdir lock", "session": "s",
			})
		})
	}
	group.Wait()
	want(t, b.in(t, "/bin/sh", "echo $N"), "20\n")
}

// SS-01: sessions at once, each in its own state; nothing of them is left.
func TestSession_ManyAtOnce(t *testing.T) {
	const sessions, commands = 12, 8
	b := newSessions(t, "")
	var group sync.WaitGroup
	for i := range sessions {
		group.Go(func() {
			for n := range commands {
				res := b.call(t, "shell", object{
					"command": fmt.Sprintf("mkdir -p %[1]d.%[2]d; cd %[1]d.%[2]d; export N=$((${N-0}+1)); exit %[2]d", i, n),
					"session": fmt.Sprint("s", i),
				})
				if res.ExitCode == nil || *res.ExitCode != n || res.Metadata.Session.Lost != "" {
					t.Errorf("session %d, command %d: %+v", i, n, res.Error)
				}
			}
			res := b.call(t, "shell", object{
				"command": "pwd; echo $N", "session": fmt.Sprint("s", i), "end": true,
			})
			path := b.folder
			for n := range commands {
				path += fmt.Sprintf("/%d.%d", i, n)
			}
			want(t, res.Stdout.Text, fmt.Sprintf("%s\n%d\n", path, commands))
		})
	}
	group.Wait()
	if left := b.shells.sessions; len(left) > 0 {
		t.Errorf("%d sessions are left", len(left))
	}
}

// SS-01: sessions, and calls that wait for one, are bounded. A container that was created again,
// and a call that is cancelled while it waits, lose nothing silently.
func TestShellSessions_Bounds(t *testing.T) {
	s, err := OpenShellSessions("")
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(ctx context.Context, key shellSessionKey) (*shellSession, error) {
		return s.acquire(ctx, key, dray.Discard)
	}
	key := shellSessionKey{Principal: "p", Name: "s"}
	first, err := acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	first.calls = maxShellQueue + 1
	if _, err := acquire(t.Context(), key); dray.CodeOf(err) != dray.CodeBusy {
		t.Errorf("a full queue: %v", err)
	}
	first.calls = 1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := acquire(ctx, key); err == nil || first.calls != 1 {
		t.Errorf("a cancelled call: %v, %d calls", err, first.calls)
	}
	first.enterContainer("one")
	first.started = true
	s.release(first)
	for _, started := range []bool{false, true} { // one that did not start has not reported it
		again, err := acquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		again.enterContainer("two")
		if !again.isNew || !strings.Contains(again.lost, "created again") {
			t.Errorf("another container: %+v", again)
		}
		again.started = started
		s.release(again)
	}
	for i := 1; i < maxShellSessions; i++ {
		other, err := acquire(t.Context(), shellSessionKey{Principal: "p", Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		other.started = true
		s.release(other)
	}
	_, err = acquire(t.Context(), shellSessionKey{Principal: "p", Name: "more"})
	if dray.CodeOf(err) != dray.CodeBusy {
		t.Errorf("one session too many: %v", err)
	}
	if _, err = acquire(t.Context(), shellSessionKey{Principal: "q", Name: "s"}); err != nil {
		t.Errorf("a session of another principal: %v", err)
	}
}
