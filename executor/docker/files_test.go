package docker_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/executortest"
)

// channels are the options for each channel that carries a container's files.
var channels = map[string]docker.Options{
	"socket": {Transport: docker.TransportSocket},
	"stdio":  {Transport: docker.TransportStdio},
}

// forEachChannel runs a test in a container of its own for each channel.
func forEachChannel(t *testing.T, change containerChange, spec agent.Spec,
	test func(t *testing.T, env dray.Environment),
) {
	for name, opts := range channels {
		t.Run(name, func(t *testing.T) {
			e := newEngineWith(t, opts)
			c := runContainer(t, e, debian, change)
			test(t, environment(t, e, c, spec))
		})
	}
}

// Files of a container are the same over the socket and over stdio (SY-01, SY-02).
func TestFiles_EachChannel(t *testing.T) {
	const dir = "/tmp/work"
	forEachChannel(t, nil, agent.Spec{User: "vscode", WorkspaceFolder: dir},
		func(t *testing.T, env dray.Environment) {
			run(t, env, dray.ProcessSpec{Argv: []string{"mkdir", dir}, Dir: "/tmp"}, "")
			executortest.RunFilesOf(t, executortest.Harness{Environment: env, Dir: dir, Brief: true})
		})
}

// summary reads a tree and returns each entry with its content or the code of its refusal.
func summary(t *testing.T, env dray.Environment, root string, names ...string) []string {
	t.Helper()
	f, err := env.Files(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	tree, err := f.ReadTree(t.Context(), dray.ReadTreeOptions{Names: names})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	var all []string
	for {
		e, err := tree.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Refused != nil {
			all = append(all, e.Name+" "+string(e.Refused.Code))
			continue
		}
		content, err := io.ReadAll(tree)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Name+" "+strings.TrimSpace(string(content)))
	}
}

const writeFiles = `mkdir -p /srv/g && cd /srv/g && chmod 755 . && echo root >root && chmod 600 root && echo mine >mine && chown vscode mine && chmod 600 mine &&
echo group >group && chgrp audio group && chmod 640 group && echo all >all && mkdir shut && echo in >shut/in && chmod 700 shut && adduser vscode audio >/dev/null 2>&1 || usermod -aG audio vscode`

// Files are read with the uid and the groups of the call's user, by each channel (SY-09).
func TestFiles_CredentialsOfUser(t *testing.T) {
	want := map[string][]string{
		"vscode": {"g ", "g/all all", "g/group group", "g/mine mine", "g/root denied", "g/shut denied"},
		"daemon": {
			"g ", "g/all all", "g/group denied", "g/mine denied", "g/root denied",
			"g/shut denied",
		},
		"root": {
			"g ", "g/all all", "g/group group", "g/mine mine", "g/root root", "g/shut ",
			"g/shut/in in",
		},
	}
	for user, entries := range want {
		t.Run(user, func(t *testing.T) {
			forEachChannel(t, nil, agent.Spec{User: user},
				func(t *testing.T, env dray.Environment) {
					asRoot(t, env, writeFiles)
					if got := summary(t, env, "/srv", "g"); !slices.Equal(got, entries) {
						t.Errorf("got %q, want %q", got, entries)
					}
				})
		})
	}
}

// Root without capabilities reads only what its mode bits allow.
func TestFiles_RootWithoutCapabilities(t *testing.T) {
	dropped := func(_ *container.Config, h *container.HostConfig) {
		h.CapDrop = []string{"DAC_OVERRIDE", "DAC_READ_SEARCH"}
	}
	forEachChannel(t, dropped, agent.Spec{User: "root"},
		func(t *testing.T, env dray.Environment) {
			asRoot(t, env, `mkdir -m 755 /srv/g; cd /srv/g; echo 1 >theirs; chmod 600 theirs; chown vscode theirs; echo 2 >own; chmod 600 own`)
			if got, want := summary(t, env, "/srv", "g"), []string{
				"g ", "g/own 2",
				"g/theirs denied",
			}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
}

// asRoot runs a script as root in an environment's container.
func asRoot(t *testing.T, env dray.Environment, script string) {
	t.Helper()
	e := newEngine(t, docker.TransportEngine)
	c, err := e.Inspect(t.Context(), env.Capabilities().Container.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, environment(t, e, c, agent.Spec{User: "root"}),
		dray.ProcessSpec{Argv: []string{"sh", "-c", script}, Dir: "/"}, ""); got.exit.Code != 0 {
		t.Fatalf("got %+v", got)
	}
}

// If the container stops while its files are read, the error says so (SY-09).
func TestReadTree_ContainerKilled(t *testing.T) {
	for name, opts := range channels {
		t.Run(name, func(t *testing.T) {
			e := newEngineWith(t, opts)
			c := runContainer(t, e, debian, nil)
			env := environment(t, e, c, agent.Spec{User: "vscode"})
			run(t, env, dray.ProcessSpec{Argv: []string{"truncate", "-s", "64M", "/tmp/large"}, Dir: "/"},
				"")
			f, err := env.Files(t.Context(), "/tmp")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			tree, err := f.ReadTree(t.Context(), dray.ReadTreeOptions{Names: []string{"large"}})
			if err == nil {
				_, err = tree.Next()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tree.Close() }()
			if _, err := newAPI(t).ContainerKill(t.Context(), c.ID,
				client.ContainerKillOptions{}); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, tree); dray.CodeOf(err) != dray.CodeContainerUnavailable {
				t.Errorf("got %d bytes, %v (%s)", n, err, dray.CodeOf(err))
			}
		})
	}
}
