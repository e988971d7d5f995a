package files_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/executortest"
	"github.com/dray-dev/dray/executor/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness(t *testing.T, open func(*testing.T, string) dray.Files) executortest.FilesHarness {
	return executortest.FilesHarness{
		Open: open, Dir: t.TempDir(), Rounds: 20,
		Shell: func(t *testing.T, dir, script string) string {
			cmd := exec.Command("/bin/sh", "-ec", script)
			cmd.Dir, cmd.Stderr = dir, os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		},
		Background: func(t *testing.T, dir, script string) func() {
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Dir = dir
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		},
	}
}

func TestLocal(t *testing.T) {
	executortest.RunFiles(t, harness(t, func(t *testing.T, root string) dray.Files {
		f, err := files.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}))
}

// serve runs a helper in this process.
func serve(t *testing.T, root string) *files.Client {
	t.Helper()
	theirIn, ourOut := io.Pipe()
	ourIn, theirOut := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := files.Serve(root, theirIn, theirOut)
		_ = theirOut.CloseWithError(io.EOF)
		_ = theirIn.Close()
		served <- err
	}()
	return files.NewClient(ourOut, ourIn, func() error {
		_, _ = ourOut.Close(), ourIn.Close()
		// a helper that is ended may be writing a response
		if err := <-served; !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		return nil
	})
}

func TestClient(t *testing.T) {
	executortest.RunFiles(t, harness(t,
		func(t *testing.T, root string) dray.Files { return serve(t, root) }))
}

func TestHelper_MaxOpen(t *testing.T) {
	dir := t.TempDir()
	// larger than readAhead
	if err := os.WriteFile(dir+"/f", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c := serve(t, dir)
	defer func() { _ = c.Close() }()
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, _, err = c.Open("f", 0)
	}
	if dray.CodeOf(err) != dray.CodeLimitExceeded {
		t.Errorf("got %v", err)
	}
	if _, err := c.Stat("f"); err != nil {
		t.Errorf("the helper goes on: %v", err)
	}
}

// A helper without its root reports that.
func TestHelper_NoRoot(t *testing.T) {
	c := serve(t, t.TempDir()+"/none")
	if _, err := c.Stat("f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Stat("f"); dray.CodeOf(err) != dray.CodeAgentLost {
		t.Errorf("got %v", err)
	}
	_ = c.Close()
}
