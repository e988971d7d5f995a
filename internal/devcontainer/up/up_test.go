package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/compose"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/linux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execRunning is a helper.Running over os/exec, a process group of its own.
type execRunning struct {
	cmd            *exec.Cmd
	stdout, stderr io.Reader
}

func execStart(_ context.Context, c helper.Command) (helper.Running, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = c.Env, c.Dir, &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	return &execRunning{cmd, stdout, stderr}, cmd.Start()
}

func (r *execRunning) Stdout() io.Reader { return r.stdout }
func (r *execRunning) Stderr() io.Reader { return r.stderr }
func (r *execRunning) Stop()             { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }

func (r *execRunning) Wait() (int, error) {
	err := r.cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 0), nil
	}
	return 0, err
}

// heard collects progress.
type heard struct {
	mu    sync.Mutex
	lines []string
	seen  func(line string)
}

func (h *heard) progress(phase, message string) {
	line := phase + ": " + message
	h.mu.Lock()
	h.lines = append(h.lines, line)
	h.mu.Unlock()
	if h.seen != nil {
		h.seen(line)
	}
}

func (h *heard) has(line string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.lines, line)
}

// approve trusts a workspace as it is, and approves it.
func approve(t *testing.T, s *trust.Store, loc devcontainer.Location) trust.Approval {
	t.Helper()
	review, err := s.Review(t.Context(), loc)
	devtest.Must(t, err)
	_, err = s.Trust(t.Context(), loc, review.Hash)
	devtest.Must(t, err)
	approval, err := s.Approve(t.Context(), loc)
	devtest.Must(t, err)
	return approval
}

// fakeUp gives options for a CLI that is a shell script: real failures of the real one are tried
// against the engine, this is for what cannot be provoked there.
func fakeUp(t *testing.T, script string) Options {
	t.Helper()
	loc := devtest.Workspace(t, `{"image": "x"}`)
	dir := t.TempDir()
	cli := devtest.Write(t, dir, "devcontainer", "#!/bin/sh\n"+script)
	if err := os.Chmod(cli, 0o700); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	s := trust.NewStore(state, nil, compose.Options{})
	return Options{
		CLI: cli, State: state, Approval: approve(t, s, loc), Start: execStart,
		Env: []string{"PATH=" + os.Getenv("PATH")},
	}
}

func TestUpNeedsTrustAndCLI(t *testing.T) {
	o := fakeUp(t, "exit 9")
	o.Start = func(context.Context, helper.Command) (helper.Running, error) {
		t.Error("something was started")
		return nil, errors.New("no")
	}
	untrusted := o
	untrusted.Approval = trust.Approval{}
	folder, missing, relative, plainFile := o, o, o, o
	folder.CLI, missing.CLI, relative.CLI, plainFile.CLI = o.State, "/nonexistent/devcontainer", "devcontainer", o.Approval.Location().Config
	equals := o
	folderWithEquals := filepath.Join(t.TempDir(), "a=b")
	devtest.Write(t, folderWithEquals, ".devcontainer.json", `{"image": "x"}`)
	equals.Approval = approve(t, trust.NewStore(t.TempDir(), nil, compose.Options{}),
		devtest.Locate(t, folderWithEquals))
	none := o
	none.CLI = ""
	for name, test := range map[string]struct {
		options Options
		code    dray.Code
	}{
		"untrusted":   {untrusted, dray.CodeWorkspaceUntrusted},
		"equals sign": {equals, dray.CodeContainerFailed},
		"no CLI":      {none, dray.CodeHelperMissing},
		"missing CLI": {missing, dray.CodeHelperMissing},
		"relative":    {relative, dray.CodeHelperMissing},
		"folder":      {folder, dray.CodeHelperMissing},
		"no program":  {plainFile, dray.CodeHelperMissing},
	} {
		_, err := Run(t.Context(), test.options, new(heard).progress)
		if dray.CodeOf(err) != test.code || dray.AsError(err).Hint == "" {
			t.Errorf("%s: %v (%s)", name, err, dray.CodeOf(err))
		}
	}
}

