package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/enginetest"
)

// oldVolume is what earlier versions made for each container: a directory, and a volume that binds
// it.
type oldVolume struct{ name, dir string }

func newOldVolume(t *testing.T, runDir, name string) oldVolume {
	t.Helper()
	v := oldVolume{name: "dray-agent-" + strings.ReplaceAll(t.Name(), "/", "-") + name}
	v.dir = filepath.Join(runDir, v.name)
	if err := os.MkdirAll(v.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	api := newAPI(t)
	if _, err := api.VolumeCreate(t.Context(), client.VolumeCreateOptions{
		Name: v.name, Driver: "local", Labels: map[string]string{"dev.dray.agent": "1"},
		DriverOpts: map[string]string{"type": "none", "o": "bind,ro", "device": v.dir},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = api.VolumeRemove(context.Background(), v.name, client.VolumeRemoveOptions{Force: true})
	})
	return v
}

func (v oldVolume) mounted(_ *container.Config, h *container.HostConfig) {
	h.Mounts = append(h.Mounts,
		mount.Mount{Type: mount.TypeVolume, Source: v.name, Target: "/.dray"})
}

func (v oldVolume) exists(t *testing.T) (volume, dir bool) {
	t.Helper()
	_, volumeErr := newAPI(t).VolumeInspect(t.Context(), v.name, client.VolumeInspectOptions{})
	_, dirErr := os.Lstat(v.dir)
	return volumeErr == nil, dirErr == nil
}

// eventually polls until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for giveUp := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(giveUp) {
			t.Fatalf("%s: not after 20 s", what)
		}
	}
}

// stopped creates a container that mounts v, stops it and removes the directory.
func (v oldVolume) stopped(t *testing.T, e *docker.Engine, removed string) string {
	t.Helper()
	c := runContainer(t, e, busybox, v.mounted)
	if _, err := newAPI(t).ContainerStop(t.Context(), c.ID,
		client.ContainerStopOptions{Timeout: new(0)}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(removed); err != nil {
		t.Fatal(err)
	}
	if err := start(t, c.ID); err == nil {
		t.Fatal("the container starts without the directory: the test tests nothing")
	}
	return c.ID
}

func start(t *testing.T, id string) error {
	t.Helper()
	_, err := newAPI(t).ContainerStart(t.Context(), id, client.ContainerStartOptions{})
	return err
}

// Other daemons of this machine repair the containers of its engine too, so these tests have their
// own.
func TestOldVolumes(t *testing.T) {
	own := enginetest.Start(t, enginetest.Options{})
	t.Setenv("DOCKER_HOST", own.Host())
	t.Run("Sweep", sweepOldVolumes)
	t.Run("Restore", restore)
	t.Run("Running", oldDirRemoved)
}

// The volumes of earlier versions are removed with their containers, also if that happened while no
// daemon ran, or if the state directory was moved or removed. The missing directory of a container
// that exists is created, so that it starts (EX-22).
func sweepOldVolumes(t *testing.T) {
	runDir, otherDir, gone := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "state")
	e := newEngineWith(t, docker.Options{Transport: docker.TransportStdio, RunDir: runDir})
	unused, other := newOldVolume(t, runDir, "unused"), newOldVolume(t, otherDir, "other")
	lost := newOldVolume(t, gone+"/run", "lost")
	used, moved := newOldVolume(t, runDir, "used"), newOldVolume(t, gone+"/run", "moved")
	usedID, movedID := used.stopped(t, e, used.dir), moved.stopped(t, e, gone)
	e.Watch()
	removed := func(v oldVolume) func() bool {
		return func() bool { volume, dir := v.exists(t); return !volume && !dir }
	}
	present := func(v oldVolume) func() bool {
		return func() bool { volume, dir := v.exists(t); return volume && dir }
	}
	eventually(t, "the unused volume is removed", removed(unused))
	eventually(t, "the unused volume of a lost state directory is removed", removed(lost))
	for id, v := range map[string]oldVolume{usedID: used, movedID: moved} {
		eventually(t, "the directory of a used volume is created", present(v))
		if err := start(t, id); err != nil {
			t.Errorf("the container does not start: %v", err)
		}
		if _, err := newAPI(t).ContainerRemove(t.Context(), id,
			client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the volume is removed with its container", removed(used))
	if !present(other)() {
		t.Error("the volume of another daemon was removed")
	}
}

// Restore makes a container of an earlier version startable, or says what to do (EX-22).
func restore(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	e := newEngine(t, docker.TransportStdio)
	v := newOldVolume(t, state+"/run", "")
	id := v.stopped(t, e, state)
	if err := os.WriteFile(state, nil, 0o600); err != nil { // so that it cannot be created
		t.Fatal(err)
	}
	err := e.Restore(t.Context(), id)
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeContainerUnavailable ||
		!strings.Contains(e.Message, v.dir) || !strings.Contains(e.Hint, "docker rm ") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	if err := e.Restore(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := start(t, id); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state directory: %v, %v", info, err)
	}
	if err := e.Restore(t.Context(), runContainer(t, e, busybox, nil).ID); err != nil {
		t.Errorf("a container without a volume: %v", err)
	}
}

// The agent runs in a container whose mounted directory was removed, although the engine cannot
// copy into such a container (EX-15, EX-22).
func oldDirRemoved(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportStdio} {
		t.Run(string(transport), func(t *testing.T) {
			runDir := t.TempDir()
			e := newEngineWith(t, docker.Options{Transport: transport, RunDir: runDir})
			v := newOldVolume(t, runDir, string(transport))
			c := runContainer(t, e, debian, v.mounted)
			if err := os.RemoveAll(v.dir); err != nil {
				t.Fatal(err)
			}
			env := environment(t, e, c, agent.Spec{})
			if got := run(t, env, id, ""); got.stdout != "0\n" ||
				env.Capabilities().Container.Channel != string(transport) {
				t.Errorf("got %+v by %+v", got, env.Capabilities().Container)
			}
		})
	}
}
