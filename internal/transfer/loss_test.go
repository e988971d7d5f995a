package transfer

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
)

// flakyFiles are files whose agent is lost during each tree but the last.
type flakyFiles struct {
	dray.Files
	losses *int
	hold   bool // the tree until the context is done
}

func (f flakyFiles) ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error) {
	tree, err := f.Files.ReadTree(ctx, what)
	if err != nil {
		return nil, err
	}
	if f.hold {
		<-ctx.Done()
	}
	if *f.losses == 0 {
		return tree, nil
	}
	*f.losses--
	return &breakingTree{tree, 100_000}, nil
}

// breakingTree is a tree that fails after a number of bytes.
type breakingTree struct {
	dray.Tree
	left int
}

func (b *breakingTree) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errAgent
	}
	n, err := b.Tree.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// A sync survives the loss of the agent twice. After the third time it fails, and the old file is
// unchanged (SY-09).
func TestFetch_Resumed(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 50_000)
	for losses, ok := range map[int]bool{0: true, 1: true, 2: true, 3: false} {
		w := newFixture(t, nil)
		w.put("/tmp/x/large", large)
		w.put("/tmp/x/small", "s")
		write(t, w.root+"/x/large", "old")
		left := losses
		w.box.open = func(f dray.Files) dray.Files { return flakyFiles{f, &left, false} }
		r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp/x"}})
		if ok {
			if err != nil || left != 0 || r.Files[0].SHA256 != sum(large) {
				t.Errorf("%d losses: got %+v, %v", losses, r, err)
			}
			w.wantRoot(map[string]string{"x/large": large, "x/small": "s"})
			continue
		}
		if dray.CodeOf(err) != dray.CodeTransferFailed || r.State != dray.SyncFailed ||
			!strings.Contains(err.Error(), "agent") {
			t.Errorf("%d losses: got %+v, %v", losses, r, err)
		}
		w.wantRoot(map[string]string{"x/large": "old"})
	}
}

// A timeout is transfer_failed, and the hint has the key (SY-09).
func TestFetch_Timeout(t *testing.T) {
	w := newFixture(t, func(c *Config) { c.Timeout = 20 * time.Millisecond })
	w.put("/tmp/x", "x")
	left := 0
	w.box.open = func(f dray.Files) dray.Files { return flakyFiles{f, &left, true} }
	r, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp/x"}})
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeTransferFailed ||
		!strings.Contains(e.Hint, "sandbox.timeout") || r.State != dray.SyncFailed {
		t.Errorf("got %+v, %+v", r, e)
	}
	w.wantRoot(nil)
}

// If another process holds the lock of the root, the error says so (SY-09).
func TestFetch_TimeoutOfLock(t *testing.T) { synctest.Test(t, testTimeoutOfLock) }

func testTimeoutOfLock(t *testing.T) {
	w := newFixture(t, nil)
	w.put("/tmp/x", "x")
	holder, err := os.Open(w.root)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, err = w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp/x"}})
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeTransferFailed ||
		!strings.Contains(e.Message, "holds the lock") || !strings.Contains(e.Hint, "lsof") {
		t.Errorf("got %+v", e)
	}
	w.wantRoot(nil)
}

// The end of the daemon, or of the call, cancels a sync with nothing written.
func TestFetch_Cancelled(t *testing.T) {
	for name, end := range map[string]func(w *fixture, cancel context.CancelFunc) dray.Code{
		"stopped": func(w *fixture,
			_ context.CancelFunc,
		) dray.Code {
			w.Stop()
			return dray.CodeShuttingDown
		},
		"cancelled": func(_ *fixture,
			cancel context.CancelFunc,
		) dray.Code {
			cancel()
			return dray.CodeTransferFailed
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, nil)
			w.put("/tmp/x", "x")
			left := 0
			w.box.open = func(f dray.Files) dray.Files { return flakyFiles{f, &left, true} }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			code := end(w, cancel)
			if _, err := w.Fetch(ctx, w.box, Request{Paths: []string{"/tmp/x"}}); dray.CodeOf(err) != code {
				t.Errorf("got %v", err)
			}
			w.wantRoot(nil)
		})
	}
}