func TestUpCommandLine(t *testing.T) {
	o := fakeUp(t, `
printf '%s\n' "$@" >args; cp "$9" pinned; pwd >>args; env >>args
echo '{"outcome":"success","containerId":"c1","remoteUser":"u","remoteWorkspaceFolder":"/w"}'`)
	o.ExtraArgs, o.Env = []string{"--buildkit", "never"}, append(o.Env, "DOCKER_HOST=x")
	got, err := Run(t.Context(), o, new(heard).progress)
	if want := (Result{"c1", "u", "/w"}); err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
	loc := o.Approval.Location()
	args, err := os.ReadFile(filepath.Join(loc.Workspace, "args"))
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(args), "--override-config\n")
	pinned, after, _ := strings.Cut(after, "\n--user-data-folder\n")
	data, after, _ := strings.Cut(after, "\n")
	if want := fmt.Sprintf("up\n--log-format\njson\n--workspace-folder\n%s\n--config\n%s\n",
		loc.Workspace, loc.Config); before != want {
		t.Errorf("arguments %q, want %q", before, want)
	}
	want := "--no-lockfile\n--buildkit\nnever\n" +
		loc.Workspace + "\n"
	if !strings.HasPrefix(after, want) || !strings.Contains(after, "DOCKER_HOST=x\n") ||
		strings.Contains(after, "HOME=") {
		t.Errorf("arguments, folder and environment %q, want %q first", after, want)
	}
	if info, err := os.Stat(data); !strings.HasPrefix(data, o.State+"/") || err != nil ||
		info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of compose files %s: %v, %v", data, info, err)
	}
	if _, err := os.Stat(pinned); !strings.HasPrefix(pinned, o.State+"/run/") || !linux.IsAbsent(err) {
		t.Errorf("the pinned configuration %s is left: %v", pinned, err)
	}
	content, err := os.ReadFile(filepath.Join(loc.Workspace, "pinned"))
	if err != nil || !strings.Contains(string(content), `"image":"x"`) {
		t.Errorf("pinned %s, %v", content, err)
	}
	devtest.Write(t, filepath.Dir(loc.Config), "devcontainer-lock.json", "{}")
	if slices.Contains(o.command(runDirs{}, false).Argv, "--no-lockfile") {
		t.Error("a lock file is ignored")
	}
}

