package docker_test

import (
	"bufio"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// A call in a container that does not run or exist fails with its state.
func TestEnvironment_NotRunning(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	api := newAPI(t)
	c := runContainer(t, e, busybox, nil)
	refuse := func(state string) {
		t.Helper()
		now, err := e.Inspect(t.Context(), c.ID)
		if err == nil {
			_, err = e.Environment(t.Context(), now, agent.Spec{})
		}
		if dray.CodeOf(err) != dray.CodeContainerUnavailable || !strings.Contains(err.Error(), state) ||
			dray.AsError(err).Hint == "" {
			t.Errorf("%s: got %v", state, err)
		}
	}
	if _, err := api.ContainerPause(t.Context(), c.ID, client.ContainerPauseOptions{}); err != nil {
		t.Fatal(err)
	}
	refuse("paused")
	if _, err := api.ContainerUnpause(t.Context(), c.ID,
		client.ContainerUnpauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ContainerKill(t.Context(), c.ID,
		client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	<-api.ContainerWait(t.Context(), c.ID,
		client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning}).Result
	refuse("exited")
	if _, err := e.Inspect(t.Context(),
		"dray-no-such-container"); dray.CodeOf(err) != dray.CodeContainerNotFound {
		t.Errorf("got %v", err)
	}
}

// A beginning that several ids share names no container, although the engine tries to complete it.
func TestInspect_AmbiguousID(t *testing.T) {
	e, api := newEngine(t, docker.TransportAuto), newAPI(t)
	seen := map[string]bool{}
	for { // at most 17 times, by the first digit of the id
		c, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{
			Config: &container.Config{Image: busybox, Cmd: []string{"true"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = api.ContainerRemove(context.Background(), c.ID, client.ContainerRemoveOptions{})
		})
		if seen[c.ID[:1]] {
			_, err := e.Inspect(t.Context(), c.ID[:1])
			if dray.CodeOf(err) != dray.CodeContainerNotFound || dray.AsError(err).Hint == "" {
				t.Errorf("got %v", err)
			}
			return
		}
		seen[c.ID[:1]] = true
	}
}

// begin starts a call and waits until it has printed a line.
func begin(t *testing.T, env dray.Environment, script string) dray.Process {
	t.Helper()
	p, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{"sh", "-c", script}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(p.Output(dray.Stdout)).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return p
}

// commands returns the processes of a container as the engine lists them.
func commands(t *testing.T, id string) string {
	t.Helper()
	top, err := newAPI(t).ContainerTop(t.Context(), id, client.ContainerTopOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range top.Processes {
		all = append(all, p[len(p)-1])
	}
	return strings.Join(all, "; ")
}

// A call in flight ends as unavailable when its container stops or its agent is killed, and the
// next call works (EX-14).
func TestProcess_LostOnStdio(t *testing.T) {
	api := newAPI(t)
	for name, c := range map[string]struct {
		user string
		lose func(t *testing.T, id string)
		tool string
		code dray.Code
	}{
		"restart": {
			tool: "echo ready; read go; exec sleep 600", code: dray.CodeContainerUnavailable,
			lose: func(t *testing.T, id string) {
				if _, err := api.ContainerRestart(t.Context(), id,
					client.ContainerRestartOptions{Timeout: new(0)}); err != nil {
					t.Fatal(err)
				}
			},
		},
		"the tool kills the agent": {
			tool: "echo ready; read go; kill -9 $(grep -h PPid /proc/$PPID/status | tr -dc 0-9); " +
				"exec sleep 600",
			code: dray.CodeAgentLost,
		},
		"the tool kills its supervisor": {
			tool: "echo ready; read go; setsid sleep 600 & kill -9 $PPID; exec sleep 600",
			code: dray.CodeAgentLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, docker.TransportStdio)
			box := runContainer(t, e, debian, nil)
			env := environment(t, e, box, agent.Spec{})
			p := begin(t, env, c.tool)
			if c.lose != nil {
				c.lose(t, box.ID)
			} else if _, err := p.Stdin().Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			exit, err := p.Wait()
			if dray.CodeOf(err) != c.code || dray.NormalizeResult(dray.Result{}, err).
				Reason != dray.ReasonUnavailable {
				t.Errorf("got %+v, %v (%s)", exit, err, dray.CodeOf(err))
			}
			if proven := name == "the tool kills its supervisor"; exit.Survivors.Proven != proven ||
				len(exit.Survivors.PIDs) != 0 {
				t.Errorf("survivors %+v, want proven %v", exit.Survivors, proven)
			}
			if box, err = e.Inspect(t.Context(), box.ID); err != nil {
				t.Fatal(err)
			}
			if got := run(t, environment(t, e, box, agent.Spec{}), id, ""); got.stdout != "0\n" {
				t.Errorf("the next call: %+v", got)
			}
			if left := commands(t, box.ID); strings.Contains(left, "sleep 600") {
				t.Errorf("still running: %s", left)
			}
		})
	}
}

// When the daemon closes its connection, all processes that it started in the container end (EX-09,
// EX-21).
func TestClose_EndsProcesses(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	box := runContainer(t, e, debian, nil)
	env := environment(t, e, box, agent.Spec{User: "vscode"})
	p := begin(t, env, `trap "" TERM; setsid sh -c 'setsid sleep 600 & exit'; echo ready; sleep 600`)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); dray.CodeOf(err) != dray.CodeShuttingDown {
		t.Errorf("got %v", err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for left := commands(t, box.ID); strings.Contains(left, "sleep 600") ||
		strings.Contains(left, "agent"); left = commands(t, box.ID) {
		if deadline.Err() != nil {
			t.Fatalf("still running: %s", left)
		}
	}
}

// The agent resolves users and additional groups as the engine does (EX-07).
func TestStart_UserForms(t *testing.T) {
	e := newEngine(t, docker.TransportStdio)
	plain := newEngine(t, docker.TransportEngine)
	c := runContainer(t, e, debian, func(_ *container.Config, h *container.HostConfig) {
		h.GroupAdd = []string{"4711", "audio"}
	})
	show := dray.ProcessSpec{
		Argv: []string{"sh", "-c", `echo $(id -u) $(id -g) $(id -G) $HOME`}, Dir: "/",
	}
	for _, user := range []string{
		"", "root", "vscode", "1000", "4242", "vscode:audio", "vscode:33",
		"0:33", "4242:4243", "nobody",
	} {
		got := run(t, environment(t, e, c, agent.Spec{User: user}), show, "").stdout
		want := run(t, environment(t, plain, c, agent.Spec{User: user}), show, "").stdout
		if got != want {
			t.Errorf("user %q: %q with the agent, %q with the engine", user, got, want)
		}
	}
	for _, transport := range []*docker.Engine{e, plain} {
		for _, user := range []string{"no-such-user", "vscode:no-such-group"} {
			env := environment(t, transport, c, agent.Spec{User: user})
			if _, err := env.Start(t.Context(), show); dray.CodeOf(err) != dray.CodeBadUser {
				t.Errorf("user %q: got %v", user, err)
			}
		}
	}
}

// The user's shell is probed once, and again after its startup files changed. What it prints is not
// exported, and cat is not needed (EX-07).
func TestStart_Probe(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	c := runContainer(t, e, debian, nil)
	root := environment(t, e, c, agent.Spec{})
	env := environment(t, e, c, agent.Spec{User: "vscode", Probe: "loginInteractiveShell"})
	ask := dray.ProcessSpec{Argv: []string{"sh", "-c", `echo "$PROBED $BANNER"`}, Dir: "/"}
	run(t, root, dray.ProcessSpec{Argv: []string{"sh", "-c", "rm /bin/cat"}, Dir: "/"}, "")
	rc := func(script string) {
		t.Helper()
		run(t, root, dray.ProcessSpec{Argv: []string{
			"sh", "-c",
			"tee /home/vscode/.bashrc /home/vscode/.profile >/dev/null; rm -f /home/vscode/.bash_profile",
		}, Dir: "/"}, script)
	}
	for _, want := range []string{"one", "two and more"} {
		rc("echo welcome; printf 'BANNER=evil\\000'; export PROBED='" + want + "'\n")
		if got := run(t, env, ask, ""); got.stdout != want+" \n" {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
	rc("sleep 600\n")
	p, err := env.Start(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Stdin().Close()
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	process, ok := p.(interface{ Warnings() []string })
	if !ok || len(process.Warnings()) != 1 ||
		!strings.Contains(process.Warnings()[0], "longer than 10s") {
		t.Errorf("no warning of a slow shell: %v", p)
	}
	if left := commands(t, c.ID); strings.Contains(left, "sleep 600") {
		t.Errorf("still running: %s", left)
	}
}
