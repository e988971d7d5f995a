package docker_test

import (
	"context"
	"fmt"
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
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/docker"
)

var id = dray.ProcessSpec{Argv: []string{"id", "-u"}, Dir: "/"}

// removeVolume removes a volume that a test made, after the containers that use it.
func removeVolume(t testing.TB, name string) {
	t.Helper()
	api := newAPI(t)
	t.Cleanup(func() {
		if _, err := api.VolumeRemove(context.Background(), name,
			client.VolumeRemoveOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// volumeOf is the name in what Mount gives.
func volumeOf(t testing.TB, spec string) string {
	t.Helper()
	_, rest, ok := strings.Cut(spec, "source=")
	name, _, _ := strings.Cut(rest, ",")
	if !ok || name == "" {
		t.Fatalf("no volume in %q", spec)
	}
	return name
}

func mounted(name string) func(*container.Config, *container.HostConfig) {
	return func(_ *container.Config, h *container.HostConfig) {
		h.ReadonlyRootfs = true // nothing can be copied there
		h.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: "/.dray"}}
	}
}

// The agent lies in a volume of the container's own, which nobody in there can write.
func TestPlacedByVolume(t *testing.T) {
	e := newEngineWith(t, docker.Options{Transport: docker.TransportStdio})
	spec, err := e.Mount(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	name := volumeOf(t, spec)
	removeVolume(t, name)
	c := runContainer(t, e, debian, mounted(name))
	env := environment(t, e, c, agent.Spec{})
	if got := run(t, env, id, ""); got.stdout != "0\n" || env.Capabilities().
		Container.Transport != "agent" {
		t.Errorf("got %+v by %+v", got, env.Capabilities().Container)
	}
	got := run(t, env, dray.ProcessSpec{Argv: []string{
		"sh", "-c",
		"ls /.dray; touch /.dray/x; rm -f /.dray/*; ls /.dray",
	}, Dir: "/"}, "")
	if names := strings.Fields(got.stdout); len(names) != 2 || names[0] != names[1] ||
		!strings.Contains(got.stderr, "Read-only") {
		t.Errorf("got %+v", got)
	}
}

// EX-15, EX-21: an agent of another time in our place is told by its protocols; where a copy can be
// made it is used, where not the engine's exec is, and says why.
func TestAgentOfAnotherTime(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	spec, err := e.Mount(t.Context(), t.Name()) // makes the folder that the engine looks for
	if err != nil {
		t.Fatal(err)
	}
	api := newAPI(t)
	if _, err := api.VolumeRemove(t.Context(), volumeOf(t, spec),
		client.VolumeRemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	bin, err := agentbin.For("amd64")
	if err != nil {
		t.Fatal(err)
	}
	fake := t.TempDir()
	hello := `\016\022\002v9` // protocols 7 to 9, packed, and the version with its length
	script := fmt.Sprintf("#!/bin/sh\nprintf 'DRAYWIRE\\005\\0\\0\\0\\0\\0\\0\\0\\1\\0%s'\ncat >/dev/null\n", hello)
	if err := os.WriteFile(filepath.Join(fake, "agent-"+bin.Digest), []byte(script),
		0o755); err != nil {
		t.Fatal(err)
	}
	name := volumeOf(t, spec)
	_, err = api.VolumeCreate(t.Context(), client.VolumeCreateOptions{
		Name: name, Driver: "local", DriverOpts: map[string]string{
			"type": "none", "o": "bind,ro",
			"device": fake,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	removeVolume(t, name)
	if err := os.Chmod(fake, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, readonly := range []bool{false, true} {
		c := runContainer(t, e, debian, func(cfg *container.Config, h *container.HostConfig) {
			mounted(name)(cfg, h)
			h.ReadonlyRootfs = readonly
		})
		env := environment(t, e, c, agent.Spec{})
		caps := env.Capabilities()
		if got := run(t, env, id, ""); got.stdout != "0\n" {
			t.Errorf("got %+v", got)
		}
		warned := strings.Contains(strings.Join(caps.Warnings, " "), `the peer (version "v9") speaks protocols 7 to 9`)
		if want := map[bool]string{
			false: "agent",
			true:  "engine",
		}[readonly]; caps.Container.Transport != want || warned != readonly {
			t.Errorf("read-only %v: by %s, warnings %q", readonly, caps.Container.Transport, caps.Warnings)
		}
	}
}

// EX-15: where no agent can be placed the engine's exec is used and says so; a transport that
// insists on the agent refuses.
func TestNoPlaceForTheAgent(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	c := runContainer(t, e, debian, func(_ *container.Config,
		h *container.HostConfig,
	) {
		h.ReadonlyRootfs = true
	})
	for range 2 { // the second time from memory
		env := environment(t, e, c, agent.Spec{})
		caps := env.Capabilities()
		if caps.Container.Transport != "engine" || caps.ExactSurvivors || len(caps.Warnings) != 1 ||
			!strings.Contains(caps.Warnings[0], "with its shell: \"mkdir") {
			t.Errorf("got %+v", caps)
		}
		if got := run(t, env, id, ""); got.stdout != "0\n" {
			t.Errorf("got %+v", got)
		}
	}
	strict := newEngine(t, docker.TransportStdio)
	_, err := strict.Environment(t.Context(), c, agent.Spec{})
	if dray.CodeOf(err) != dray.CodeContainerUnavailable ||
		!strings.Contains(dray.AsError(err).Hint, "agent.transport") {
		t.Errorf("got %v", err)
	}
}

// made is the volume and the folder that Mount made.
type made struct{ volume, folder string }

func mountFor(t *testing.T, e *docker.Engine, runDir, key string) made {
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

// What a container's agent needed goes with the container, and nothing else does: not what a
// container has, running or not, not what one is being made for, not another daemon's.
func TestTidy(t *testing.T) {
	runDir, otherDir := t.TempDir(), t.TempDir()
	e := newEngineWith(t, docker.Options{Transport: docker.TransportStdio, RunDir: runDir})
	others := newEngineWith(t, docker.Options{Transport: docker.TransportStdio, RunDir: otherDir})
	unused, used, wanted := mountFor(t, e, runDir, "unused"), mountFor(t, e, runDir,
		"used"), mountFor(t, e, runDir, "wanted")
	other := mountFor(t, others, otherDir, "other")
	for _, key := range []string{"unused", "used"} {
		e.Release(key)
	}
	others.Release("other")
	api := newAPI(t)
	c := runContainer(t, e, busybox, mounted(used.volume))
	if _, err := api.ContainerStop(t.Context(), c.ID,
		client.ContainerStopOptions{Timeout: new(0)}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(used.folder); err != nil {
		t.Fatal(err)
	}
	e.Watch()
	eventually(t, "the unused volume goes", func() bool { v, f := unused.there(t); return !v && !f })
	eventually(t, "the used volume's folder comes back",
		func() bool { v, f := used.there(t); return v && f })
	if _, err := api.ContainerStart(t.Context(), c.ID, client.ContainerStartOptions{}); err != nil {
		t.Errorf("the container that uses the volume does not start: %v", err)
	}
	if _, err := api.ContainerRemove(t.Context(), c.ID,
		client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume goes with its container",
		func() bool { v, f := used.there(t); return !v && !f })
	for what, m := range map[string]made{
		"one that a container is being made for": wanted,
		"another daemon's":                       other,
	} {
		if v, f := m.there(t); !v || !f {
			t.Errorf("%s is gone: volume there %v, folder %v", what, v, f)
		}
	}
}

// EX-15: a container whose agent folder was removed while it ran gets a copy of the agent, although
// the engine cannot copy into a container with a mount that leads nowhere.
func TestFolderGone(t *testing.T) {
	runDir := t.TempDir()
	e := newEngineWith(t, docker.Options{Transport: docker.TransportAuto, RunDir: runDir})
	m := mountFor(t, e, runDir, "gone")
	c := runContainer(t, e, debian, func(cfg *container.Config, h *container.HostConfig) {
		mounted(m.volume)(cfg, h)
		h.ReadonlyRootfs = false
	})
	if err := os.RemoveAll(m.folder); err != nil {
		t.Fatal(err)
	}
	env := environment(t, e, c, agent.Spec{})
	if got := run(t, env, dray.ProcessSpec{Argv: []string{"id", "-u"}, Dir: "/"},
		""); got.stdout != "0\n" || env.Capabilities().Container.Transport != "agent" {
		t.Errorf("got %+v by %+v, warnings %q", got, env.Capabilities().Container, env.Capabilities().
			Warnings)
	}
}