// The log of the CLI and of the programs that it runs may be long, mixed and hostile.
func TestUpProgress(t *testing.T) {
	o := fakeUp(t, `
e() { printf '%s\n' "$1" >&2; }
e '{"type":"start","level":2,"text":"Run: git rev-parse --show-cdup"}'
e '{"type":"start","level":3,"text":"Run: /usr/bin/docker pull image"}'
e 'not JSON at all'
e '    at Object.stack (trace.js:1)'
e '{"type":"raw","level":3,"text":"10%\r100%\nnext \u001b[31mred\u001b[0m\u001b]0;x\u0007 line\n"}'
e '{"type":"raw","level":1,"text":"SECRET=1"}'
e '{"type":"text","level":1,"text":"SECRET=1"}'
e '{"type":"start","level":3,"text":"Run: docker run -e SECRET=1 image"}'
e '{"type":"text","level":3,"text":"Command failed: docker run -e SECRET=1\nSECRET image"}'
e '{"type":"start","level":3,"text":"Run: docker-compose -f x config"}'
e '{"type":"raw","level":3,"text":"invalid interpolation format: SECRET"}'
e '{"type":"stop","level":3,"text":"Run: docker-compose -f x config"}'
e '{"type":"text","level":3,"text":"services:\n  app:\n    environment: {A: SECRET}"}'
e '{"type":"start","level":3,"text":"Run: docker inspect x"}'
e '{"type":"raw","level":3,"text":"Running the onCreateCommand from devcontainer.json...\r\n\r\n"}'
e '{"type":"progress","name":"Running onCreateCommand...","status":"running","stepDetail":"make"}'
e '{"type":"raw","level":3,"text":"made\n"}'
e '{"type":"progress","name":"Running onCreateCommand...","status":"failed"}'
e '{"type":5,"level":"x"}'
e '[]'
head -c 3000000 /dev/zero | tr '\0' x >&2
e ''
printf '{"type":"raw","level":3,"text":"no newline"}' >&2
head -c 3000000 /dev/zero | tr '\0' x
echo
echo '{"outcome":"error","message":"Command failed: docker run -e SECRET=1 image","description":"It \u001b[1mfailed."}'
echo
exit 1`)
	var h heard
	_, err := Run(t.Context(), o, h.progress)
	want := []string{
		"pull: pulling the image image", "pull: 100%", "pull: next red line", "create: creating the container", "create: Command failed: docker run",
		"onCreateCommand: Running the onCreateCommand from devcontainer.json...", "onCreateCommand: make", "onCreateCommand: made", "onCreateCommand: failed",
		"onCreateCommand: no newline",
	}
	if !slices.Equal(h.lines, want) {
		t.Errorf("progress %q, want %q", h.lines, want)
	}
	if dray.CodeOf(err) != dray.CodeContainerFailed || len(err.Error()) > 1500 ||
		strings.Contains(err.Error(), "SECRET") {
		t.Errorf("error %q (%s)", err, dray.CodeOf(err))
	}
	for _, part := range []string{"It failed: Command failed: docker run\n", "made\n", "no newline"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("missing %q in %q", part, err)
		}
	}
	note, err := NewAttemptStore(o.State).Last(t.Context(), o.Approval.Location())
	if err != nil || !note.Failed() || len(note.Log) == 0 || len(note.Log) > maxLogTail ||
		strings.Contains(fmt.Sprint(note), "SECRET") {
		t.Errorf("noted %+v, %v", note, err)
	}
}

func TestUpWithoutResult(t *testing.T) {
	for script, want := range map[string]string{
		"exit 3":                       "exited with code 3 and without a result",
		"exit 0":                       "exited with code 0 and without a result",
		`echo '{"outcome":"success"}'`: "without a result",
		`echo '{"outcome":"success","containerId":"c"}'; exit 1`:     "exited with code 1",
		`echo '{"outcome":"error","message":"m","description":"m"}'`: "up failed: m",
		`echo '{"outcome":"error","message":"only"}'`:                "up failed: only",
		`echo "Unknown argument: what" >&2; exit 1`:                  "\nUnknown argument: what",
		`echo '[{"outcome":"success","containerId":"c"}]'`:           "without a result",
		`exec >&- 2>&-; exit 7`:                                      "exited with code 7",
	} {
		_, err := Run(t.Context(), fakeUp(t, script), new(heard).progress)
		if dray.CodeOf(err) != dray.CodeContainerFailed || !strings.Contains(err.Error(), want) ||
			dray.AsError(err).Hint == "" {
			t.Errorf("%s: %v (%s), want %q", script, err, dray.CodeOf(err), want)
		}
	}
	o := fakeUp(t, "")
	o.Start = func(context.Context, helper.Command) (helper.Running, error) { return nil, errors.New("no process") }
	if _, err := Run(t.Context(), o, new(heard).progress); err == nil ||
		!strings.Contains(err.Error(), "start the devcontainer CLI: no process") {
		t.Errorf("a CLI that does not start: %v", err)
	}
}

// A cancelled attempt ends the CLI and its descendants, and is recorded (EX-09).
func TestUpEndsWithItsContext(t *testing.T) {
	o := fakeUp(t, `echo '{"type":"raw","level":3,"text":"ready"}' >&2; sleep 1000 & sleep 1000`)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	h := heard{seen: func(string) { cancel(cause) }}
	_, err := Run(ctx, o, h.progress)
	if !errors.Is(err, cause) || dray.CodeOf(err) != dray.CodeContainerFailed {
		t.Errorf("got %v (%s)", err, dray.CodeOf(err))
	}
	note, err := NewAttemptStore(o.State).Last(t.Context(), o.Approval.Location())
	if note.EndedAt == nil || note.Failed() || !strings.Contains(note.Message, "enough") {
		t.Errorf("recorded %+v, %v", note, err)
	}
}

