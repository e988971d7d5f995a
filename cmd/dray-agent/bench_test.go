package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

// BenchmarkTrue runs `true` by os/exec, by a pool, and by an agent over its socket, one after the
// other in each round, and reports the medians and their ratio to os/exec. The agent runs in this
// namespace: what a container adds is not measured here.
func BenchmarkTrue(b *testing.B) {
	mux := serveOverSocket(b)
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe", Args: []string{"dray-agent", "supervise"},
		Env: []string{"GOMAXPROCS=2"},
	})
	b.Cleanup(pool.Close)
	methods := []struct {
		name string
		run  func(b *testing.B)
		took []time.Duration
	}{
		{name: "exec", run: trueByExec},
		{name: "pool", run: func(b *testing.B) { trueByPool(b, pool) }},
		{name: "agent", run: func(b *testing.B) { trueByAgent(b, mux) }},
	}
	for b.Loop() {
		for i := range methods {
			begun := time.Now()
			methods[i].run(b)
			methods[i].took = append(methods[i].took, time.Since(begun))
		}
	}
	var base float64
	for _, m := range methods {
		slices.Sort(m.took)
		median := float64(m.took[len(m.took)/2].Microseconds())
		if base == 0 {
			base = median
		}
		b.ReportMetric(median, m.name+"-µs")
		b.ReportMetric(median/base, m.name+"/exec")
	}
}

func trueByExec(b *testing.B) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "/bin/true")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Stdin = &out, &errOut, strings.NewReader("")
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
}

func trueByPool(b *testing.B, pool *process.Pool) {
	b.Helper()
	p, err := pool.Start(b.Context(), process.Spec{
		Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
		User: &process.Credential{Groups: []uint32{0}},
	})
	if err != nil {
		b.Fatal(err)
	}
	_ = p.Stdin().Close()
	drain(p.Stdout(), p.Stderr())
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		b.Fatal(exit, err)
	}
}

func drain(outputs ...io.Reader) {
	done := make(chan struct{})
	for _, r := range outputs {
		go func() {
			_, _ = io.Copy(io.Discard, r)
			done <- struct{}{}
		}()
	}
	for range outputs {
		<-done
	}
}

func trueByAgent(b *testing.B, mux *wire.Mux) {
	b.Helper()
	pipes, err := process.NewPipes()
	if err != nil {
		b.Fatal(err)
	}
	stream, err := mux.Open(&wire.Start{
		Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", PassedFDs: true,
		Probe: wire.Probe{Kind: "loginInteractiveShell", Shell: "/bin/sh"}, Grace: time.Second,
	}, pipes.Child.Stdin, pipes.Child.Stdout, pipes.Child.Stderr)
	pipes.Child.Close()
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	if reply := receive(b, stream); reply.Started == nil {
		b.Fatalf("start: %+v", reply.Failed)
	}
	_ = pipes.Stdin.Close()
	drain(pipes.Stdout, pipes.Stderr)
	if reply := receive(b, stream); reply.Exited == nil || reply.Exited.Code != 0 {
		b.Fatalf("exit: %+v", reply.Exited)
	}
	pipes.Finish()
}

func receive(tb testing.TB, s *wire.Stream) (reply wire.Reply) {
	tb.Helper()
	body, err := s.Receive()
	if err == nil {
		err = wire.Decode(body, &reply)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return reply
}

// serveOverSocket starts this test binary as an agent and returns the daemon's side of its socket.
func serveOverSocket(tb testing.TB) *wire.Mux {
	tb.Helper()
	cmd := exec.Command("/proc/self/exe", "serve")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cmd.Wait() })
	if _, err := wire.ReadHello(stdout); err != nil {
		tb.Fatal(err)
	}
	secret := randomBytes(wire.SecretSize)
	if err := wire.WriteHello(stdin, wire.Hello{Listen: &wire.Listen{Secret: secret}}); err != nil {
		tb.Fatal(err)
	}
	at, err := wire.ReadListening(stdout)
	if err != nil || at.PID != cmd.Process.Pid {
		tb.Fatalf("got %+v, %v", at, err)
	}
	return connectAgent(tb, fmt.Sprintf("/proc/%d/fd/%d", at.PID, at.FD), secret)
}

func connectAgent(tb testing.TB, path string, secret []byte) *wire.Mux {
	tb.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		tb.Fatal(err)
	}
	file, err := conn.File()
	_ = conn.Close()
	if err != nil {
		tb.Fatal(err)
	}
	socket, err := wire.NewSocket(file, false)
	if err == nil {
		err = wire.AuthenticateAgent(socket, secret, randomBytes(wire.SecretSize))
	}
	if err == nil {
		err = wire.ConfirmAgent(socket)
	}
	if err != nil {
		tb.Fatal(err)
	}
	mux := wire.NewMux(socket, wire.Config{MaxMessage: wire.MaxMessage, Lease: 30 * time.Second})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = mux.Run()
	}()
	tb.Cleanup(func() { mux.Close(); <-ended })
	return mux
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}
