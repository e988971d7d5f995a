package docker_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/wire"
)

// stdio is the stdin and stdout of this program as a connection.
type stdio struct{ io.Reader }

func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { return nil }

// hostileAgent speaks the protocol and sends invalid replies. argv[0] selects the reply.
func hostileAgent() {
	if os.Getenv(oldAgent) != "" {
		// protocols 1 to 2, packed, and the version with its length
		const hello = "\x02\x04\x04v0.1 and whatever came then"
		_, _ = os.Stdout.WriteString("DRAYWIRE" +
			string([]byte{byte(len(hello)), 0, 0, 0, 0, 0, 0, 0, 1, 0}) + hello)
	} else {
		_ = wire.WriteHello(os.Stdout, wire.Hello{Version: "hostile", SwitchUser: true})
	}
	if _, err := wire.ReadHello(os.Stdin); err != nil {
		return
	}
	_ = wire.NewMux(stdio{os.Stdin}, wire.Config{
		MaxMessage: wire.MaxMessage, Lease: time.Minute,
		Accept: func(s *wire.Stream) {
			first, _ := s.Receive()
			var start wire.Start
			if wire.Decode(first, &start) != nil {
				return
			}
			lie(s, start.Argv[0])
		},
	}).Run()
}

// oldAgent is a variable that makes hostileAgent speak an earlier protocol.
const oldAgent = "DRAY_TEST_OLD_AGENT"

func lie(s *wire.Stream, what string) {
	started := wire.Reply{Started: &wire.Started{Warnings: []string{strings.Repeat("w", 100<<10)}}}
	replies := map[string][]wire.Reply{
		"silence": {},
		"code": {{Failed: &wire.Failed{
			Code:    "unauthorized",
			Message: strings.Repeat("m", 100<<10),
		}}},
		"nothing started": {{Exited: &wire.Exited{}}},
		"no end of file":  {started, {Exited: &wire.Exited{Code: 7, Proven: true}}},
		"never ends":      {started},
		"odd exit":        {started, {Exited: &wire.Exited{Code: 4711, Proven: true}}},
		"odd kept":        {started, {Exited: &wire.Exited{Proven: true, Leftover: 1, Kept: []int{-1}}}},
		"odd memory":      {started, {Exited: &wire.Exited{Proven: true, OOM: 9}}},
		"odd signal":      {started, {Exited: &wire.Exited{Signal: -9, Proven: true}}},
	}[what]
	for _, r := range replies {
		_ = s.Send(&r)
	}
	for { // all requests are ignored
		if _, err := s.Receive(); err != nil {
			return
		}
	}
}

// hostileContainer runs a container with the test binary in place of the agent.
func hostileContainer(t *testing.T, e *docker.Engine, changes ...containerChange,
) devcontainer.ContainerInfo {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	e.SetAgent(self)
	return runContainer(t, e, debian, all(changes...))
}

// An agent with invalid replies affects only its own calls: none blocks longer than its timeout,
// and none gets a code that an agent must not use.
func TestHostileAgent(t *testing.T) {
	e := newEngine(t, docker.TransportStdio)
	env := environment(t, e, hostileContainer(t, e), agent.Spec{})
	begin := func(what string, limit time.Duration) (dray.Process, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return env.Start(ctx, dray.ProcessSpec{Argv: []string{what}, Dir: "/"})
	}
	if _, err := begin("silence", 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: got %v", err)
	}
	for _, what := range []string{"code", "nothing started"} {
		if _, err := begin(what, time.Minute); dray.CodeOf(err) != dray.CodeAgentLost ||
			len(err.Error()) > 10000 {
			t.Errorf("%s: got %.200v (%s)", what, err, dray.CodeOf(err))
		}
	}
	for what, want := range map[string]dray.Code{
		"no end of file": "", "odd exit": dray.CodeAgentLost,
		"odd kept": dray.CodeAgentLost, "odd memory": dray.CodeAgentLost,
		"odd signal": dray.CodeAgentLost, "never ends": dray.CodeAgentLost,
	} {
		p, err := begin(what, time.Minute)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if what == "never ends" {
			p.Stop(0)
		}
		_, _ = io.Copy(io.Discard, p.Output(dray.Stdout))
		_, _ = io.Copy(io.Discard, p.Output(dray.Stderr))
		exit, err := p.Wait()
		if dray.CodeOf(err) != want || (want == "" && exit.Code != 7) ||
			(want != "" && exit.Survivors.Proven) {
			t.Errorf("%s: got %+v, %v", what, exit, err)
		}
	}
}

// An agent of an earlier protocol is detected by its hello. Calls use the engine's exec, with a
// warning that says why (EX-21).
func TestEnvironment_OldAgent(t *testing.T) {
	old := func(c *container.Config, _ *container.HostConfig) { c.Env = append(c.Env, oldAgent+"=1") }
	e := newEngine(t, docker.TransportAuto)
	env := environment(t, e, hostileContainer(t, e, old), agent.Spec{})
	got := env.Capabilities()
	if warnings := strings.Join(got.Warnings, "\n"); got.Container.Transport != "engine" ||
		!strings.Contains(warnings, "protocols 1 to 2, this side 7 to 7") ||
		!strings.Contains(warnings, "install") {
		t.Errorf("transport %s, warnings %q", got.Container.Transport, got.Warnings)
	}
	if got := run(t, env, dray.ProcessSpec{Argv: []string{"sh", "-c", "exit 7"}, Dir: "/"},
		""); got.exit.Code != 7 {
		t.Errorf("got %+v", got)
	}
}
