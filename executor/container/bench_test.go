package container_test

import (
	"bytes"
	"io"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	dc "github.com/dray-dev/dray/executor/container"
)

// BenchmarkTrue reports the median of one call of `true` in a running container by each channel, and
// of os/exec on the host.
func BenchmarkTrue(b *testing.B) {
	for _, transport := range []dc.Transport{dc.TransportSocket, dc.TransportStdio} {
		e := newEngine(b, transport)
		c := runContainer(b, e, debian, placed(b, e))
		env := environment(b, e, dc.EnvironmentSpec{Container: c, User: "vscode", WorkspaceFolder: "/tmp"})
		b.Run(string(transport), func(b *testing.B) { reportMedian(b, func() { runTrue(b, env) }) })
	}
	b.Run("os-exec", func(b *testing.B) {
		reportMedian(b, func() {
			cmd := exec.Command("/bin/true")
			var out, errOut bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.Stdin = &out, &errOut, bytes.NewReader(nil)
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func reportMedian(b *testing.B, call func()) {
	b.Helper()
	var times []time.Duration
	for b.Loop() {
		begun := time.Now()
		call()
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-µs")
}

func runTrue(b *testing.B, env dray.Environment) {
	b.Helper()
	p, err := env.Start(b.Context(), dray.ProcessSpec{Argv: []string{"true"}})
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
