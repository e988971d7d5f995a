package audit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// Check finds a damaged page and a file without our tables, also beside a daemon, and changes
// nothing.
func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.db")
	store, _, err := Open(t.Context(), Options{Path: path, CapturesDir: filepath.Join(t.TempDir(), "c")})
	must(t, err)
	if err := Check(t.Context(), path); err != nil {
		t.Errorf("beside a writer: %v", err)
	}
	if err := store.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	must(t, err)
	const page = 4096
	damaged := bytes.Clone(whole)
	for i := page; i < len(damaged); i++ {
		damaged[i] ^= 0xff
	}
	for name, content := range map[string][]byte{
		"damaged": damaged, "truncated": whole[:page+page/2], "empty": nil,
		"not a database": []byte(strings.Repeat("x", page)),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Check(t.Context(), path)
		if dray.CodeOf(err) != dray.CodeAuditUnavailable ||
			!strings.Contains(dray.AsError(err).Hint, path) {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
			t.Errorf("%s: the file was changed, %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Check(ended, path); dray.CodeOf(err) == dray.CodeAuditUnavailable {
		t.Errorf("a check that was cut short: %v", err)
	}
}