// Up replaces an incomplete container of a failed attempt, never a complete one.
func TestUpReplacesIncompleteContainer(t *testing.T) {
	const record = `case "$*" in *--remove-existing-container*) echo replaced >>runs;; *) echo kept >>runs;; esac; `
	o := fakeUp(t, record+`echo '{"outcome":"error","description":"d","containerId":"half"}'; exit 1`)
	failing := o.CLI
	succeeding := devtest.Write(t, t.TempDir(), "devcontainer", "#!/bin/sh\n"+record+`echo '{"outcome":"success","containerId":"new"}'`)
	if err := os.Chmod(succeeding, 0o700); err != nil {
		t.Fatal(err)
	}
	loc := o.Approval.Location()
	up := func(cli string, existing devcontainer.ContainerInfo) error {
		o.CLI, o.Container = cli, existing
		_, err := Run(t.Context(), o, new(heard).progress)
		return err
	}
	runs := func(want string) {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(loc.Workspace, "runs"))
		if err != nil || string(got) != want {
			t.Fatalf("runs %q, %v, want %q", got, err, want)
		}
		_ = os.Remove(filepath.Join(loc.Workspace, "runs"))
	}
	half := devcontainer.ContainerInfo{ID: "half", Created: time.Now().Add(time.Hour)}
	err := up(failing, devcontainer.ContainerInfo{})
	if hint := dray.AsError(err).Hint; !strings.Contains(hint, "incomplete") {
		t.Errorf("hint %q", hint)
	}
	_ = up(failing, half)
	runs("kept\nreplaced\n")
	if note, _ := NewAttemptStore(o.State).Last(t.Context(), loc); !note.Failed() ||
		!note.Incomplete(half) {
		t.Error("a container that failed twice counts as finished")
	}
	if err := up(succeeding, half); err != nil {
		t.Fatal(err)
	}
	if note, _ := NewAttemptStore(o.State).Last(t.Context(), loc); !note.Succeeded() {
		t.Error("a success is noted as a failure")
	}
	if err := up(succeeding, half); err != nil { // it was finished by then
		t.Fatal(err)
	}
	runs("replaced\nkept\n")

	err = up(failing, half) // something after its creation failed, for instance postStartCommand
	if strings.Contains(dray.AsError(err).Hint, "incomplete") {
		t.Errorf("hint %q", dray.AsError(err).Hint)
	}
	if err := up(succeeding, half); err != nil {
		t.Fatal(err)
	}
	runs("kept\nkept\n")
}

func TestAttemptIncomplete(t *testing.T) {
	start := time.Unix(1000, 0)
	end := start.Add(time.Minute)
	made := func(id string, after time.Duration) devcontainer.ContainerInfo {
		return devcontainer.ContainerInfo{ID: id, Created: start.Add(after)}
	}
	ended := Attempt{StartedAt: start, EndedAt: &end, Before: "before", Message: "failed"}
	reported := ended
	reported.Container = "left"
	lost := Attempt{StartedAt: start, Before: "before"} // the daemon ended with it
	for _, test := range []struct {
		name    string
		failure Attempt
		c       devcontainer.ContainerInfo
		want    bool
	}{
		{"no container", lost, devcontainer.ContainerInfo{}, false},
		{"the one before", lost, made("before", time.Second), false},
		{"made meanwhile", ended, made("x", time.Second), true},
		{"made afterwards", ended, made("x", time.Hour), false},
		{"made earlier", ended, made("x", -time.Second), false},
		{"reported", reported, made("left", -time.Hour), true},
		{"another than the reported, afterwards", reported, made("x", time.Hour), false},
		{"made in an attempt without an end", lost, made("x", time.Hour), true},
		{"made before an attempt without an end", lost, made("x", -time.Second), false},
	} {
		if got := test.failure.Incomplete(test.c); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
