package process_test

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray/executor/process"
)

func BenchmarkTrue(b *testing.B) {
	b.Run("supervised", func(b *testing.B) {
		pool := newPool(b)
		for b.Loop() {
			p := start(b, pool, process.Spec{Argv: []string{"/bin/true"}})
			collect(p)
		}
	})
	b.Run("os-exec", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("/bin/true")
			var out, errOut bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errOut
			cmd.Stdin = strings.NewReader("")
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkKill measures from KILL to the proof that nothing is left of a tree of 50 that tried to
// get away.
func BenchmarkKill(b *testing.B) {
	const tree = `i=0; while [ $i -lt 25 ]; do setsid sleep 600 & setsid sh -c 'setsid sleep 600 & exit' & i=$((i+1)); done; echo ready; sleep 600`
	for _, c := range []struct {
		name string
		pool func(testing.TB) *process.Pool
	}{{"walk", newPool}, {"cgroup", newGroupedPool}} {
		b.Run(c.name, func(b *testing.B) {
			pool := c.pool(b)
			var took []time.Duration
			for b.Loop() {
				p := shell(b, pool, tree, 0)
				_, _ = p.Stdout().Read(make([]byte, 8))
				begun := time.Now()
				p.Stop(0)
				if exit, err := p.Wait(); err != nil || len(exit.Survivors) != 0 {
					b.Fatal(exit, err)
				}
				took = append(took, time.Since(begun))
				collect(p)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "p90-µs")
		})
	}
}
