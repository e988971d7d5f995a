package capture_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
)

// printed captures n bytes for a call and ends it. More than 64 KiB, or a text that does not fit in
// the summary, has a file.
func printed(t *testing.T, s *capture.Store, id string, n int) {
	t.Helper()
	c := s.New(id, dray.Stdout)
	_, _ = c.Write(bytes.Repeat([]byte("x"), n))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.Release()
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func size(t *testing.T, dir string) (total int64) {
	t.Helper()
	for _, name := range names(t, dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			total += info.Size()
		}
	}
	return total
}

// aged sets the modification time of a file.
func aged(t *testing.T, dir, name string, changed time.Time) {
	t.Helper()
	if err := os.Chtimes(filepath.Join(dir, name), changed, changed); err != nil {
		t.Fatal(err)
	}
}

// Beyond MaxDiskBytes the oldest captures are removed, and no more than necessary (CA-01).
func TestOldestIsRemovedFirst(t *testing.T) {
	dir := t.TempDir()
	var reported []capture.Removed
	s := open(t, capture.Options{
		Dir: dir, Limit: 1 << 20, SummaryBytes: 10, MaxDiskBytes: 100 << 10,
		OnRemoved: func(r capture.Removed) { reported = append(reported, r) },
	})
	past := time.Now().Add(-time.Hour)
	for i, id := range []string{"second", "first", "third"} {
		printed(t, s, id, 30<<10)
		aged(t, dir, id+".stdout", past.Add(time.Duration([]int{2, 1, 3}[i])*time.Minute))
	}
	printed(t, s, "fourth", 35<<10)
	if got := names(t, dir); !slices.Equal(got,
		[]string{"fourth.stdout", "second.stdout", "third.stdout"}) {
		t.Errorf("there are %v", got)
	}
	if _, err := s.Open("first", dray.Stdout); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was removed opens with %v", err)
	}
	printed(t, s, "fifth", 100<<10)
	if got := names(t, dir); !slices.Equal(got, []string{"fifth.stdout"}) {
		t.Errorf("there are %v", got)
	}
	if want := []capture.Removed{
		{Files: 1, Bytes: 30 << 10},
		{Files: 3, Bytes: 95 << 10},
	}; !slices.Equal(reported, want) {
		t.Errorf("it reported %+v", reported)
	}
}

// Captures of running calls are never removed. A call that exceeds the limit gets an error, and its
// captured bytes stay (CA-01).
func TestRunningCallsAreNotRemoved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, capture.Options{Dir: dir, Limit: 1 << 20, SummaryBytes: 10, MaxDiskBytes: 200 << 10})
	printed(t, s, "old", 90<<10)
	running := s.New("running", dray.Stdout)
	block := bytes.Repeat([]byte("r"), 100<<10)
	if _, err := running.Write(block); err != nil {
		t.Fatal(err)
	}
	greedy := s.New("greedy", dray.Stderr)
	if _, err := greedy.Write(bytes.Repeat([]byte("g"), 80<<10)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"greedy.stderr", "running.stdout"}) {
		t.Errorf("there are %v", got)
	}
	_, err := greedy.Write(block)
	if e := dray.AsError(err); dray.CodeOf(err) != dray.CodeLimitExceeded || e.Hint == "" ||
		greedy.Err() == nil {
		t.Errorf("beyond the cap: %v", err)
	}
	_ = greedy.Close()
	got := greedy.Summary()
	if got.TotalBytes != 180<<10 || got.KeptBytes != 80<<10 || !got.Truncated ||
		got.SHA256 != digest(bytes.Repeat([]byte("g"), 80<<10)) {
		t.Errorf("got %+v", got)
	}
	if _, err := running.Write(block[:10]); err != nil {
		t.Errorf("the other call fails too: %v", err)
	}
	greedy.Release()
	if _, err := running.Write(block[:90<<10]); err != nil {
		t.Errorf("the space of an ended call is not reused: %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"running.stdout"}) {
		t.Errorf("there are %v", got)
	}
	_ = running.Close()
	running.Release()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Captures older than MaxAge are removed; running ones, younger ones and files of the audit log
// stay (CA-01).
func TestOldCapturesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		auditBlob := digest([]byte("an input"))
		for name, age := range map[string]time.Duration{
			"old.stdout": 25 * time.Hour, "old.stderr": 25 * time.Hour, "young.stdout": 22 * time.Hour, auditBlob: 1000 * time.Hour, ".new-1": 1000 * time.Hour,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("bytes"), 0o600); err != nil {
				t.Fatal(err)
			}
			aged(t, dir, name, time.Now().Add(-age))
		}
		var done []capture.Removed
		s, err := capture.NewStore(capture.Options{
			Dir: dir, Limit: 1 << 20, SummaryBytes: 10, MaxAge: 24 * time.Hour, OnRemoved: func(r capture.Removed) { done = append(done, r) },
		})
		if err != nil {
			t.Fatal(err)
		}
		running := s.New("running", dray.Stdout)
		_, _ = running.Write(make([]byte, 70<<10))
		aged(t, dir, "running.stdout", time.Now().Add(-100*time.Hour))
		synctest.Wait()
		if got := names(t, dir); !slices.Equal(got,
			[]string{".new-1", auditBlob, "running.stdout", "young.stdout"}) {
			t.Errorf("there are %v", got)
		}
		time.Sleep(4 * time.Hour) // the bubble's time
		synctest.Wait()
		if got := names(t, dir); !slices.Equal(got, []string{".new-1", auditBlob, "running.stdout"}) {
			t.Errorf("later there are %v", got)
		}
		if len(done) != 2 || done[0] != (capture.Removed{Files: 2, Bytes: 10}) {
			t.Errorf("it reported %+v", done)
		}
		s.Close()
		_ = running.Close()
		running.Release()
	})
}

