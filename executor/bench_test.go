package executor_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
)

// BenchmarkRun measures a call of /bin/true on the host and compares it with os/exec: both run
// alternately, and the reported ratio is that of their medians.
func BenchmarkRun(b *testing.B) {
	for name, opts := range map[string]executor.Options{
		"plain":     {ID: "bench"},
		"rewritten": {ID: "bench", Control: make(chan dray.Control), Rewrite: rewriter(b)},
	} {
		b.Run(name, func(b *testing.B) {
			f := newFixture(b)
			r := newRunner(b, capture.Options{Limit: 1 << 20, SummaryBytes: 16 << 10})
			spec := dray.ProcessSpec{Argv: []string{"/bin/true"}, Dir: f.dir}
			var ours, theirs []time.Duration
			for b.Loop() {
				start := time.Now()
				out, err := r.Run(b.Context(), f.env, spec, opts, dray.Discard)
				out.Release()
				if err != nil || out.Result.Reason != dray.ReasonExited {
					b.Fatal(out.Result.Reason, err)
				}
				ours = append(ours, time.Since(start))
				start = time.Now()
				if _, err := exec.Command("/bin/true").Output(); err != nil {
					b.Fatal(err)
				}
				theirs = append(theirs, time.Since(start))
			}
			b.ReportMetric(float64(median(ours).Microseconds()), "run-µs")
			b.ReportMetric(float64(median(theirs).Microseconds()), "os/exec-µs")
			b.ReportMetric(float64(median(ours))/float64(median(theirs)), "ratio")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
