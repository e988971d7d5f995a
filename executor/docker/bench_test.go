package docker_test

import (
	"bytes"
	"io"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// BenchmarkTrue reports the median of a call of `true` in a running container by each channel, and
// the ratio to the median of os/exec on the host. The two alternate, so that both have the same
// load of the machine.
func BenchmarkTrue(b *testing.B) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportStdio} {
		e := newEngine(b, transport)
		c := runContainer(b, e, debian, nil)
		env := environment(b, e, c, agent.Spec{User: "vscode", WorkspaceFolder: "/tmp"})
		b.Run(string(transport), func(b *testing.B) {
			var calls, base []time.Duration
			for b.Loop() {
				begun := time.Now()
				runTrue(b, env)
				calls = append(calls, time.Since(begun))
				begun = time.Now()
				execTrue(b)
				base = append(base, time.Since(begun))
			}
			reportMedians(b, calls, base)
		})
	}
}

func reportMedians(b *testing.B, calls, base []time.Duration) {
	b.Helper()
	slices.Sort(calls)
	slices.Sort(base)
	call, exec := calls[len(calls)/2], base[len(base)/2]
	b.ReportMetric(float64(call.Nanoseconds())/1e3, "call-p50-µs")
	b.ReportMetric(float64(exec.Nanoseconds())/1e3, "os-exec-p50-µs")
	b.ReportMetric(float64(call)/float64(exec), "ratio")
}

func execTrue(b *testing.B) {
	b.Helper()
	cmd := exec.Command("/bin/true")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Stdin = &out, &errOut, bytes.NewReader(nil)
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
}

func runTrue(b *testing.B, env dray.Environment) {
	b.Helper()
	p, err := env.Start(b.Context(), dray.ProcessSpec{CallID: "bench", Argv: []string{"true"}})
	if err != nil {
		b.Fatal(err)
	}
	_ = p.Stdin().Close()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, p.Output(dray.Stderr)) })
	_, _ = io.Copy(io.Discard, p.Output(dray.Stdout))
	wg.Wait()
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		b.Fatal(exit, err)
	}
}
