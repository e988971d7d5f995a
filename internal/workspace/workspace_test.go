package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

const plainConfig = `{"image": "` + busybox + `", "remoteEnv": {"GREETING": "%s", "FROM_HOST": "${localEnv:DRAY_TEST_X}"}, "userEnvProbe": "none"}`

// An untrusted workspace is not brought up. A trusted one is, once for all concurrent callers. Then
// changes of its configuration, trust and container take effect (RT-08, RT-09, PM-14).
func TestEnvironment_LifeOfWorkspace(t *testing.T) {
	w := newFixture(t, Config{LocalEnv: map[string]string{"DRAY_TEST_X": "configured"}})
	dir := w.project(fmt.Sprintf(plainConfig, "hello"))
	req := request{workspace: dir}
	_, err := w.env(req)
	wantCode(t, "untrusted", err, dray.CodeWorkspaceUntrusted)
	if n := len(w.containers(devcontainer.LabelFolder + "=" + dir)); n != 0 {
		t.Fatalf("an untrusted workspace has %d containers", n)
	}
	w.trustIt(dir)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := w.env(req); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	ids := w.containers(devcontainer.LabelFolder + "=" + dir)
	if len(ids) != 1 {
		t.Fatalf("20 callers created %d containers", len(ids))
	}
	if got := w.sh(req,
		"echo $GREETING $FROM_HOST; pwd"); got != "hello configured\n/workspaces/"+filepath.Base(dir) {
		t.Errorf("got %q", got)
	}
	env, err := w.env(req)
	if err != nil {
		t.Fatal(err)
	}
	if m := env.Capabilities().Mounts; len(m) == 0 ||
		m[0] != (dray.Mount{Host: dir, Container: "/workspaces/" + filepath.Base(dir)}) {
		t.Errorf("mounts are %+v", m)
	}
	if again, err := w.env(req); err != nil || again != env {
		t.Errorf("the environment is not cached: %v", err)
	}

	// the caller's value overrides the configured one
	if got := w.sh(request{workspace: dir, localEnv: map[string]string{"DRAY_TEST_X": "caller's"}},
		"echo $FROM_HOST"); got != "caller's" {
		t.Errorf("got %q", got)
	}

	// an edit takes effect at once and ends the trust: the container is used, without the variables of
	// the host
	w.write(dir, fmt.Sprintf(plainConfig, "edited"))
	if got := w.sh(req, "echo $GREETING:$FROM_HOST"); got != "edited:" {
		t.Errorf("after an edit: got %q", got)
	}
	if env, err = w.env(req); err != nil ||
		!strings.Contains(strings.Join(env.Capabilities().Warnings, " "), "DRAY_TEST_X") {
		t.Errorf("no warning: %q, %v", env.Capabilities().Warnings, err)
	}
	w.trustIt(dir)
	if got := w.sh(req, "echo $GREETING:$FROM_HOST"); got != "edited:configured" {
		t.Errorf("trusted again: got %q", got)
	}

	// so does a change of any other trust input, although the configuration is unchanged
	for _, change := range []func() error{
		func() error { return os.Mkdir(dir+"/.devcontainer", 0o755) },
		func() error { return os.WriteFile(dir+"/.devcontainer/post.sh", []byte("evil\n"), 0o755) },
		func() error { return os.WriteFile(dir+"/.devcontainer/post.sh", []byte("more\n"), 0o755) },
		func() error { return os.Mkdir(dir+"/.devcontainer/more", 0o755) },
		func() error {
			return os.WriteFile(dir+"/.devcontainer/more/Dockerfile", []byte("FROM evil\n"), 0o600)
		},
	} {
		w.trustIt(dir)
		if got := w.sh(req, "echo $FROM_HOST"); got != "configured" {
			t.Errorf("before the change: got %q", got)
		}
		w.settle(req)
		if err := change(); err != nil {
			t.Fatal(err)
		}
		loc, err := devcontainer.Locate(t.Context(), dir, "")
		if err != nil {
			t.Fatal(err)
		}
		trusted, _, _ := w.trust.IsTrusted(t.Context(), loc)
		if got := w.sh(req, "echo $FROM_HOST"); (got == "configured") != trusted {
			t.Errorf("after the change: got %q, trusted: %v", got, trusted)
		}
	}
	w.trustIt(dir)

	// a stopped container is started, and a removed one is created again
	if info, err := w.Run(t.Context(), ActionStop, dir, noProgress); err != nil ||
		info.State != Stopped {
		t.Errorf("got %+v, %v", info, err)
	}
	w.sh(req, "true")
	if now := w.containers(devcontainer.LabelFolder + "=" + dir); len(now) != 1 || now[0] != ids[0] {
		t.Errorf("after stop and start: %q, before %q", now, ids)
	}
	w.removeAll(devcontainer.LabelFolder + "=" + dir)

	w.retry(req)
	if now := w.containers(devcontainer.LabelFolder + "=" + dir); len(now) != 1 || now[0] == ids[0] {
		t.Errorf("after removal: %q, before %q", now, ids)
	}

	// a paused container stays paused
	id := w.containers(devcontainer.LabelFolder + "=" + dir)[0]
	w.docker("pause", id)
	_, _, err = w.resolve(t.Context(), req, noProgress)
	w.docker("unpause", id)
	wantCode(t, "paused", err, dray.CodeContainerUnavailable)

	// a container of another workspace is refused
	other := w.project(fmt.Sprintf(plainConfig, "other"))
	_, err = w.env(request{workspace: other, name: id})
	wantCode(t, "the container of another workspace", err, dray.CodeRouteConflict)
	if got := w.sh(request{workspace: dir, name: id}, "echo $GREETING"); got != "edited" {
		t.Errorf("its own container by id: got %q", got)
	}
	_, err = w.env(request{name: id[:12]})
	wantCode(t, "the beginning of an id", err, dray.CodeContainerNotFound)
}

