package container_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	dc "github.com/dray-dev/dray/executor/container"
)

// made is the volume and the folder that Mount made.
type made struct{ volume, folder string }

func mountFor(t *testing.T, e *dc.Engine, runDir, key string) made {
	t.Helper()
	spec, err := e.Mount(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	m := made{volume: volumeOf(t, spec)}
	m.folder = filepath.Join(runDir, m.volume)
	removeVolumeIfThere(t, m.volume)
	return m
}

func removeVolumeIfThere(t *testing.T, name string) {
	t.Helper()
	api := newAPI(t)
	t.Cleanup(func() { _, _ = api.VolumeRemove(context.Background(), name, client.VolumeRemoveOptions{Force: true}) })
}

func (m made) there(t *testing.T) (volume, folder bool) {
	t.Helper()
	_, volumeErr := newAPI(t).VolumeInspect(t.Context(), m.volume, client.VolumeInspectOptions{})
	_, folderErr := os.Lstat(m.folder)
	return volumeErr == nil, folderErr == nil
}

// eventually waits for what a watch brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for giveUp := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(giveUp) {
			t.Fatalf("%s: it does not come about", what)
		}
	}
}

// What a container's agent needed goes with the container, and nothing else does: not what a container has, running or not, not what one is
// being made for, not another daemon's.
func TestTidy(t *testing.T) {
	runDir, otherDir := t.TempDir(), t.TempDir()
	e := newEngineWith(t, dc.Options{Transport: dc.TransportStdio, RunDir: runDir})
	others := newEngineWith(t, dc.Options{Transport: dc.TransportStdio, RunDir: otherDir})
	unused, used, wanted := mountFor(t, e, runDir, "unused"), mountFor(t, e, runDir, "used"), mountFor(t, e, runDir, "wanted")
	other := mountFor(t, others, otherDir, "other")
	for _, key := range []string{"unused", "used"} {
		e.Release(key)
	}
	others.Release("other")
	api := newAPI(t)
	c := runContainer(t, e, busybox, mounted(used.volume))
	if _, err := api.ContainerStop(t.Context(), c.ID, client.ContainerStopOptions{Timeout: new(0)}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(used.folder); err != nil {
		t.Fatal(err)
	}
	watch := e.Watch(t.Context())
	defer watch.Close()
	eventually(t, "the unused volume goes", func() bool { v, f := unused.there(t); return !v && !f })
	eventually(t, "the used volume's folder comes back", func() bool { v, f := used.there(t); return v && f })
	if _, err := api.ContainerStart(t.Context(), c.ID, client.ContainerStartOptions{}); err != nil {
		t.Errorf("the container that uses the volume does not start: %v", err)
	}
	if _, err := api.ContainerRemove(t.Context(), c.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume goes with its container", func() bool { v, f := used.there(t); return !v && !f })
	for what, m := range map[string]made{"one that a container is being made for": wanted, "another daemon's": other} {
		if v, f := m.there(t); !v || !f {
			t.Errorf("%s is gone: volume there %v, folder %v", what, v, f)
		}
	}
}

// EX-15: a container whose agent folder was removed while it ran gets a copy of the agent, although the engine cannot copy into a container
// with a mount that leads nowhere.
func TestFolderGone(t *testing.T) {
	runDir := t.TempDir()
	e := newEngineWith(t, dc.Options{Transport: dc.TransportAuto, RunDir: runDir})
	m := mountFor(t, e, runDir, "gone")
	c := runContainer(t, e, debian, func(cfg *container.Config, h *container.HostConfig) {
		mounted(m.volume)(cfg, h)
		h.ReadonlyRootfs = false
	})
	if err := os.RemoveAll(m.folder); err != nil {
		t.Fatal(err)
	}
	env := environment(t, e, dc.EnvironmentSpec{Container: c})
	if got := run(t, env, dray.ProcessSpec{Argv: []string{"id", "-u"}, Dir: "/"}, ""); got.stdout != "0\n" || env.Capabilities().Container.Transport != "agent" {
		t.Errorf("got %+v by %+v, warnings %q", got, env.Capabilities().Container, env.Capabilities().Warnings)
	}
}
