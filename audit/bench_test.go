package audit

import (
	"context"
	"testing"

	"github.com/dray-dev/dray"
)

// BenchmarkCall is one call that does nothing: its begin and its end, both committed and synced.
func BenchmarkCall(b *testing.B) {
	b.Run("serial", func(b *testing.B) {
		call := benchmarkCall(b)
		for b.Loop() {
			call()
		}
	})
	b.Run("64 at once", func(b *testing.B) {
		call := benchmarkCall(b)
		b.SetParallelism(32) // times GOMAXPROCS, 2 on the machine of the figures
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call()
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	})
}

func benchmarkCall(b *testing.B) func() {
	s := open(b, options(b.TempDir()))
	res := exited(0)
	res.Stdout.Text = string(longJSON(1 << 10))
	res.Metadata.Container = &dray.ContainerMetadata{Name: "web", ID: "id"}
	exec := s.Executor(returning(res))
	return func() {
		if _, err := exec.Execute(context.Background(), dray.Call{Invocation: newInvocation("exec")},
			dray.Discard); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkList is a page of 50 among 10,000 calls.
func BenchmarkList(b *testing.B) {
	s := open(b, options(b.TempDir()))
	jobs := make([]*pendingEvent, 10_000)
	for i := range jobs {
		j, _, err := s.beginJob(newInvocation("exec"), epoch)
		if err != nil {
			b.Fatal(err)
		}
		jobs[i] = j
	}
	if err := s.submit(context.Background(), jobs...); err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]Query{
		"newest": {}, "by tool": {Tool: "exec"},
		"text not found": {Text: "zzz"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				list(b, s, q)
			}
		})
	}
}
