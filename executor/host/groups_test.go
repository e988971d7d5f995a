package host_test

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/executor/process/processtest"
)

// EX-09: a host tool can kill its supervisor, being the same user. Where the daemon may make groups it leaves nothing all the same, and
// that is proved.
func TestKilledSupervisor(t *testing.T) {
	launch, ungroup, err := host.WithCgroups(processtest.Launch())
	t.Cleanup(ungroup)
	if err != nil {
		t.Skipf("no groups here: %v", err)
	}
	pool := process.NewPool(launch)
	t.Cleanup(pool.Close)
	dir := folder(t)
	env := host.New(host.Config{Roots: []string{dir}, Homes: filepath.Join(dir, "homes")}, pool).Environment(dir)
	for range 20 {
		p, err := env.Start(t.Context(), dray.ProcessSpec{Argv: []string{
			"/bin/sh", "-c", `read go; setsid setsid sleep 600 & setsid sh -c 'trap "" TERM; sleep 600' & kill -KILL $PPID; sleep 600`,
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(p.Stdin(), "\n") // killed sooner, it would not have told of the start
		_, _ = io.Copy(io.Discard, p.Output(dray.Stdout))
		_, _ = io.Copy(io.Discard, p.Output(dray.Stderr))
		exit, err := p.Wait()
		if dray.CodeOf(err) != dray.CodeAgentLost || !exit.Survivors.Proven || len(exit.Survivors.PIDs) != 0 {
			t.Fatalf("got %+v, %v", exit, err)
		}
	}
	output(t, env, dray.ProcessSpec{Argv: []string{"/bin/true"}})
}
