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
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
)

func newStore(t *testing.T, limit int64, view int) *capture.Store {
	t.Helper()
	return open(t, capture.Options{
		Dir: filepath.Join(t.TempDir(), "captures"), Limit: limit,
		SummaryBytes: view,
	})
}

func open(t *testing.T, opts capture.Options) *capture.Store {
	t.Helper()
	s, err := capture.NewStore(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// The figures of a summary are right for every size and limit.
func TestSummary(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 300 {
		limit, view := rng.Int64N(200<<10), 1+rng.IntN(300)
		data := make([]byte, rng.IntN(1+rng.IntN(200<<10)))
		for j := range data {
			data[j] = "aé\n€😀\xff"[rng.IntN(12)%11]
		}
		s := newStore(t, limit, view)
		c := s.New(fmt.Sprint("call", i), dray.Stdout)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(70<<10))
			_, _ = c.Write(rest[:n])
			rest = rest[n:]
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c.Release()
		check(t, s, c, fmt.Sprint("call", i), data, limit, view)
	}
}

func check(t *testing.T, s *capture.Store, c *capture.Capture, id string, data []byte, limit int64,
	view int,
) {
	t.Helper()
	got := c.Summary()
	kept := data[:min(int64(len(data)), limit)]
	sum := sha256.Sum256(kept)
	if got.TotalBytes != int64(len(data)) || got.KeptBytes != int64(len(kept)) ||
		got.Truncated != (len(kept) < len(data)) ||
		got.SHA256 != hex.EncodeToString(sum[:]) ||
		got.HeadBytes+got.OmittedBytes+got.TailBytes != got.TotalBytes {
		t.Fatalf("%d bytes, limit %d, view %d: %+v", len(data), limit, view, got)
	}
	if got.HeadBytes > int64(view) || got.TailBytes > int64(view) || !utf8.ValidString(got.Text) {
		t.Fatalf("view %d: %+v", view, got)
	}
	if got.OmittedBytes > 0 != (len(data) > 2*view) ||
		got.OmittedBytes > 0 != strings.Contains(got.Text, " bytes omitted, read them with id "+id) {
		t.Fatalf("%d bytes, view %d: %+v", len(data), view, got)
	}
	f, err := s.Open(id, dray.Stdout)
	if len(kept) == 0 || got.Text == string(kept) && len(kept) == len(data) && utf8.Valid(kept) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("there is a file for what is shown whole: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if b, err := io.ReadAll(f); err != nil || !bytes.Equal(b, kept) {
		t.Fatalf("kept %d bytes, want %d (%v)", len(b), len(kept), err)
	}
}

func TestSummary_CutsBetweenCharacters(t *testing.T) {
	c := newStore(t, 1<<20, 5).New("id", dray.Stderr)
	_, _ = c.Write([]byte(strings.Repeat("é", 20)))
	got := c.Summary()
	if got.Text != "éé\n[... 32 bytes omitted, read them with id id ... ]\néé" || got.HeadBytes != 4 ||
		got.TailBytes != 4 {
		t.Errorf("got %+v", got)
	}
}

func TestEmptyCaptureHasNoFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, capture.Options{Dir: dir, Limit: 10, SummaryBytes: 10})
	if err := s.New("id", dray.Stdout).Close(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("got %v", entries)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	s := open(t, capture.Options{Dir: dir, Limit: 1 << 20, SummaryBytes: 10})
	c := s.New("id", dray.Stdout)
	_, _ = c.Write([]byte("more than a view of secrets"))
	_ = c.Close()
	info, err := os.Stat(filepath.Join(dir, "id.stdout"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
}