// retry repeats a call until it succeeds: the events of the engine are received a moment later.
func (w fixture) retry(req request) {
	w.t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		var env dray.Environment
		if env, err = w.env(req); err == nil {
			var p dray.Process
			if p, err = env.Start(w.t.Context(), dray.ProcessSpec{Argv: []string{"true"}}); err == nil {
				_ = p.Stdin().Close()
				_, _ = p.Wait()
				return
			}
		}
	}
	w.t.Fatal(err)
}

// A failed `up` reports what failed. The files of one that was killed are removed at the start.
func TestUp_Fails(t *testing.T) {
	state := t.TempDir()
	left := filepath.Join(state, "run", "up-123", "devcontainer.json")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	w := newFixture(t, Config{State: state})
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of a killed up was not removed: %v", err)
	}
	dir := w.project(`{"image": "` + busybox + `", "postCreateCommand": "echo this is why; exit 7"}`)
	w.trustIt(dir)
	_, err := w.env(request{workspace: dir})
	if dray.CodeOf(err) != dray.CodeContainerFailed ||
		!strings.Contains(err.Error(), "postCreateCommand") {
		t.Errorf("got %v", err)
	}
}

// Containers are found by id, name and label.
func TestEnvironment_NamedContainers(t *testing.T) {
	w := newFixture(t, Config{Named: map[string]Named{
		"byid": {ID: "dray-ws-test-a"}, "bylabel": {Label: "dev.dray.test=ws"},
		"nolabel": {Label: "dev.dray.test=none"}, "absent": {ID: "dray-ws-test-none"},
		"space": {Workspace: "/some/where"},
	}})
	a := w.docker("run", "-d", "--name", "dray-ws-test-a", "--label", "dev.dray.test=ws", "--init",
		"--network", "none", busybox, "sleep", "1000000")
	t.Cleanup(func() {
		_, _ = w.api.ContainerRemove(context.Background(), a, client.ContainerRemoveOptions{Force: true})
	})
	for _, name := range []string{"byid", "bylabel", "dray-ws-test-a", a} {
		if got := w.sh(request{name: name}, "hostname"); got != a[:12] {
			t.Errorf("%s: got %q", name, got)
		}
	}
	_, err := w.env(request{name: "nolabel"})
	wantCode(t, "no container has the label", err, dray.CodeContainerNotFound)
	_, err = w.env(request{name: "absent"})
	wantCode(t, "no such container", err, dray.CodeContainerNotFound)
	_, err = w.env(request{name: "space", workspace: t.TempDir()})
	wantCode(t, "another workspace's name", err, dray.CodeRouteConflict)
	w.docker("kill", a)
	_, _, err = w.resolve(t.Context(), request{name: "byid"}, noProgress)
	wantCode(t, "a stopped container of no workspace", err, dray.CodeContainerUnavailable)
}

