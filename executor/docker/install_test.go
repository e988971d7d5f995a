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
)

var id = dray.ProcessSpec{Argv: []string{"id", "-u"}, Dir: "/"}

// removeVolume removes a volume at the end of the test, after the containers that use it.
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

// volumeOf returns the name of the volume in a result of Mount.
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

// The agent is in a volume of the container, which is read-only there.
func TestEnvironment_AgentInVolume(t *testing.T) {
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

// An agent of another protocol in the mounted directory is detected by its hello. The agent is then
// copied, or else the engine's exec is used, with a warning that says why (EX-15, EX-21).
func TestEnvironment_IncompatibleAgent(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	hello := `\016\022\002v9` // protocols 7 to 9, packed, and the version with its length
	script := "#!/bin/sh\nprintf 'DRAYWIRE\\005\\0\\0\\0\\0\\0\\0\\0\\1\\0" + hello +
		"'\ncat >/dev/null\n"
	name := fakeAgentVolume(t, e, []byte(script))
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
		warned := strings.Contains(strings.Join(caps.Warnings, " "),
			`the peer (version "v9") speaks protocols 7 to 9`)
		if want := map[bool]string{
			false: "agent",
			true:  "engine",
		}[readonly]; caps.Container.Transport != want || warned != readonly {
			t.Errorf("read-only %v: by %s, warnings %q", readonly, caps.Container.Transport, caps.Warnings)
		}
	}
}

// If the agent cannot be installed, the engine's exec is used, with a warning. A transport that
// needs the agent fails (EX-15).
func TestEnvironment_AgentNotInstallable(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	c := runContainer(t, e, debian, func(_ *container.Config, h *container.HostConfig) {
		h.ReadonlyRootfs = true
	})
	for range 2 { // the second time from the cache
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

// agentMount is the volume and the directory that Mount created.
type agentMount struct{ volume, dir string }

func mountFor(t *testing.T, e *docker.Engine, runDir, key string) agentMount {
	t.Helper()
	spec, err := e.Mount(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	m := agentMount{volume: volumeOf(t, spec)}
	m.dir = filepath.Join(runDir, m.volume)
	removeVolumeIfThere(t, m.volume)
	return m
}

func removeVolumeIfThere(t *testing.T, name string) {
	t.Helper()
	api := newAPI(t)
	t.Cleanup(func() {
		_, _ = api.VolumeRemove(context.Background(), name, client.VolumeRemoveOptions{Force: true})
	})
}

// exists reports whether the volume and the directory exist.
func (m agentMount) exists(t *testing.T) (volume, dir bool) {
	t.Helper()
	_, volumeErr := newAPI(t).VolumeInspect(t.Context(), m.volume, client.VolumeInspectOptions{})
	_, dirErr := os.Lstat(m.dir)
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

// The volume and the directory of an agent are removed with the container. Those of a container
// that exists, running or not, or that is being created, and those of another daemon are kept.
func TestWatch_CollectsGarbage(t *testing.T) {
	runDir, otherDir := t.TempDir(), t.TempDir()
	e := newEngineWith(t, docker.Options{Transport: docker.TransportStdio, RunDir: runDir})
	others := newEngineWith(t, docker.Options{Transport: docker.TransportStdio, RunDir: otherDir})
	unused, used := mountFor(t, e, runDir, "unused"), mountFor(t, e, runDir, "used")
	wanted := mountFor(t, e, runDir, "wanted")
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
	if err := os.RemoveAll(used.dir); err != nil {
		t.Fatal(err)
	}
	e.Watch()
	removed := func(m agentMount) func() bool {
		return func() bool { v, d := m.exists(t); return !v && !d }
	}
	eventually(t, "the unused volume is removed", removed(unused))
	eventually(t, "the directory of the used volume is restored",
		func() bool { v, d := used.exists(t); return v && d })
	if _, err := api.ContainerStart(t.Context(), c.ID, client.ContainerStartOptions{}); err != nil {
		t.Errorf("the container that uses the volume does not start: %v", err)
	}
	if _, err := api.ContainerRemove(t.Context(), c.ID,
		client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume is removed with its container", removed(used))
	for what, m := range map[string]agentMount{
		"one for a container that is being created": wanted,
		"another daemon's":                          other,
	} {
		if v, d := m.exists(t); !v || !d {
			t.Errorf("%s was removed: volume exists %v, directory %v", what, v, d)
		}
	}
}

// If the agent's directory was removed while the container runs, the agent is copied into the
// container, although the engine cannot copy into a container with a mount of a missing directory
// (EX-15).
func TestEnvironment_AgentDirRemoved(t *testing.T) {
	runDir := t.TempDir()
	e := newEngineWith(t, docker.Options{Transport: docker.TransportAuto, RunDir: runDir})
	m := mountFor(t, e, runDir, "removed")
	c := runContainer(t, e, debian, func(cfg *container.Config, h *container.HostConfig) {
		mounted(m.volume)(cfg, h)
		h.ReadonlyRootfs = false
	})
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	env := environment(t, e, c, agent.Spec{})
	if got := run(t, env, dray.ProcessSpec{Argv: []string{"id", "-u"}, Dir: "/"},
		""); got.stdout != "0\n" || env.Capabilities().Container.Transport != "agent" {
		t.Errorf("got %+v by %+v, warnings %q", got, env.Capabilities().Container, env.Capabilities().
			Warnings)
	}
}