// The next daemon counts the captures of one that died. They can be read, and are removed like
// others.
func TestCapturesOfDeadDaemon(t *testing.T) {
	dir := t.TempDir()
	opts := capture.Options{Dir: dir, Limit: 1 << 20, SummaryBytes: 10, MaxDiskBytes: 200 << 10}
	_, _ = open(t, opts).New("interrupted", dray.Stdout).Write(bytes.Repeat([]byte("i"), 150<<10))
	s := open(t, opts)
	f, err := s.Open("interrupted", dray.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || len(b) != 150<<10 {
		t.Errorf("%d bytes of it can be read, %v", len(b), err)
	}
	printed(t, s, "next", 100<<10)
	if got := names(t, dir); !slices.Equal(got, []string{"next.stdout"}) {
		t.Errorf("there are %v", got)
	}
}

// A full disk has its code, and the bytes before it stay exact. The test fills a real file system
// (CA-01).
func TestFullDisk(t *testing.T) {
	dir, ok := tmpfs(t, "1m")
	if !ok {
		t.Skip("no disk can be mounted here")
	}
	s := open(t, capture.Options{Dir: dir, Limit: 8 << 20, SummaryBytes: 10})
	c := s.New("call", dray.Stdout)
	data := make([]byte, 3<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rng.IntN(256))
	}
	var err error
	for rest := data; len(rest) > 0; rest = rest[min(len(rest), 64<<10):] {
		_, err = c.Write(rest[:min(len(rest), 64<<10)])
	}
	if e := dray.AsError(err); dray.CodeOf(err) != dray.CodeDiskFull ||
		!errors.Is(err, syscall.ENOSPC) || e.Hint == "" {
		t.Fatalf("write on a full disk: %v", err)
	}
	if err := c.Close(); dray.CodeOf(err) != dray.CodeDiskFull {
		t.Errorf("close: %v", err)
	}
	got := c.Summary()
	if got.TotalBytes != int64(len(data)) || got.KeptBytes != size(t, dir) ||
		got.KeptBytes < 512<<10 || got.SHA256 != digest(data[:got.KeptBytes]) {
		t.Errorf("got %+v with %d bytes on the disk", got, size(t, dir))
	}
	late := s.New("late", dray.Stdout)
	_, _ = late.Write(data[:70<<10])
	if err := late.Close(); dray.CodeOf(err) != dray.CodeDiskFull {
		t.Errorf("the next call: %v", err)
	}
	if got := late.Summary(); got.KeptBytes != 0 || got.SHA256 != digest(nil) ||
		got.TotalBytes != 70<<10 || !got.Truncated {
		t.Errorf("the next call: %+v", got)
	}
	small := s.New("small", dray.Stdout)
	_, _ = small.Write([]byte("fits in its record"))
	if err := small.Close(); err != nil {
		t.Errorf("what needs no file: %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"call.stdout"}) {
		t.Errorf("there are %v", got)
	}
}

// tmpfs mounts a tmpfs if that is allowed.
func tmpfs(t *testing.T, size string) (dir string, own bool) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		return dir, false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, true
}