// A workspace below the root of a repository runs in its own directory, and paths of the whole
// repository are mapped.
func TestEnvironment_GitSubdirectory(t *testing.T) {
	w := newFixture(t, Config{})
	top := w.project("{}")
	dir := top + "/sub/app"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "init", "-q", top).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.write(dir, fmt.Sprintf(plainConfig, "sub"))
	t.Cleanup(func() { w.removeAll(devcontainer.LabelFolder + "=" + dir) })
	w.trustIt(dir)
	if got := w.sh(request{workspace: dir},
		"pwd"); got != "/workspaces/"+filepath.Base(top)+"/sub/app" {
		t.Errorf("got %q", got)
	}
	mounts, err := w.Mounts(t.Context(), dir, "")
	if err != nil || len(mounts) == 0 || mounts[0].Host != top {
		t.Errorf("got %+v, %v", mounts, err)
	}
}

// containers.NAME.service selects another service of the workspace's compose project.
func TestEnvironment_ComposeService(t *testing.T) {
	w := newFixture(t, Config{})
	dir := w.project(`{"image": "` + busybox + `", "workspaceFolder": "/", "userEnvProbe": "none"}`)
	run := func(labels ...string) string {
		args := []string{
			"run", "-d", "--init", "--network", "none", "--label",
			"com.docker.compose.project=" + filepath.Base(filepath.Dir(dir)),
		}
		for _, l := range labels {
			args = append(args, "--label", l)
		}
		id := w.docker(append(args, busybox, "sleep", "1000000")...)
		t.Cleanup(func() {
			_, _ = w.api.ContainerRemove(context.Background(), id,
				client.ContainerRemoveOptions{Force: true})
		})
		return id
	}
	app := run(devcontainer.LabelComposeService+"=app", devcontainer.LabelComposeNumber+"=1",
		devcontainer.LabelFolder+"="+dir,
		devcontainer.LabelConfig+"="+dir+"/.devcontainer.json")
	run(devcontainer.LabelComposeService+"=db", devcontainer.LabelComposeNumber+"=2")
	run(devcontainer.LabelComposeService+"=db", devcontainer.LabelComposeOneOff+"=True", devcontainer.LabelComposeNumber+"=0")
	db := run(devcontainer.LabelComposeService+"=db", devcontainer.LabelComposeNumber+"=1")
	w.cfg.Named = map[string]Named{
		"app": {Workspace: dir, Service: "app"}, "db": {Workspace: dir, Service: "db"},
		"missing": {Workspace: dir, Service: "missing"}, "plain": {Workspace: dir},
	}
	for name, want := range map[string]string{"app": app, "db": db, "plain": app} {
		if got := w.sh(request{name: name}, "hostname"); got != want[:12] {
			t.Errorf("%s: got %q, want %q", name, got, want[:12])
		}
	}
	_, err := w.env(request{name: "missing"})
	wantCode(t, "a missing service", err, dray.CodeContainerNotFound)
}

// The configuration decides no user of a running container before it is trusted, in calls and in
// the dry run (RT-09).
func TestUser_NeedsTrust(t *testing.T) {
	w := newFixture(t, Config{})
	config := func(text string) string { return `{"image": "` + busybox + `"` + text + `}` }
	dir := w.project(config(`, "remoteUser": "nobody"`))
	w.trustIt(dir)
	route := dray.Route{Workspace: dir}
	call := func() error {
		_, err := w.Environment(t.Context(), route, dray.Invocation{}, noProgress)
		checked := w.Check(t.Context(), route, dray.Invocation{}, false)
		if dray.CodeOf(err) != dray.CodeOf(checked) {
			t.Errorf("a call has the error %v, the dry run %v", err, checked)
		}
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"root":        config(`, "remoteUser": "root"`),
		"a uid":       config(`, "remoteUser": "0"`),
		"a group":     config(`, "remoteUser": "nobody:root"`),
		"a variable":  config(`, "remoteUser": "${localWorkspaceFolderBasename}"`),
		"another key": config(`, "remoteUser": "nobody", "remoteUser": "root"`),
	} {
		w.write(dir, text)
		err := call()
		wantCode(t, name, err, dray.CodeWorkspaceUntrusted)
		if dray.AsError(err).Hint == "" {
			t.Errorf("%s: no hint", name)
		}
	}
	// without the property it is the one of the container's label
	for _, text := range []string{config(""), config(`, "remoteUser": "nobody", "name": "x"`)} {
		w.write(dir, text)
		if err := call(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	w.write(dir, config(`, "remoteUser": "root"`))
	w.trustIt(dir)
	if err := call(); err != nil {
		t.Errorf("after trust: %v", err)
	}
}
