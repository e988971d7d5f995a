package host_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/host"
)

// What is left of a call is killed, in whatever session it is. Processes of other calls go on, and
// nothing is claimed about processes without the id (AU-03).
func TestKillRemains(t *testing.T) {
	const id, other = "019a7b2c-0000-7000-8000-00000000dead", "019a7b2c-0000-7000-8000-00000000beef"
	start := func(id string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; echo; read x")
		cmd.Env = []string{dray.EnvCallID + "=" + id}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	left, beside := start(id), start(other)
	report, ok := host.KillRemains([]string{id})[id]
	if !ok || report.Survivors.Proven {
		t.Errorf("the report is %+v, %v", report, ok)
	}
	_ = left.Wait() // blocks if it was not killed
	status, ok := left.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("what was left ended with %v", left.ProcessState)
	}
	if err := beside.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process of another call: %v", err)
	}
}
