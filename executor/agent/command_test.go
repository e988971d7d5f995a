package agent_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/executortest"
)

const workDir = "/tmp/work"

// An environment that reaches the agent by the stdin and stdout of a plain command, `docker exec
// -i`, passes the contract suite. It uses no package for an engine (EX-15).
func TestContract_PlainCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a container engine")
	}
	c := newCommandContainer(t)
	pool := agent.NewPool(agent.Config{
		Lease: 30 * time.Second, Version: "test",
		Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
	})
	t.Cleanup(pool.Close)
	env, err := pool.Environment(t.Context(), c, agent.Spec{
		User: "vscode", WorkspaceFolder: workDir, RemoteEnv: map[string]string{"FROM_REMOTE": "yes"},
	})
	if err != nil {
		t.Fatal(err)
	}
	executortest.Run(t, executortest.Harness{
		Environment: env, Dir: workDir,
		ID:    docker(t, "exec", "-u", "vscode", c.ID, "sh", "-c", "echo $(id -u) $(id -g) $(id -G)"),
		Set:   []string{"FROM_REMOTE=yes", "HOME=/home/vscode", "HOSTNAME=" + c.Hostname},
		Unset: []string{"PWD", "USER", "GOMAXPROCS"},
	})
}

// docker runs the docker CLI and returns its output without surrounding space.
func docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).Output()
	if err != nil {
		t.Fatalf("docker %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// newCommandContainer starts a container with the agent in it.
func newCommandContainer(t *testing.T) agent.Container {
	t.Helper()
	id := docker(t, "run", "-d", "--init", "--network", "none", "dray-test/debian:latest", "sleep",
		"1000000")
	t.Cleanup(func() { docker(t, "rm", "-f", id) })
	bin, err := agentbin.For(runtime.GOARCH)
	path := filepath.Join(t.TempDir(), "dray-agent")
	if err := errors.Join(err, os.WriteFile(path, bin.Data, 0o755)); err != nil {
		t.Fatal(err)
	}
	docker(t, "cp", "-q", path, id+":/dray-agent")
	docker(t, "exec", "-u", "vscode", id, "mkdir", workDir)
	access := commandAccess{id}
	now, err := access.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return agent.Container{
		ID: id, StartedAt: now.StartedAt, Hostname: id[:12], Access: access,
		Metadata: dray.ContainerMetadata{ID: id, Name: "by-command"},
	}
}

// commandAccess reaches a container with the docker CLI. It implements agent.Access.
type commandAccess struct{ id string }

func (a commandAccess) Start(_ context.Context, user string) (agent.Conn, error) {
	return startCommand("docker", "exec", "-i", "-u", user, a.id, "/dray-agent", "serve")
}

func (commandAccess) CgroupPath(int) (string, error) {
	return "", errors.New("the cgroup is not known")
}

func (a commandAccess) State(ctx context.Context) (agent.State, error) {
	out, err := exec.CommandContext(ctx, "docker", "inspect", "-f",
		"{{.State.Status}} {{.State.StartedAt}}", a.id).Output()
	status, started, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return agent.State{Running: status == "running", Status: status, StartedAt: started}, err
}

// command is the stdin and stdout of a running command.
type command struct {
	io.Writer
	io.Reader
	close func() error
}

func (c command) Close() error { return c.close() }

func (command) PID(context.Context) (int, error) { return 0, errors.New("the pid is not known") }

func (command) Stderr() string { return "" }

func startCommand(name string, args ...string) (agent.Conn, error) {
	cmd := exec.Command(name, args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	return command{stdin, stdout, sync.OnceValue(func() error {
		_ = stdin.Close() // the agent ends with its stdin
		_ = cmd.Process.Kill()
		return cmd.Wait()
	})}, err
}
