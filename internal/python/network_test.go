package python_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// traceNetwork watches all threads of processes, and those that they start, from outside. The
// returned function ends that and returns the system calls that they have made to reach a network.
// Without strace the test fails: what proves the sandbox is not skipped.
func traceNetwork(t *testing.T, pids ...int) (calls func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace")
	args := []string{"-f", "-e", "trace=socket,connect,bind,sendto,sendmsg,sendmmsg", "-o", file}
	for _, pid := range pids {
		args = append(args, "-p", fmt.Sprint(pid))
	}
	cmd := exec.Command("strace", args...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("start strace: %v; next: scripts/setup pyodide", err)
	}
	said := bufio.NewReader(stderr)
	for range pids {
		if line, _ := said.ReadString('\n'); !strings.Contains(line, "attached") {
			t.Fatalf("strace says %q", line)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, said)
	}()
	return func() string {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-ended
		_ = cmd.Wait() // it ends by the signal
		trace, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		var found []string
		for line := range strings.Lines(string(trace)) {
			if strings.Contains(line, "(") && !strings.Contains(line, "+++") {
				found = append(found, line)
			}
		}
		return strings.Join(found, "")
	}
}

// What a process asks of the network is seen: else the tests that see nothing would prove nothing.
func TestTraceNetwork(t *testing.T) {
	outside := newOutside(t)
	cmd := exec.CommandContext(t.Context(), "python3", "-c", "import socket, sys\nsys.stdin.read()\n"+
		outside.replace.Replace("socket.create_connection(('127.0.0.1', PORT)).close()"))
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	calls := traceNetwork(t, cmd.Process.Pid)
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := calls(); !strings.Contains(got, "connect(") {
		t.Errorf("the connection was not seen: %s", got)
	}
}
