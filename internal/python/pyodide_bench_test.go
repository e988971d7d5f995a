package python_test

import "testing"

// BenchmarkPyodideWarm runs code in a worker that is ready.
func BenchmarkPyodideWarm(b *testing.B) {
	w := newPyodideHarness(b).Start(b, nil)
	for b.Loop() {
		if got := w.Value(b, "1+1"); got != "2" {
			b.Fatal(got)
		}
	}
}

// BenchmarkPyodideStart starts workers from the memory snapshot.
func BenchmarkPyodideStart(b *testing.B) {
	h := newPyodideHarness(b)
	h.Start(b, nil) // makes the snapshot
	for b.Loop() {
		w := h.Start(b, nil)
		b.StopTimer()
		w.Kill()
		<-w.Done()
		b.StartTimer()
	}
}
