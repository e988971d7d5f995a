package audit

import (
	"context"
	"runtime"
	"testing"

	"github.com/dray-dev/dray"
)

// BenchmarkCall measures the begin and end records of one call, each committed and synced.
func BenchmarkCall(b *testing.B) {
	b.Run("serial", func(b *testing.B) {
		call := benchmarkCall(b)
		for b.Loop() {
			call()
		}
	})
	b.Run("parallel 64", func(b *testing.B) {
		call := benchmarkCall(b)
		b.SetParallelism(64 / runtime.GOMAXPROCS(0))
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

// BenchmarkFloor measures two inserts of the size of an event, each committed and synced by SQLite
// with the same settings: the minimum for a call.
func BenchmarkFloor(b *testing.B) {
	opts := options(b.TempDir())
	if f, err := openPrivate(opts.Path); err != nil || f.Close() != nil {
		b.Fatal(err)
	}
	db, err := openWriter(context.Background(), opts.Path)
	must(b, err)
	defer db.Close()
	mustExec(b, db, `CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)`)
	body := string(longJSON(1 << 10))
	for b.Loop() {
		for range 2 {
			mustExec(b, db, `INSERT INTO t (body) VALUES (?)`, body)
		}
	}
}

// BenchmarkList measures a page of 50 among 10,000 calls.
func BenchmarkList(b *testing.B) {
	s := open(b, options(b.TempDir()))
	jobs := make([]*pendingEvent, 10_000)
	for i := range jobs {
		j, err := s.beginEvent(dray.Call{Invocation: newInvocation("exec")}, epoch)
		must(b, err)
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

// BenchmarkVerify measures the verification of 10,000 calls.
func BenchmarkVerify(b *testing.B) {
	opts := options(b.TempDir())
	s := open(b, opts)
	recordCalls(b, s, 10_000)
	for b.Loop() {
		if report := mustVerify(b, opts, nil); !report.OK {
			b.Fatal(report.Findings)
		}
	}
	b.ReportMetric(20_000*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkReceipt measures a receipt of a call among 10,000, with its checkpoint.
func BenchmarkReceipt(b *testing.B) {
	s := open(b, options(b.TempDir()))
	recordCalls(b, s, 10_000)
	id := list(b, s, Query{Limit: 1}).Items[0].ID
	for b.Loop() {
		if _, err := s.Receipt(context.Background(), "", id, true); err != nil {
			b.Fatal(err)
		}
	}
}
