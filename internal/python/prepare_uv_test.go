package python

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/python/pep508"
)

const debianImage, busyboxImage = "dray-test/debian:latest", "dray-test/busybox:latest"

// uvContainer is a container with uv and an index of packages, without a network.
type uvContainer struct {
	id    string
	env   dray.Environment
	index string // on the host
}

// newUvContainer starts a container. args are options of `docker run`; they end with the image.
func newUvContainer(t *testing.T, user string, args ...string) *uvContainer {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine")
	}
	c := &uvContainer{index: writeIndex(t)}
	uv, err := filepath.Abs(cmp.Or(os.Getenv("DRAY_TEST_UV"), "../../.tools/uv/bin/uv"))
	if _, statErr := os.Stat(uv); err != nil || statErr != nil {
		t.Fatal("uv is missing: scripts/setup uv")
	}
	if len(args) == 0 {
		args = []string{debianImage}
	}
	c.start(t, user, append([]string{
		"-v", uv + ":/usr/local/bin/uv:ro", "-v", c.index + ":/srv/index:ro",
	}, args...)...)
	return c
}

func (c *uvContainer) start(t *testing.T, user string, args ...string) {
	t.Helper()
	c.id = dockerCLI(t, append([]string{"run", "-d", "--init", "--network", "none"},
		append(args, "sleep", "1000000")...)...)
	t.Cleanup(func() { dockerCLI(t, "rm", "-f", c.id) })
	engine, err := docker.NewEngine(docker.EndpointConfig{}, docker.Options{
		RunDir: t.TempDir(), Lease: 30 * time.Second, Version: "test",
		Log: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	info, err := engine.Inspect(t.Context(), c.id)
	if err == nil {
		c.env, err = engine.Environment(t.Context(), info, agent.Spec{User: user, WorkspaceFolder: "/"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func dockerCLI(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).Output()
	if err != nil {
		t.Fatalf("docker %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// shell runs a script in the container as a user.
func (c *uvContainer) shell(t testing.TB, user, script string) string {
	t.Helper()
	return dockerCLI(t, "exec", "-u", user, c.id, "sh", "-c", script)
}

var filePolicy = PreparePolicy{Index: "file:///srv/index"}

func (c *uvContainer) builder(policy PreparePolicy) builder {
	return builder{env: c.env, policy: policy, sink: &progressSink{}}
}

// progressSink records progress.
type progressSink struct {
	dray.Sink
	mu    sync.Mutex
	lines []string
}

func (s *progressSink) Progress(phase, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, phase+": "+message)
}

func (s *progressSink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func manifest(t testing.TB, packages ...string) Manifest {
	t.Helper()
	var m Manifest
	for _, text := range packages {
		r, err := pep508.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m = m.with([]pep508.Requirement{r})
	}
	return m
}

// tree lists the directory of environments and uv's own files are left out.
const listEnvironments = "cd /home/vscode/.cache/dray/python 2>/dev/null && " +
	"ls -A | grep -v -e ^uv$ -e ^lock$ || true"

// uv makes an environment in the container, with exactly the packages of the manifest: full
// specifiers are honoured, extras too. The same manifest is not built twice, and an environment
// that was changed is not used again (PY-14, PY-15).
func TestPrepareBuild(t *testing.T) {
	t.Parallel()
	c := newUvContainer(t, "vscode")
	b, progress := c.builder(filePolicy), &progressSink{}
	b.sink = progress
	m := manifest(t, "numpy<2", "pandas[excel]>=2")
	first, err := b.build(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	want := interpreter{Installed: map[string]string{
		"numpy": "1.26.4", "pandas": "2.2.3", "openpyxl": "3.1.5",
	}}
	if len(first.newerThan(want))+len(want.newerThan(first)) > 0 {
		t.Errorf("installed: %v", first.Installed)
	}
	for _, word := range []string{"resolve: Resolved 3 packages", "install: Installed 3 packages"} {
		if !strings.Contains(progress.text(), word) {
			t.Errorf("%q is missing in %s", word, progress.text())
		}
	}
	out := c.shell(t, "vscode", first.Executable+` -I -c "import sys, numpy, pandas, openpyxl
print(sys.prefix, numpy.__version__, sys.version.split()[0])"`)
	if want := first.Prefix + " 1.26.4 " + first.Version; out != want {
		t.Errorf("%q instead of %q", out, want)
	}
	again, progress := c.builder(filePolicy), &progressSink{}
	again.sink = progress
	second, err := again.build(t.Context(), m)
	if err != nil || second.Prefix != first.Prefix ||
		strings.Contains(progress.text(), "resolve") {
		t.Errorf("built again: %s, %v", second.Prefix, err)
	}
	c.shell(t, "vscode", "cd "+first.Prefix+"/lib/python3*/site-packages && mkdir more-1.0.dist-info")
	third, err := b.build(t.Context(), m)
	if err != nil || third.Prefix == first.Prefix || third.Installed["more"] != "" {
		t.Errorf("a changed environment is used: %+v, %v", third, err)
	}
	if owner := c.shell(t, "vscode", "stat -c '%U %a' "+filepath.Dir(first.Prefix)); owner != "vscode 700" {
		t.Errorf("the directory is of %s", owner)
	}
}

// What uv cannot install fails with a code and a hint, runs no code of a package, and leaves
// nothing (PY-15, PY-26).
func TestPrepareBuildFails(t *testing.T) {
	t.Parallel()
	c := newUvContainer(t, "vscode", "-e", "UV_HTTP_RETRIES=0", debianImage)
	for _, x := range []struct {
		m       Manifest
		policy  PreparePolicy
		code    dray.Code
		message string
	}{
		{manifest(t, "numpy>=99"), filePolicy, dray.CodeInvalidInput, "numpy>=99"},
		{manifest(t, "numpy"), PreparePolicy{Index: "file:///nowhere"}, dray.CodeInvalidInput, "numpy"},
		{manifest(t, "one", "two"), filePolicy, dray.CodeInvalidInput, "shared"},
		{manifest(t, "unknown-package"), filePolicy, dray.CodeInvalidInput, "unknown-package"},
		{manifest(t, "source"), filePolicy, dray.CodeInvalidInput, "source"},
		{Manifest{PythonVersion: "3.99"}, filePolicy, dray.CodeHelperMissing, "3.99"},
		{
			manifest(t, "numpy"),
			PreparePolicy{Index: "http://127.0.0.1:9/simple"},
			dray.CodeTransferFailed, "127.0.0.1:9",
		},
	} {
		_, err := c.builder(x.policy).build(t.Context(), x.m)
		e := dray.AsError(err)
		if e == nil || e.Code != x.code || !strings.Contains(e.Message, x.message) ||
			e.Hint == "" {
			t.Errorf("%v: %+v", x.m.Names(), e)
		}
		if left := c.shell(t, "vscode", listEnvironments); left != "" {
			t.Errorf("%v left %s", x.m.Names(), left)
		}
	}
	if canary := c.shell(t, "vscode", "cat /tmp/canary 2>/dev/null || true"); canary != "" {
		t.Errorf("code of a package ran: %s", canary)
	}
	builds := filePolicy
	builds.SourceBuilds = true
	if _, err := c.builder(builds).build(t.Context(), manifest(t, "source")); err != nil {
		t.Errorf("a source package with source_builds: %v", err)
	}
	if canary := c.shell(t, "vscode", "cat /tmp/canary"); !strings.Contains(canary, "built") {
		t.Errorf("with source_builds: %q", canary)
	}
}

// Prepare runs no code of the packages that it installs or finds, and takes no setting from the
// environment of the container (PY-26).
func TestPrepareRunsNoCodeOfPackages(t *testing.T) {
	t.Parallel()
	c := newUvContainer(t, "vscode",
		"-e", "UV_INDEX_URL=http://127.0.0.1:9/evil", "-e", "UV_DEFAULT_INDEX=http://127.0.0.1:9/evil",
		"-e", "UV_FIND_LINKS=/evil", "-e", "UV_CONFIG_FILE=/evil.toml", "-e", "UV_SYSTEM_PYTHON=1",
		"-e", "UV_CONSTRAINT=/evil.txt", "-e", "UV_NO_BINARY=1", "-e", "PYTHONPATH=/evil",
		"-e", "PYTHONSTARTUP=/evil.py", debianImage)
	c.shell(t, "vscode", `mkdir -p ~/.config/uv && echo 'index-url = "http://127.0.0.1:9/evil"' `+
		`>~/.config/uv/uv.toml && cp ~/.config/uv/uv.toml /tmp/uv.toml`)
	b := c.builder(filePolicy)
	made, err := b.build(t.Context(), manifest(t, "evil"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := b.probe(t.Context(), made.Executable)
	if err != nil || found.Installed["evil"] != "1.0" || found.Prefix != made.Prefix {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := b.build(t.Context(), manifest(t, "evil", "numpy")); err != nil {
		t.Error(err)
	}
	const read = "cat /tmp/canary 2>/dev/null || true"
	if canary := c.shell(t, "vscode", read); canary != "" {
		t.Errorf("prepare ran code of a package: %s", canary)
	}
	// the canary does work
	if canary := c.shell(t, "vscode", made.Executable+" -I -c pass; "+read); !strings.Contains(canary, "pth") {
		t.Errorf("the canary says %q", canary)
	}
}

// blockedBuild starts a build of the package slow, and returns when uv reads it.
func (c *uvContainer) blockedBuild(ctx context.Context, t *testing.T) <-chan error {
	t.Helper()
	return c.whenBlocked(t, func() error {
		_, err := c.builder(filePolicy).build(ctx, manifest(t, "slow"))
		return err
	})
}

// whenBlocked calls work, which installs the package slow, and returns when uv reads the index.
// That read never ends.
func (c *uvContainer) whenBlocked(t *testing.T, work func() error) <-chan error {
	t.Helper()
	dir := filepath.Join(c.index, "slow")
	fifo := filepath.Join(dir, "index.html")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = syscall.Mkfifo(fifo, 0o644)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- work() }()
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // blocks until uv opens it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return ended
}

// If uv is killed, or the call is cancelled, or its helper is killed, nothing is left: at once, or
// when prepare runs again (PY-15, PY-26).
func TestPrepareKilledAndCancelled(t *testing.T) {
	t.Parallel()
	c := newUvContainer(t, "vscode")
	ended := c.blockedBuild(t.Context(), t)
	c.shell(t, "root", "pkill -KILL -x uv")
	if e := dray.AsError(<-ended); e == nil || e.Code != dray.CodeTransferFailed {
		t.Errorf("uv was killed: %+v", e)
	}
	if left := c.shell(t, "vscode", listEnvironments); left != "" {
		t.Errorf("left by a killed uv: %s", left)
	}

	cause := errors.New("cancelled by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended = c.blockedBuild(ctx, t)
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	if left := c.shell(t, "vscode", listEnvironments+"; pgrep -x uv || true"); left != "" {
		t.Errorf("left by a cancelled call: %s", left)
	}

	ended = c.blockedBuild(t.Context(), t)
	c.shell(t, "root", "pkill -KILL -f '[M]akes virtual environments'")
	if e := dray.AsError(<-ended); e == nil || e.Code != dray.CodeTransferFailed {
		t.Errorf("the helper was killed: %+v", e)
	}
	if left := lines(c.shell(t, "vscode", listEnvironments)); len(left) != 1 {
		t.Errorf("left by a killed helper: %q", left)
	}
	made, err := c.builder(filePolicy).build(t.Context(), manifest(t, "numpy"))
	if left := c.shell(t, "vscode", listEnvironments); err != nil || left != filepath.Base(made.Prefix) {
		t.Errorf("after the next build: %q, %v", left, err)
	}
}

// Environments are made where the user may write: beneath the home, else in /var/tmp or /tmp. What
// belongs to another user, is mounted noexec or read-only is not used (PY-15).
func TestPreparePlaces(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, user, prefix string
		args               []string
		before             string
		hint               string
	}{
		{
			name: "root", user: "root", prefix: "/root/.cache/dray/python/",
			args: []string{debianImage},
		},
		{
			name: "read-only home", user: "vscode", prefix: "/var/tmp/dray-python-1000/",
			args: []string{"--tmpfs", "/home/vscode:ro", debianImage},
		},
		{
			name: "read-only image", user: "vscode", prefix: "/tmp/dray-python-1000/",
			args: []string{"--read-only", "--tmpfs", "/tmp:exec,mode=1777", debianImage},
		},
		{
			name: "a directory of another user", user: "vscode", prefix: "/tmp/dray-python-1000/",
			args:   []string{"--tmpfs", "/home/vscode:ro", debianImage},
			before: "mkdir -m 777 /var/tmp/dray-python-1000",
		},
		{
			name: "a symlink", user: "vscode", prefix: "/tmp/dray-python-1000/",
			args:   []string{"--tmpfs", "/home/vscode:ro", debianImage},
			before: "ln -s /srv /var/tmp/dray-python-1000",
		},
		{
			name: "no place", user: "vscode",
			args: []string{"--read-only", "--tmpfs", "/tmp:noexec,mode=1777", debianImage},
			hint: "XDG_CACHE_HOME",
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := newUvContainer(t, x.user, x.args...)
			if x.before != "" {
				c.shell(t, "root", x.before)
			}
			made, err := c.builder(filePolicy).build(t.Context(), manifest(t, "numpy"))
			if x.prefix != "" && (err != nil || !strings.HasPrefix(made.Prefix, x.prefix)) {
				t.Errorf("%+v, %v", made, err)
			}
			e := dray.AsError(err)
			if x.hint != "" && (e == nil || e.Code != dray.CodeDenied ||
				!strings.Contains(e.Hint, x.hint) || !strings.Contains(e.Message, "noexec")) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// Without uv or python3 the error says how to install them (PY-14).
func TestPrepareWithoutHelpers(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{debianImage: "uv", busyboxImage: "python3"} {
		if testing.Short() {
			t.Skip("needs a container engine")
		}
		c := &uvContainer{}
		c.start(t, "root", image)
		_, err := c.builder(filePolicy).build(t.Context(), DefaultManifest())
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeHelperMissing || !strings.Contains(e.Message, want) ||
			!strings.Contains(e.Hint, "install") {
			t.Errorf("%s: %+v", image, e)
		}
	}
}

// An interpreter is described by what it says, and refused if it is none, too old, or a liar
// (PY-15).
func TestPrepareProbe(t *testing.T) {
	t.Parallel()
	c := newUvContainer(t, "vscode")
	b := c.builder(filePolicy)
	system, err := b.probe(t.Context(), "")
	if err != nil || system.Executable != "/usr/bin/python3" || system.Prefix != "/usr" {
		t.Errorf("%+v, %v", system, err)
	}
	c.shell(t, "vscode", `python3 -m venv --without-pip --system-site-packages /tmp/venv`)
	c.shell(t, "root", `cd "$(python3 -c 'import site; print(site.getsitepackages()[0])')" && `+
		`mkdir global_one-1.dist-info`)
	venv, err := b.probe(t.Context(), "/tmp/venv/bin/python")
	if err != nil || venv.Prefix != "/tmp/venv" || venv.Installed["global-one"] != "1" {
		t.Errorf("%+v, %v", venv, err)
	}
	for name, script := range map[string]string{
		"no interpreter": "exit 0", "words": "echo hello", "exit code": "echo no >&2; exit 3",
		"python 2":  `echo "SyntaxError: invalid syntax" >&2; exit 1`,
		"flood":     "yes", // bounded by maxHelperOutput
		"long line": "yes | tr -d '\\n'",
		"old":       `echo '{"result": {"executable": "/p", "prefix": "/", "version": "3.8.1"}}'`,
		"too old":   `echo '{"error": {"kind": "too_old", "message": "Python 3.8"}}'`,
		"relative":  `echo '{"result": {"executable": "p", "prefix": "/", "version": "3.12.1"}}'`,
		"escape":    `printf '{"result": {"executable": "/p\\u001b", "prefix": "/", "version": "3.12.1"}}\n'`,
		"version":   `echo '{"result": {"executable": "/p", "prefix": "/", "version": "3.12.1 -r x"}}'`,
		"killed":    `kill -9 $$`,
	} {
		c.shell(t, "vscode", fmt.Sprintf("printf '#!/bin/sh\\n%%s\\n' %q >/tmp/liar && chmod +x /tmp/liar",
			strings.ReplaceAll(script, "$", `\$`)))
		found, err := b.probe(t.Context(), "/tmp/liar")
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeInvalidInput && name != "killed" || e.Hint == "" {
			t.Errorf("%s: %+v, %+v", name, found, e)
		}
	}
	if _, err := b.probe(t.Context(), "/nowhere"); dray.CodeOf(err) != dray.CodeExecutableNotFound {
		t.Error(err)
	}
}
