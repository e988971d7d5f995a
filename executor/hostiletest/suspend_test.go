package hostiletest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// suspendHelperArg makes this program a daemon with one call in a container.
const suspendHelperArg = "daemon-to-be-suspended"

// runSuspendHelper runs a tool in a container and prints the reason of its end.
func runSuspendHelper(container, path string) error {
	dir, err := os.MkdirTemp("", "dray-suspended-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	e, err := docker.NewEngine(docker.EndpointConfig{},
		docker.Options{
			RunDir: dir, Lease: shortLease, Transport: docker.TransportStdio, Version: "hostiletest",
			Log: zap.NewNop(),
		})
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	c, err := e.Inspect(ctx, container)
	if err != nil {
		return err
	}
	env, err := e.Environment(ctx, c, agent.Spec{WorkspaceFolder: "/"})
	if err != nil {
		return err
	}
	p, err := env.Start(ctx, dray.ProcessSpec{Argv: []string{path, "ignore-term"}, Dir: "/"})
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, p.Output(dray.Stderr)) }() // ends with the process
	if _, err := io.CopyN(os.Stdout, p.Output(dray.Stdout), int64(len("ready\n"))); err != nil {
		return err
	}
	_, err = p.Wait()
	fmt.Println(dray.NormalizeResult(dray.Result{}, err).Reason)
	return nil
}

// The agent ends the calls of a daemon that is stopped for longer than the lease, as on a suspended
// machine. When the daemon continues, it reports them as unavailable (EX-21).
func TestSuspendedPastTheLease(t *testing.T) {
	p := newTestContainer(t, "stdio", containerSpec{copies: 2})
	for range max(rounds(20)/5, 1) {
		tl := <-p.tools.stock
		cmd := exec.Command("/proc/self/exe", suspendHelperArg, p.box.id, p.path+"/"+tl.name)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(out)
		if line, err := said.ReadString('\n'); line != "ready\n" || len(tl.processes()) == 0 {
			t.Errorf("the helper printed %q, %v; %d processes run", line, err, len(tl.processes()))
		}
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, "the agent ends the calls of a stopped daemon",
			func() bool { return len(tl.processes()) == 0 })
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if line, err := said.ReadString('\n'); line != string(dray.ReasonUnavailable)+"\n" {
			t.Errorf("the daemon that continues reports %q, %v", line, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		p.tools.stock <- tl
	}
	p.works(t)
}
