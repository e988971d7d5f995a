package files_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
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
		if err := <-served; !errors.Is(err, io.ErrClosedPipe) { // it is in the midst of an answer when it is ended, as a killed one
			return err
		}
		return nil
	})
}

func TestClient(t *testing.T) {
	h := harness(t, func(t *testing.T, root string) dray.Files { return serve(t, root) })
	h.NoTrees = true
	executortest.RunFiles(t, h)
}

func TestHelperLimits(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("x"), 0o600); err != nil {
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

// A helper without its root says so.
func TestHelperWithoutRoot(t *testing.T) {
	c := serve(t, t.TempDir()+"/none")
	if _, err := c.Stat("f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Stat("f"); dray.CodeOf(err) != dray.CodeAgentLost {
		t.Errorf("got %v", err)
	}
	_ = c.Close()
}

// A helper that talks nonsense answers nothing from then on: the answers would not belong to the questions.
func TestHostileHelper(t *testing.T) {
	honest := "\x16\x00\x00\x00{\"info\":{\"size\":12345}}\x00\x00\x00\x00"
	for name, answer := range map[string]string{
		"too long":      "\xff\xff\xff\x7f" + strings.Repeat("x", 100),
		"no JSON":       "\x03\x00\x00\x00abc\x00\x00\x00\x00" + honest,
		"data too long": "\x02\x00\x00\x00{}\xff\xff\xff\x7f" + honest,
		"cut":           "\x02\x00",
		"nothing":       "",
	} {
		t.Run(name, func(t *testing.T) {
			c := files.NewClient(io.Discard, strings.NewReader(answer), func() error { return nil })
			for range 2 {
				if info, err := c.Stat("f"); dray.CodeOf(err) != dray.CodeAgentLost || info.Size != 0 {
					t.Errorf("got %+v, %v", info, err)
				}
			}
		})
	}
	flood := files.NewClient(io.Discard, strings.NewReader("\x21\x00\x00\x00{\"entries\":[{},{},{}],\"more\":true}\x00\x00\x00\x00"), func() error { return nil })
	if list, _, err := flood.List(".", 2); err == nil {
		t.Errorf("more entries than asked for: %+v", list)
	}
}

// FuzzServe feeds the helper whatever bytes: it ends, and nothing outside its root is touched.
func FuzzServe(f *testing.F) {
	for _, op := range []string{"stat", "open", "create", "read", "write", "close", "rename", "remove", "list", "odd"} {
		j := `{"op":"` + op + `","name":"Lg==","handle":1,"limit":-1,"offset":-5}`
		f.Add(append([]byte{byte(len(j)), 0, 0, 0}, j+"\x01\x00\x00\x00x"...))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(dir+"/root", 0o755); err != nil {
			t.Fatal(err)
		}
		_ = files.Serve(dir+"/root", bytes.NewReader(input), io.Discard)
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("beside the root: %v, %v", left, err)
		}
	})
}

// FuzzClient feeds the client whatever answers: every operation ends.
func FuzzClient(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}\x00\x00\x00\x00\x02\x00\x00\x00{}\x01\x00\x00\x00x"))
	f.Fuzz(func(_ *testing.T, input []byte) {
		c := files.NewClient(io.Discard, bytes.NewReader(input), func() error { return nil })
		_, _ = c.Stat("x")
		_, _, _ = c.List(".", 3)
		if r, _, err := c.Open("x", 0); err == nil {
			_, _ = io.Copy(io.Discard, r)
			_ = r.Close()
		}
	})
}
