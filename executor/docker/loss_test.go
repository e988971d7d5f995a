package docker_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// killAgent is a script that kills the parent of its supervisor, the agent, and leaves a process.
const killAgent = "echo ready; setsid sleep 600 & read go; " +
	"kill -9 $(grep -h PPid /proc/$PPID/status | tr -dc 0-9); exec sleep 600"

// When a container stops or its agent is killed, the calls in flight end soon as unavailable, with
// a code that says which it was, and the next call works (EX-10, EX-14).
func TestProcess_LostOnSocket(t *testing.T) {
	api := newAPI(t)
	for name, c := range map[string]struct {
		lose, mend func(ctx context.Context, id string) error
		code       dray.Code
		says       string
	}{
		"restarted": {
			code: dray.CodeContainerUnavailable, says: "call was running",
			lose: func(ctx context.Context, id string) error {
				_, err := api.ContainerRestart(ctx, id, client.ContainerRestartOptions{Timeout: new(0)})
				return err
			},
		},
		"stopped": {
			code: dray.CodeContainerUnavailable, says: "exited",
			lose: func(ctx context.Context, id string) error {
				_, err := api.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: new(0)})
				return err
			},
			mend: func(ctx context.Context, id string) error {
				_, err := api.ContainerStart(ctx, id, client.ContainerStartOptions{})
				return err
			},
		},
		"paused": {
			code: dray.CodeContainerUnavailable, says: "paused",
			lose: func(ctx context.Context, id string) error {
				_, err := api.ContainerPause(ctx, id, client.ContainerPauseOptions{})
				return err
			},
			mend: func(ctx context.Context, id string) error {
				_, err := api.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
				return err
			},
		},
		"agent killed": {
			code: dray.CodeAgentLost, says: "lost",
			lose: func(context.Context, string) error { return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			// the lease, which would detect the loss later, must not
			e := newEngineWith(t, docker.Options{Transport: docker.TransportSocket, Lease: time.Hour})
			box := runContainer(t, e, debian, nil)
			env := environment(t, e, box, agent.Spec{})
			calls := []dray.Process{begin(t, env, "echo ready; exec sleep 600"), begin(t, env, killAgent)}
			if err := c.lose(t.Context(), box.ID); err != nil {
				t.Fatal(err)
			}
			if c.code == dray.CodeAgentLost {
				_, _ = calls[1].Stdin().Write([]byte("\n"))
			}
			begun := time.Now()
			for _, p := range calls {
				exit, err := p.Wait()
				if dray.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) ||
					dray.NormalizeResult(dray.Result{}, err).Reason != dray.ReasonUnavailable {
					t.Errorf("got %+v, %v (%s)", exit, err, dray.CodeOf(err))
				}
				if c.code == dray.CodeAgentLost && os.Getuid() == 0 && !exit.Survivors.Proven {
					t.Errorf("survivors are not proven by the cgroup: %+v", exit)
				}
			}
			if took := time.Since(begun); took > time.Minute { // usually less than a second
				t.Errorf("it took %s", took)
			}
			next(t, e, box.ID, c.mend)
		})
	}
}

// next makes another call in a container and waits until no process of earlier calls runs.
func next(t *testing.T, e *docker.Engine, id string,
	mend func(context.Context, string) error,
) dray.Process {
	t.Helper()
	if mend != nil {
		if err := mend(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	box, err := e.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	p := begin(t, environment(t, e, box, agent.Spec{}), "echo ready; exit 7")
	_ = p.Stdin().Close()
	if exit, err := p.Wait(); err != nil || exit.Code != 7 {
		t.Errorf("the next call: %+v, %v", exit, err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for left := commands(t, id); strings.Contains(left, "sleep 600"); left = commands(t, id) {
		if deadline.Err() != nil {
			t.Fatalf("still running: %s", left)
		}
	}
	return p
}

// The calls in a container that is removed end as unavailable (EX-10, EX-14).
func TestProcess_ContainerRemoved(t *testing.T) {
	e, api := newEngine(t, docker.TransportSocket), newAPI(t)
	box := runContainer(t, e, debian, nil)
	p := begin(t, environment(t, e, box, agent.Spec{}), "echo ready; exec sleep 600")
	if _, err := api.ContainerRemove(t.Context(), box.ID,
		client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); dray.CodeOf(err) != dray.CodeContainerUnavailable ||
		!strings.Contains(err.Error(), "while the call was running") {
		t.Errorf("got %v", err)
	}
}

// If no cgroup proves the end of a lost call, its survivors are unknown, and later calls in that
// start of the container have a warning (EX-10).
func TestWarnings_TaintedContainer(t *testing.T) {
	// there is no cgroup on stdio
	e, api := newEngine(t, docker.TransportStdio), newAPI(t)
	box := runContainer(t, e, debian, nil)
	p := begin(t, environment(t, e, box, agent.Spec{}), killAgent)
	_, _ = p.Stdin().Write([]byte("\n"))
	if exit, err := p.Wait(); dray.CodeOf(err) != dray.CodeAgentLost || exit.Survivors.Proven {
		t.Errorf("got %+v, %v", exit, err)
	}
	warned := func(p dray.Process) bool {
		said, ok := p.(interface{ Warnings() []string })
		return ok && slices.ContainsFunc(said.Warnings(),
			func(w string) bool { return strings.Contains(w, "of an earlier call may still run") })
	}
	if !warned(next(t, e, box.ID, nil)) {
		t.Error("the next call has no warning")
	}
	restart := func(ctx context.Context, id string) error {
		_, err := api.ContainerRestart(ctx, id, client.ContainerRestartOptions{Timeout: new(0)})
		return err
	}
	if warned(next(t, e, box.ID, restart)) {
		t.Error("a call after a restart has a warning")
	}
}

// Leftover processes that a call keeps run on when the agent is killed and when it is closed
// (EX-11).
func TestKeepLeftovers_OutliveAgent(t *testing.T) {
	e := newEngine(t, docker.TransportSocket)
	box := runContainer(t, e, debian, nil)
	env := environment(t, e, box, agent.Spec{User: "vscode"})
	p, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{
		"sh", "-c",
		"setsid sleep 4711 >/dev/null 2>&1 & setsid sleep 4712 >/dev/null 2>&1 & exit 3",
	}, Dir: "/", KeepLeftovers: true})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait()
	if err != nil || exit.Code != 3 || exit.Leftover != 2 || len(exit.KeptPIDs) != 2 {
		t.Fatalf("got %+v, %v", exit, err)
	}
	lost := begin(t, environment(t, e, box, agent.Spec{}), killAgent)
	_, _ = lost.Stdin().Write([]byte("\n"))
	if _, err := lost.Wait(); dray.CodeOf(err) != dray.CodeAgentLost {
		t.Errorf("got %v", err)
	}
	next(t, e, box.ID, nil)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if left := commands(t, box.ID); !strings.Contains(left, "sleep 4711") ||
		!strings.Contains(left, "sleep 4712") {
		t.Errorf("only these run: %s", left)
	}
}
