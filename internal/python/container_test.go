package python_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process/processtest"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
)

// newHostHarness returns the runtime container in an environment of the host, with the machine's
// own CPython. DRAY_TEST_PYTHON names another one, by its absolute path.
func newHostHarness(t testing.TB) pythontest.Harness {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pool := processtest.NewPool(t)
	h := host.New(host.Config{Roots: []string{dir}, Homes: filepath.Join(dir, "homes")}, pool)
	t.Cleanup(func() { _ = h.Close() })
	return pythontest.Harness{
		Runtime: newContainer(t), Environment: h.Environment(dir), Dir: dir,
		Executable: os.Getenv("DRAY_TEST_PYTHON"),
	}
}

func newContainer(t testing.TB) *python.Container {
	t.Helper()
	return &python.Container{Log: zaptest.NewLogger(t)}
}

// The runtime container passes the contract suite with the machine's own CPython.
func TestContract_Host(t *testing.T) { pythontest.Run(t, newHostHarness(t)) }

func BenchmarkWarm(b *testing.B) {
	w := newHostHarness(b).Start(b, nil)
	b.Log(w.Hello().StartMS)
	for b.Loop() {
		if got := w.Value(b, "1+1"); got != "2" {
			b.Fatal(got)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	h := newHostHarness(b)
	for b.Loop() {
		w, err := h.Runtime.Start(b.Context(), python.WorkerSpec{Environment: h.Environment})
		if err != nil {
			b.Fatal(err)
		}
		got := pythontest.Worker{Worker: w, Harness: h}.Value(b, "1+1")
		if got != "2" {
			b.Fatal(got)
		}
		w.Kill()
		<-w.Done()
	}
}

func BenchmarkPythonAlone(b *testing.B) {
	h := newHostHarness(b)
	for b.Loop() {
		p, err := h.Environment.Start(b.Context(), dray.ProcessSpec{Argv: []string{"python3", "-I", "-c", "pass"}})
		if err != nil {
			b.Fatal(err)
		}
		_ = p.Stdin().Close()
		if exit, err := p.Wait(); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
	}
}