// With concurrent calls the files never exceed the limit, and the counters stay right.
func TestConcurrentCallsKeepTheLimit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 20 {
		dir := t.TempDir()
		disk := 300<<10 + rng.Int64N(600<<10)
		s := open(t, capture.Options{Dir: dir, Limit: 200 << 10, SummaryBytes: 100, MaxDiskBytes: disk})
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() { flood(t, s, fmt.Sprint(round, "-", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		calls.Wait()
		if got := size(t, dir); got > disk {
			t.Fatalf("round %d: %d bytes lie there, %d may", round, got, disk)
		}
		printed(t, s, "last", int(min(disk, 200<<10)))
		if got := size(t, dir); got > disk || !slices.Contains(names(t, dir), "last.stdout") {
			t.Fatalf("round %d: %d bytes lie there after the last, %d may: %v", round, got, disk,
				names(t, dir))
		}
	}
}

// flood runs some calls with random output, one after the other.
func flood(t *testing.T, s *capture.Store, id string, rng *rand.Rand) {
	for call := range 6 {
		id := fmt.Sprint(id, "-", call)
		c := s.New(id, dray.Stdout)
		data := bytes.Repeat([]byte(id), 1+rng.IntN(300<<10)/len(id))
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(64<<10))
			_, _ = c.Write(rest[:n])
			rest = rest[n:]
		}
		err := c.Close()
		got := c.Summary()
		b, readErr := io.ReadAll(c.Open())
		if readErr != nil || !bytes.Equal(b, data[:got.KeptBytes]) || got.SHA256 != digest(b) ||
			got.TotalBytes != int64(len(data)) {
			t.Errorf("%s: %d bytes can be read of %+v: %v", id, len(b), got, readErr)
		}
		if full := min(len(data), 200<<10); err == nil && got.KeptBytes != int64(full) {
			t.Errorf("%s: %d bytes are kept of %d without an error", id, got.KeptBytes, full)
		}
		if err != nil && dray.CodeOf(err) != dray.CodeLimitExceeded {
			t.Errorf("%s: %v", id, err)
		}
		c.Release()
	}
}

// More files than one scan keeps in memory are removed as well.
func TestRetention_ManyFiles(t *testing.T) {
	dir, _ := tmpfs(t, "64m") // a real disk would do, slowly
	for i := range 9000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.stdout", i)), []byte("0123456789"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-time.Hour)
	aged(t, dir, "07777.stdout", past)
	s := open(t, capture.Options{
		Dir: dir, Limit: 1 << 20, SummaryBytes: 10,
		MaxDiskBytes: 90_000 - 10,
	})
	printed(t, s, "a", 10) // needs no file
	printed(t, s, "b", 20) // shown whole
	if len(names(t, dir)) != 9000 {
		t.Errorf("%d are left", len(names(t, dir)))
	}
	printed(t, s, "c", 80_000)
	left := names(t, dir)
	if len(left) != 999+1 || slices.Contains(left, "07777.stdout") ||
		!strings.HasPrefix(left[len(left)-1], "c") {
		t.Errorf("%d are left", len(left))
	}
}

// A panic of the janitor is reported, and the next sweep runs (EX-18).
func TestJanitorSurvivesPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var reported []capture.Removed
		s, err := capture.NewStore(capture.Options{
			Dir: dir, Limit: 1 << 20, SummaryBytes: 10,
			MaxAge: 16 * time.Second, OnRemoved: func(r capture.Removed) {
				if reported = append(reported, r); len(reported) == 1 {
					panic("planted")
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			printed(t, s, fmt.Sprint("call", i), 100<<10)
			// the kernel's clock is another
			if err := os.Chtimes(filepath.Join(dir, fmt.Sprintf("call%d.stdout", i)), time.Now(),
				time.Now()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		s.Close()
		if len(reported) != 3 || reported[0].Files != 1 || reported[1].Err == nil ||
			!strings.Contains(reported[1].Err.Error(), "planted") || reported[2].Files != 1 {
			t.Errorf("reported %v", reported)
		}
		if left := names(t, dir); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}
